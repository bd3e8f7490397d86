"""`perfkit init` from the command line, and what its workflow files run, step by step."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import git
import pytest
from comment_service import comment_service
from forked_commands import run, run_perfkit
from gating import PERFKIT, GitProject, benchmark, git_project, work

from perfkit.features.hosting.command import MARKER
from perfkit.features.init import files

# Work that counts see, of which the second function does a quarter.
COUNTING = """
[tool.perfkit]
margin = "50%"
[tool.perfkit.gate]
preload = []
most_seconds = 5
"""
COUNTED = "\ndef one(n):\n    return n\n\n\ndef steady():\n    return [one(n) for n in range(800)]\n"
LESS_COUNTED = COUNTED.replace("800", "200")
FILES = {
    "work.py": work(steady=10),
    "benchmarks/test_speed.py": "import work\n" + benchmark("steady", "work.steady"),
}
SCHEMAS = {
    "vendor.github-workflows": (".github/workflows/perfkit.yml", ".github/workflows/perfkit-comment.yml"),
    "vendor.gitlab-ci": (".gitlab-ci.yml", ".gitlab/perfkit.yml"),
}
# Keys of a terminal are signals only to processes whose own it is.
TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
ALL = ("--ci", "github", "--ci", "gitlab", "--ci", "pre-commit")


def perfkit(root: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_perfkit(*arguments, cwd=root, env={**os.environ, **variables})


@pytest.fixture
def project(tmp_path: Path) -> GitProject:
    """Return a project with a benchmark."""
    return git_project(tmp_path, FILES)


def test_nothing_is_written_unasked(project: GitProject) -> None:
    project.commit({"pyproject.toml": '[project]\nname = "work"\nversion = "1"\n'})

    for arguments in ((), ("--dry-run",)):
        done = perfkit(project.root, "init", *arguments)

        assert 0 == done.returncode, done.stderr
        assert "would add to pyproject.toml" in done.stdout
        assert '    +benchmarks = "benchmarks/test_speed.py"' in done.stdout
        assert "`perfkit init --yes` writes it" in done.stdout
        assert [] == project.repository.git.git.status("--porcelain").split()


def test_yes_writes_and_shows_the_next_commands(project: GitProject) -> None:
    project.commit({"pyproject.toml": '[project]\nname = "work"\nversion = "1"\n'})

    done = perfkit(project.root, "init", "--yes", "--json", "plan.json")

    assert 0 == done.returncode, done.stderr
    planned = json.loads((project.root / "plan.json").read_text())
    assert 3 == len(planned["next_commands"])
    assert all(command in done.stdout for command in planned["next_commands"])
    # The commit before has no settings that name the benchmarks.
    assert "--rules head" in planned["next_commands"][1]
    assert 'own = ["work"]' in (project.root / "pyproject.toml").read_text()


def test_the_files_are_what_the_services_read(template: Path) -> None:
    checker = shutil.which(
        "check-jsonschema", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    )
    if checker is None:
        pytest.skip("check-jsonschema is not installed")

    for schema, names in SCHEMAS.items():
        done = run([checker, "--builtin-schema", schema, *names], cwd=template / "clean")
        assert 0 == done.returncode, f"{done.stdout}{done.stderr}"


def test_each_step_runs_in_a_clean_clone(template: Path, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    root, steps = _clone(template, tmp_path, yaml, "gate")
    summary = tmp_path / "summary.md"
    variables = {"GITHUB_STEP_SUMMARY": str(summary)}

    done = {name: _run(command, root, variables) for name, command in steps.items() if name != "Install"}

    assert ["Fetch the ledger", "Gate", "Summary"] == list(done)
    assert 0 == done["Fetch the ledger"].returncode, done["Fetch the ledger"].stderr
    assert 1 == done["Gate"].returncode, done["Gate"].stderr
    assert 0 == done["Summary"].returncode, done["Summary"].stderr
    assert "::error file=" in done["Summary"].stdout
    assert summary.read_text() == (root / "perfkit-gate.md").read_text()
    assert summary.read_text().startswith("## perfkit gate: FAIL\n\nFAIL: ")


def test_each_line_of_gitlab_runs_in_a_clean_clone(template: Path, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    root = _cloned(template, tmp_path)
    jobs = yaml.safe_load((root / ".gitlab/perfkit.yml").read_text())
    job, comment = jobs["perfkit"], jobs["perfkit-comment"]
    repository = git.Repo(root)
    # GitLab checks a commit out and no branch, and names the commit where the branch left its target.
    repository.git.checkout("--quiet", "--detach", "HEAD")
    repository.git.branch("-D", "topic")
    with comment_service() as service:
        variables = {
            "CI": "true",
            "GITLAB_CI": "true",
            "CI_API_V4_URL": service.address,
            "CI_COMMIT_SHA": repository.head.commit.hexsha,
            "CI_JOB_URL": "https://gitlab.test/jobs/5",
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": repository.head.commit.parents[0].hexsha,
            "CI_MERGE_REQUEST_IID": "7",
            "CI_PIPELINE_SOURCE": "merge_request_event",
            "CI_PROJECT_ID": "3",
            "PERFKIT_GITLAB_TOKEN": "secret",
        }
        script, after = (_run("\n".join(one["script"]), root, variables) for one in (job, comment))

    assert 1 == script.returncode, script.stderr
    assert 0 == after.returncode, after.stderr
    assert "made the note on merge request 7" == after.stdout.strip()
    assert {"secret"} == service.tokens
    assert [(root / "perfkit-gate.md").read_text()] == [
        text.removeprefix(f"{MARKER}\n") for text in service.comments.values()
    ]
    assert [True, True] == [(root / name).is_file() for name in job["artifacts"]["paths"]]
    install = job["before_script"][0]
    assert install.startswith("python -m pip install "), install


def test_a_job_of_gitlab_without_a_result_or_a_token_reports_it(template: Path, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    root = _cloned(template, tmp_path)
    jobs = yaml.safe_load((root / ".gitlab/perfkit.yml").read_text())
    job, comment = jobs["perfkit"], jobs["perfkit-comment"]
    with comment_service() as service:
        variables = {"CI_API_V4_URL": service.address, "CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "7"}
        gone = {**variables, "CI_MERGE_REQUEST_DIFF_BASE_SHA": "0" * 40}
        script = _run("\n".join(job["script"]), root, gone)
        forked = _run("\n".join(comment["script"]), root, variables)
        after = _run("\n".join(comment["script"]), root, {**variables, "PERFKIT_GITLAB_TOKEN": "secret"})

    assert 2 == script.returncode, script.stderr
    assert (
        "no note: PERFKIT_GITLAB_TOKEN is not set; forks never have it, and the artifact has the result"
        == (forked.stdout.strip())
    )
    assert "made the note on merge request 7" == after.stdout.strip(), after.stderr
    (note,) = service.comments.values()
    assert "## perfkit gate: NOT MEASURED" in note


def test_the_counts_of_a_push_are_kept_on_a_branch(template: Path, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    root, steps = _clone(template, tmp_path, yaml, "counts")
    variables = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}

    done = {name: _run(command, root, variables) for name, command in steps.items() if name != "Install"}
    keep = yaml.safe_load((root / ".github/workflows/perfkit.yml").read_text())["jobs"]["keep"]["steps"]
    assert keep[-2]["with"]["path"] == "benchmarks/ledger"
    done["Keep the ledger"] = _run(keep[-1]["run"], root, variables)

    assert {"Fetch the ledger": 0, "Count": 1, "Summary": 0, "Keep the ledger": 0} == {
        name: one.returncode for name, one in done.items()
    }, [one.stderr for one in done.values()]
    again = tmp_path / "again"
    git.Repo.clone_from(str(tmp_path / "hub.git"), again)
    assert "files of origin/perfkit-ledger came into" in _run(steps["Fetch the ledger"], again, {}).stdout


def test_nothing_that_may_write_runs_the_projects_code(template: Path) -> None:
    yaml = pytest.importorskip("yaml")
    root = template / "clean"
    for name in ("perfkit", "perfkit-comment"):
        workflow = yaml.safe_load((root / f".github/workflows/{name}.yml").read_text())
        for job in workflow["jobs"].values():
            rights = {**workflow["permissions"], **job.get("permissions", {})}
            steps = {step.get("name", step.get("uses")): step for step in job["steps"]}
            install = steps["Install"]["run"]
            code = {"Count", "Gate"} & steps.keys()
            assert not ("write" in rights.values() and code)
            assert install.count('"${PERFKIT:?') == 1
            assert not {"perfkit", "-U", "--upgrade"} & {*install.split('"')[0].split()}
            if not code:
                assert install.startswith("python -m pip install --no-deps ")
                assert all("==" in word for word in install.split('"')[-1].split())
            behind = [*steps].index("Install")
            for step in [*steps.values()][behind:]:
                assert "always()" not in step.get("if", "")
                assert "if" not in step or "steps.install.outcome == 'success'" in step["if"]
            assert all(
                re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"]) for step in job["steps"] if "uses" in step
            )
    jobs = yaml.safe_load((root / ".gitlab/perfkit.yml").read_text())
    assert {"perfkit-comment"} == {name for name, job in jobs.items() if "environment" in job}
    assert "gate" not in "".join(jobs["perfkit-comment"]["before_script"])


SHA = "0123456789" * 4


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, None),
        (
            {"url": "https://h.test/p", "vcs_info": {"commit_id": SHA}},
            f"perfkit @ git+https://h.test/p@{SHA}",
        ),
        ({"url": "https://me:secret@h.test/p", "vcs_info": {"commit_id": SHA}}, None),
        ({"url": "file:///p", "vcs_info": {"commit_id": SHA}}, None),
        (
            {"url": "https://h.test/p.whl", "archive_info": {"hashes": {"sha256": "ab"}}},
            "perfkit @ https://h.test/p.whl#sha256=ab",
        ),
        ({"url": "https://h.test/p.whl", "archive_info": {}}, None),
        ({"url": "file:///p.whl", "archive_info": {"hashes": {"sha256": "ab"}}}, None),
        ({"url": "file:///nowhere", "dir_info": {"editable": True}}, None),
    ],
)
def test_perfkit_is_pinned_to_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None, expected: str | None
) -> None:
    class Installed:
        """What pip wrote when it installed perfkit."""

        def read_text(self, _: str) -> str | None:
            """Return where it came from."""
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr("importlib.metadata.distribution", lambda _: Installed())

    assert expected == files.requirement()


def test_without_a_source_the_job_ends_at_install(template: Path) -> None:
    yaml = pytest.importorskip("yaml")
    root = template / "clean"
    jobs = yaml.safe_load((root / ".github/workflows/perfkit.yml").read_text())["jobs"]
    install = next(step["run"] for step in jobs["gate"]["steps"] if step.get("name") == "Install")

    ended = _run(install, root, {"PERFKIT": ""})

    assert ended.returncode
    assert "PERFKIT: set what pip installs perfkit from" in ended.stderr


def _counted_base(step: str, root: Path, before: str) -> str:
    """Return the commit that the job of a push compares with; a stub stands for the gate."""
    stub = root.parent / "stub"
    stub.mkdir(exist_ok=True)
    (stub / "perfkit").write_text('#!/bin/sh\ngit rev-parse "$3"\n')
    (stub / "perfkit").chmod(0o755)
    done = _run(f'PATH="{stub}:$PATH"\n{step}', root, {"BEFORE": before, "MAIN": "main"})
    assert 0 == done.returncode, done.stderr
    return done.stdout


def test_all_commits_of_a_push_are_counted(template: Path, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    root, steps = _clone(template, tmp_path, yaml, "counts")
    clone = git.Repo(root)
    left_main, first = clone.commit("HEAD~1").hexsha, clone.head.commit.hexsha
    for number in range(4):
        (root / "more.py").write_text(f"N = {number}\n")
        clone.git.add("--all")
        clone.index.commit(f"Change {number}")

    assert f"{first}\n" == _counted_base(steps["Count"], root, first)
    assert f"{left_main}\n" == _counted_base(steps["Count"], root, "0" * 40)

    # The rewritten branch has the first commit still, and the commits after it are gone from this clone.
    old = clone.head.commit.hexsha
    clone.git.push("origin", f"{old}:refs/heads/old")
    clone.git.reset("--hard", "HEAD~2")
    (root / "more.py").write_text("N = 9\n")
    clone.git.commit("--all", "--message", "Another way")
    again = tmp_path / "again"
    clone.git.push("--force", "origin", "HEAD:topic")
    git.Repo.clone_from(str(tmp_path / "hub.git"), again, branch="topic", single_branch=True)
    assert f"{clone.commit('HEAD~1').hexsha}\n" == _counted_base(steps["Count"], again, old)


def test_a_push_of_unknown_beginning_counts_its_last_commit_and_reports_it(
    template: Path, tmp_path: Path
) -> None:
    yaml = pytest.importorskip("yaml")
    root, steps = _clone(template, tmp_path, yaml, "counts")
    clone = git.Repo(root)
    clone.git.update_ref("refs/remotes/origin/main", "HEAD")

    shown = _counted_base(steps["Count"], root, "0" * 40)

    assert shown.startswith("::warning::")
    assert shown.endswith(f"\n{clone.commit('HEAD~1').hexsha}\n")


def test_the_hook_counts_before_a_commit(project: GitProject) -> None:
    yaml = pytest.importorskip("yaml")
    assert 0 == perfkit(project.root, "init", "--yes", "--ci", "pre-commit").returncode
    project.commit({"work.py": work(steady=10) + LESS_COUNTED})
    hooks = yaml.safe_load((project.root / ".pre-commit-config.yaml").read_text())["repos"][-1]["hooks"]
    (project.root / "work.py").write_text(work(steady=10) + COUNTED)

    done = _run(hooks[0]["entry"], project.root, {})

    assert 1 == done.returncode, done.stderr
    assert "M work.py" == project.repository.git.git.status("--porcelain").strip()


def test_without_a_result_the_summary_reports_it(project: GitProject, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"

    done = perfkit(
        project.root,
        *("comment", "--from", "none.json", "--github-summary"),
        GITHUB_STEP_SUMMARY=str(summary),
    )

    assert 0 == done.returncode, done.stderr
    assert summary.read_text().startswith("## perfkit gate: NOT MEASURED\n")
    assert "is not known" in summary.read_text()


def test_a_comment_needs_few_libraries(project: GitProject) -> None:
    assert ("msgspec", "rich", "typer") == files._FOR_COMMENT
    code = (
        "import sys\n"
        "absent = 'torch numpy pandas scipy duckdb pyarrow git psutil jinja2 pytest snakeviz'.split()\n"
        "class Refused:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in absent: raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refused())\n"
        "sys.argv = ['perfkit', 'comment', '--from', 'none.json', '--gitlab']\n"
        "from perfkit.cli import main\n"
        "main()\n"
    )
    done = run(
        [sys.executable, "-c", code],
        cwd=project.root,
        env={**os.environ, "CI_API_V4_URL": "http://127.0.0.1:1", "CI_PROJECT_ID": "1"},
    )

    assert "no note: this job belongs to no merge request" == done.stdout.strip(), done.stderr


def test_a_changed_lock_file_is_gated_between_both_of_its_versions(template: Path, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    root, steps = _clone(template, tmp_path, yaml, "gate")
    clone, stub = git.Repo(root), tmp_path / "stub"
    for version in ("1.0", "2.0"):
        (root / "requirements-dev.txt").write_text(f"thing=={version}\n")
        clone.git.add("--all")
        clone.index.commit(f"Pin {version}")
    stub.mkdir()
    (stub / "perfkit").write_text('#!/bin/sh\necho "$@"\ncat "$6" "$8"\n')
    (stub / "perfkit").chmod(0o755)
    gitlab = yaml.safe_load((root / ".gitlab/perfkit.yml").read_text())["perfkit"]["script"]
    variables = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": "HEAD~1"}

    for step, base in ((steps["Gate"], "HEAD^1"), ("\n".join(gitlab), "HEAD~1")):
        done = _run(f'set -e; PATH="{stub}:$PATH"\n{step}', root, variables)
        called, *pinned = done.stdout.splitlines()
        assert called.startswith(f"gate --strict --base {base} --base-with /"), done.stderr
        assert "/requirements-dev.txt --head-with requirements-dev.txt --json" in called
        assert ["thing==1.0", "thing==2.0"] == pinned


def _clone(template: Path, place: Path, yaml: Any, job: str) -> tuple[Path, dict[str, str]]:  # noqa: ANN401
    root = _cloned(template, place)
    workflow = yaml.safe_load((root / ".github/workflows/perfkit.yml").read_text())
    steps = workflow["jobs"][job]["steps"]
    return root, {step["name"]: step["run"] for step in steps if "run" in step}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a clean clone, with a slower commit on a branch and the files of all services."""
    place = tmp_path_factory.mktemp("template")
    project = git_project(place, FILES)
    project.commit({"pyproject.toml": COUNTING, "work.py": work(steady=10) + LESS_COUNTED})
    assert 0 == perfkit(project.root, "init", "--yes", *ALL).returncode
    project.commit({}, "Begin to measure")
    hub = place / "hub.git"
    project.repository.git.clone(hub, bare=True)
    project.commit({"work.py": work(steady=10) + COUNTED}, "Slow it down")
    project.repository.git.git.push(str(hub), "HEAD:topic")
    git.Repo.clone_from(str(hub), place / "clean", branch="topic")
    return place


def _cloned(template: Path, place: Path) -> Path:
    for name in ("hub.git", "clean"):
        shutil.copytree(template / name, place / name)
    git.Repo(place / "clean").remote().set_url(str(place / "hub.git"))
    return place / "clean"


def _run(command: str, root: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(PERFKIT.parent), os.environ["PATH"]))
    return run(["bash", "-e", "-c", command], cwd=root, env={**os.environ, "PATH": path, **variables})


@pytest.mark.parametrize("key", [b"\x03", b"\x04"])
def test_a_question_that_is_broken_off_ends_as_an_interruption(project: GitProject, key: bytes) -> None:
    ours, theirs = os.openpty()
    before = sorted(project.root.iterdir())
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, PERFKIT, "init"],
        cwd=project.root, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    output = b""
    while b"[y/N]" not in output:
        output += os.read(ours, 1 << 12)
    # The line editor that reads the answer forgets a key that comes before it has begun.
    with contextlib.suppress(OSError):
        while process.poll() is None:
            os.write(ours, key)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)

    assert 130 == process.wait()
    assert before == sorted(project.root.iterdir())
    os.close(ours)
