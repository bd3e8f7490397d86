"""`perfkit gate` on wrong input, or interrupted, ends with one line and a code, and leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from gating import CONFIGURATION, GitProject, benchmark, git_project, work
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


def test_only_a_kept_gate_is_judged_anew(project: GitProject) -> None:
    judged = project.judge("0199-aaaa")

    assert 2 == judged.exit_code
    assert 'run "0199-aaaa" is of pytest, not a gate' in judged.stderr


def test_benchmarks_that_are_not_committed_are_reported(tmp_path: Path) -> None:
    project = git_project(tmp_path, FILES)
    project.commit({"work.py": work(steady=20)})
    (project.root / "extra").mkdir()
    (project.root / "extra/test_more.py").write_text("import work\n" + benchmark("more", "work.steady"))

    refused = project.gate("--benchmarks", "extra", "--head", "HEAD")
    gated = project.gate("--benchmarks", "extra", "--budget", "0.01")

    assert 2 == refused.exit_code
    assert (
        "your working tree has it, uncommitted: commit it, or compare with --head worktree" in refused.stderr
    )
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


def test_a_marker_that_is_not_understood_is_named(tmp_path: Path) -> None:
    tests = "import pytest, work\n" + benchmark("a", "work.steady", "perfkit(margn='5%')")
    made = git_project(tmp_path, {**FILES, "tests/test_speed.py": tests})
    made.commit({"work.py": work(steady=20)})

    gated = made.gate()

    assert 2 == gated.exit_code
    assert "tests/test_speed.py::test_a: the marker perfkit(margn=5%) is not understood" in gated.stderr


# The benchmark signals when its n-th launch runs, and is still running when the signal comes.
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


def test_an_interrupted_gate_keeps_its_launches_and_is_continued(waiting: GitProject) -> None:
    done = _interrupt(waiting, signal.SIGTERM, after=2)

    rows = Ledger(waiting.ledger).rows()
    assert 130 == done.returncode, done.stderr
    assert f"interrupted; its launches so far are in {waiting.ledger}" in done.stderr
    assert [("base", 0), ("base", 1), ("head", 0), ("head", 1)] == sorted(
        (str(row.placement.side), row.placement.launch) for row in rows
    )
    assert "Traceback" not in done.stderr
    assert set() == waiting.left_behind()
    assert 1 == len(waiting.worktrees())
    again = {"COUNTED": str(waiting.root.with_name("anew")), "LAUNCHES": "1000", "PIPE": ""}

    gated = waiting.gate("--budget", "60", extra=again)

    assert "continues earlier gates of the same two commits" in gated.notes
    launches = gated.comparisons["test_waits"]["estimate"]["launches"]
    assert launches <= 2 + len(Ledger(waiting.ledger).rows_of(gated.run_id)) // SIDES


def test_a_killed_gate_loses_no_launch_and_leaves_nothing(waiting: GitProject) -> None:
    done = _interrupt(waiting, signal.SIGKILL, after=2)
    again = {"COUNTED": str(waiting.root.with_name("anew")), "LAUNCHES": "1000", "PIPE": ""}

    gated = waiting.gate("--budget", "0.01", extra=again)

    assert -signal.SIGKILL == done.returncode
    assert "4 rows are recovered in" in " ".join(gated.stderr.split()), gated.stderr
    assert "swept up after perfkit gate" in gated.stderr
    assert 4 == sum(row.partial for row in Ledger(waiting.ledger).rows())
    assert 1 == len(waiting.worktrees())


def test_an_interruption_before_the_first_launch_is_reported(waiting: GitProject) -> None:
    done = _interrupt(waiting, signal.SIGINT, after=0)

    assert 130 == done.returncode
    assert "interrupted; no launch was complete" in done.stderr
    assert [] == list(waiting.ledger.glob("*.parquet"))
    assert set() == waiting.left_behind()
    assert 1 == len(waiting.worktrees())


def test_the_first_result_is_shown_where_the_second_is_interrupted(waiting: GitProject) -> None:
    waiting.repository.git.create_tag("v1", "HEAD~1")
    waiting.commit({"unused.txt": "more"})

    done = _interrupt(waiting, signal.SIGINT, "--budget", "0.01", "--against", "v1", after=2)

    assert 130 == done.returncode, done.stderr
    assert "UNDECIDED: " in done.stdout
    assert "perfkit: against v1: interrupted; no launch was complete" in done.stderr
    assert set() == waiting.left_behind()
