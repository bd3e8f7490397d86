"""`perfkit gate` on wrong input, or interrupted, ends with one line and a code, and leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

import git
import psutil
import pytest
from forked_commands import run_perfkit
from gating import CONFIGURATION, GitProject, Project, benchmark, git_project, work
from repositories import create_repository
from synthetic import build_row

from perfkit.ledger.store import Ledger

FILES = {"work.py": work(steady=10), "tests/test_speed.py": "import work\n" + benchmark("a", "work.steady")}
_WAIT_S = 60


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> GitProject:
    """Return a repository with a benchmark and two commits, and a run in its ledger that is no gate."""
    made = git_project(tmp_path_factory.mktemp("mistakes"), FILES)
    made.commit({"work.py": work(steady=20)})
    Ledger(made.ledger).append([build_row(0.5, run="0199-aaaa")])
    return made


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--base", "nowhere"), 'unknown commit "nowhere"'),
        (("--head", "nowhere"), 'unknown commit "nowhere"'),
        (("--base=--all",), '"--all" is not a commit; a ref cannot begin with a dash'),
        (("--base", "HEAD"), "base and head are one commit"),
        (("--margin", "wide"), '--margin must be a percentage above zero such as "2%", found "wide"'),
        (("--margin", "0%"), '--margin must be a percentage above zero such as "2%", found "0%"'),
        (("--alpha", "0"), "--alpha must lie between 0 and 1, found 0"),
        (("--alpha", "1"), "--alpha must lie between 0 and 1, found 1"),
        (("--alpha", "nan"), "--alpha must lie between 0 and 1, found nan"),
        (("--budget", "0"), "--budget must be above zero seconds, found 0"),
        (("--budget", "nan"), "--budget must be above zero seconds, found nan"),
        (("--fail-on", "any"), '--fail-on must be "margin" or "proven", found "any"'),
        (("--inconclusive", "go"), '--inconclusive must be "fail", "pass" or "go on", found "go"'),
        (("--budget", "20s"), "Invalid value for '--budget': expected a number of seconds"),
        (("--benchmarks", "nowhere"), "--benchmarks nowhere: neither side has such a file or folder"),
        (("--benchmarks", "work.py"), "no benchmark was found"),
        (("--select", "nothing"), "no benchmark was found"),
        (("--select", "and and"), '--select is not what pytest\'s -k reads: "and and": '),
        (("--repo", "nowhere"), "--repo nowhere is not a folder"),
        (("--from-ledger", "0199"), "--from-ledger is a command now: `perfkit ledger judge 0199`"),
        (("--ledger", "work.py"), "work.py"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    project: GitProject, arguments: tuple[str, ...], expected: str
) -> None:
    gated = project.gate(*arguments)

    assert 2 == gated.exit_code, gated.stderr
    assert expected in gated.stderr
    assert "Traceback" not in gated.stderr
    assert 1 == len(project.worktrees())


@pytest.mark.parametrize(
    ("run", "expected"),
    [("zzzz", 'no run "zzzz"'), ("0199-aaaa", 'run "0199-aaaa" is a pytest, not a gate')],
)
def test_only_a_kept_gate_is_judged_anew(project: GitProject, run: str, expected: str) -> None:
    judged = project.judge(run)

    assert 2 == judged.exit_code
    assert expected in judged.stderr


@pytest.mark.parametrize("destination", ["--markdown", "--json"])
def test_a_place_that_cannot_be_written_is_told(project: GitProject, destination: str) -> None:
    ledger = ["--ledger", str(project.ledger)]
    command = ["gate", *ledger, "--budget", "0.01", destination, "/nowhere/out"]

    done = run_perfkit(*command, cwd=project.root, env=project.environment())

    assert 2 == done.returncode
    assert "cannot write /nowhere/out" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("head", [("--head", "HEAD"), ()])
def test_benchmarks_that_are_not_committed_are_told_of(tmp_path: Path, head: tuple[str, ...]) -> None:
    project = git_project(tmp_path, FILES)
    project.commit({"work.py": work(steady=20)})
    (project.root / "extra").mkdir()
    (project.root / "extra/test_more.py").write_text("import work\n" + benchmark("more", "work.steady"))

    gated = project.gate("--benchmarks", "extra", "--budget", "0.01", *head)

    if head:
        assert 2 == gated.exit_code
        assert (
            "your working tree has it, uncommitted: commit it, or compare with --head worktree"
            in gated.stderr
        )
    else:
        assert {"test_more": "NOT REACHED"} == gated.verdicts


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"pyproject.toml": CONFIGURATION + '[tool.perfkit.targets]\ntrain = "gone.py"\n'},
            "there is no script",
        ),
        ({"ledger/acceptances/one.json": "{"}, "is not a readable acceptance"),
    ],
    ids=["a target's script", "an acceptance"],
)
def test_what_would_fail_at_the_end_is_refused_before_anything_is_measured(
    tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    project = git_project(tmp_path, {**FILES, **files})
    project.commit({"work.py": work(steady=20)})

    gated = project.gate("--ledger", "ledger")

    assert (2, "") == (gated.exit_code, gated.stdout)
    assert expected in gated.stderr
    assert "collecting" not in gated.stderr


def test_a_configuration_mistake_is_named(tmp_path: Path) -> None:
    made = git_project(tmp_path, {**FILES, "pyproject.toml": "[tool.perfkit.gate]\nalfa = 0.1\n"})

    gated = made.gate()

    assert 2 == gated.exit_code
    assert 'unknown key "tool.perfkit.gate.alfa"; did you mean "alpha"?' in gated.stderr


def test_a_marker_that_is_not_understood_is_named(tmp_path: Path) -> None:
    tests = "import pytest, work\n" + benchmark("a", "work.steady", "perfkit(margn='5%')")
    made = git_project(tmp_path, {**FILES, "tests/test_speed.py": tests})
    made.commit({"work.py": work(steady=20)})

    gated = made.gate()

    assert 2 == gated.exit_code
    assert "tests/test_speed.py::test_a: the marker perfkit(margn=5%) is not understood" in gated.stderr


def test_a_folder_that_is_no_repository_is_told(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()

    gated = Project(root=tmp_path / "plain").gate()

    assert 2 == gated.exit_code
    assert "or name two existing directories with --base and --head" in gated.stderr


def test_a_repository_without_a_second_commit_is_told(tmp_path: Path) -> None:
    gated = git_project(tmp_path, FILES).gate()

    assert 2 == gated.exit_code
    assert "has no parent to compare with; name one with --base" in gated.stderr


def test_a_shallow_clone_is_told_how_to_get_its_base(project: GitProject, tmp_path: Path) -> None:
    root = tmp_path / "clone"
    git.Repo.clone_from(f"file://{project.root}", root, depth=1)
    clone = Project(root=root)

    missing, unknown = clone.gate(), clone.gate("--base", project.repository.git.commit("HEAD~1").hexsha)

    assert [2, 2] == [missing.exit_code, unknown.exit_code]
    assert ["git fetch --unshallow" in gated.stderr for gated in (missing, unknown)] == [True, True]


def test_a_repository_without_commits_is_told(tmp_path: Path) -> None:
    root = tmp_path / "empty"
    root.mkdir()
    create_repository(root)

    gated = Project(root=root).gate()

    assert 2 == gated.exit_code
    assert "Traceback" not in gated.stderr


def test_collecting_that_breaks_pytest_is_exit_code_4(tmp_path: Path) -> None:
    made = git_project(tmp_path, FILES)
    made.commit({"conftest.py": "import nowhere\n"})

    gated = made.gate()

    assert 4 == gated.exit_code
    assert "collect the benchmarks of head: ModuleNotFoundError: No module named 'nowhere'" in gated.stderr
    assert "pip install nowhere" in gated.stderr
    assert "Traceback" not in gated.stderr


# The benchmark tells when its n-th launch runs, and is still running when the signal comes.
WAITING = """
import os, threading
from pathlib import Path

def test_waits(benchmark, tmp_path):
    counted = Path(os.environ["COUNTED"])
    with counted.open("a") as file:
        file.write(".")
    if counted.stat().st_size > int(os.environ["LAUNCHES"]):
        with open(os.environ["PIPE"], "w") as pipe:
            pipe.write("now")
        threading.Event().wait()
    benchmark.pedantic(sum, args=([1],), rounds=2, iterations=5)
"""
SIDES = 2


def _interrupt(
    project: GitProject, number: signal.Signals, *arguments: str, after: int
) -> subprocess.CompletedProcess[str]:
    """Send a gate a signal in the launch that follows so many; return how it ended, no process left."""
    pipe = project.root.with_name("pipe")
    os.mkfifo(pipe)
    counted = {"COUNTED": str(project.root.with_name("counted")), "LAUNCHES": str(SIDES * after)}
    process = subprocess.Popen(
        project.command("--budget", "60", *arguments),
        cwd=project.root,
        env=project.environment({**counted, "PIPE": str(pipe)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)) as reading:
        assert select.select([reading], [], [], _WAIT_S)[0], "no launch was reached"
        # The other side may be about to write as well, and would fail without a reader.
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
    stdout, stderr = process.communicate(timeout=_WAIT_S)
    _, alive = psutil.wait_procs(children, timeout=_WAIT_S)
    assert children
    assert [] == alive
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@pytest.fixture
def waiting(tmp_path: Path) -> GitProject:
    """Return a project whose benchmark waits in a launch, and two commits of it."""
    made = git_project(tmp_path, {"pyproject.toml": CONFIGURATION, "tests/test_waits.py": WAITING})
    made.commit({"unused.txt": ""})
    return made


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT])
def test_an_interrupted_gate_keeps_its_launches(waiting: GitProject, number: signal.Signals) -> None:
    done = _interrupt(waiting, number, after=2)

    rows = Ledger(waiting.ledger).rows()
    assert 130 == done.returncode, done.stderr
    assert f"interrupted; its launches so far are in {waiting.ledger}" in done.stderr
    assert [("base", 0), ("base", 1), ("head", 0), ("head", 1)] == sorted(
        (str(row.placement.side), row.placement.launch) for row in rows
    )
    assert "Traceback" not in done.stderr
    assert set() == waiting.left_behind()
    assert 1 == len(waiting.worktrees())


def test_an_interruption_before_the_first_launch_says_so(waiting: GitProject) -> None:
    done = _interrupt(waiting, signal.SIGINT, after=0)

    assert 130 == done.returncode
    assert "interrupted; no launch was complete" in done.stderr
    assert [] == list(waiting.ledger.glob("*.parquet"))
    assert set() == waiting.left_behind()
    assert 1 == len(waiting.worktrees())


def test_the_first_result_is_told_where_the_second_is_interrupted(waiting: GitProject) -> None:
    waiting.repository.git.create_tag("v1", "HEAD~1")
    waiting.commit({"unused.txt": "more"})

    done = _interrupt(waiting, signal.SIGINT, "--budget", "0.01", "--against", "v1", after=1)

    assert 130 == done.returncode, done.stderr
    assert "UNDECIDED: " in done.stdout
    assert "perfkit: against v1: interrupted; no launch was complete" in done.stderr
    assert set() == waiting.left_behind()


def test_an_interrupted_gate_is_continued(waiting: GitProject) -> None:
    _interrupt(waiting, signal.SIGINT, after=2)
    again = {"COUNTED": str(waiting.root.with_name("anew")), "LAUNCHES": "1000", "PIPE": ""}

    gated = waiting.gate("--budget", "60", extra=again)

    assert "continues the test of earlier gates on this pair" in gated.notes
    launches = gated.comparisons["test_waits"]["estimate"]["launches"]
    assert launches <= 2 + len(Ledger(waiting.ledger).rows_of(gated.run_id)) // SIDES
