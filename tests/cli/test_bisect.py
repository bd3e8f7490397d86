"""`perfkit bisect` finds the commit that changed a benchmark, here and by workers of a real cluster."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster import cluster
from forked_commands import run_perfkit
from gating import PERFKIT, GitProject, benchmark, git_project, work
from synthetic import build_row

from perfkit.ledger.store import Ledger
from perfkit.model.policies import BisectPolicy

BENCHMARK = "import work\n" + benchmark("steady", "work.steady")
# It hangs in its third launch on both sides.
LAUNCHED = 4
WAITS = f"""
import os, time
import work

def test_waits(benchmark):
    if "COUNTED" in os.environ:
        with open(os.environ["COUNTED"], "a") as file:
            file.write(".")
        if os.path.getsize(os.environ["COUNTED"]) > {LAUNCHED}:
            time.sleep(600)
    benchmark.pedantic(work.steady, rounds=5, iterations=20)
"""
CALLEE = "\ndef callee():\n    pass\n"
CALLS = "\ndef helper():\n    pass\n"


@dataclass(frozen=True, kw_only=True)
class Bisected:
    """What a bisection left: its exit code, its messages, and its JSON (empty where it wrote none)."""

    exit_code: int
    stderr: str
    report: dict[str, Any]

    @property
    def suspects(self) -> list[list[str]]:
        """The commits that may have made each step."""
        return [[one["commit"]["sha"] for one in step["suspects"]] for step in self.report["steps"]]


def _command(project: GitProject, *arguments: str) -> list[str]:
    return [str(PERFKIT), "bisect", "--ledger", str(project.ledger), *arguments]


def _bisect(project: GitProject, *arguments: str) -> Bisected:
    _, *command = _command(project, "--json", "-", *arguments)
    done = run_perfkit(*command, cwd=project.root, env=project.environment())
    assert set() == project.left_behind()
    assert len(project.worktrees()) == 1
    report = json.loads(done.stdout) if done.stdout else {}
    return Bisected(exit_code=done.returncode, stderr=done.stderr, report=report)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A project whose third commit made a benchmark three times slower, and its commits in their order."""

    project: GitProject
    shas: tuple[str, ...]


@pytest.fixture(scope="module")
def slowed(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Return a project of six commits after the first, which needs no library to be measured."""
    project = git_project(
        tmp_path_factory.mktemp("slowed"),
        {"tests/test_speed.py": BENCHMARK, "tests/test_waits.py": WAITS, "work.py": work(steady=10)},
    )
    shas = [project.repository.git.head.commit.hexsha]
    doses = (10, 10, 30, 30, 30, 30)
    for number, dose in enumerate(doses):
        text = work(steady=dose, other=number) + (CALLS if number > 1 else "")
        shas.append(project.commit({"work.py": text}, f"Change {number + 1}"))
    return Scene(project=project, shas=tuple(shas))


def test_a_slower_commit_is_found(slowed: Scene, tmp_path: Path) -> None:
    place = tmp_path / "found.md"

    found = _bisect(
        slowed.project,
        "HEAD~6",
        "HEAD",
        "--benchmark",
        "test_steady",
        "--markdown",
        str(place),
        "--budget",
        "240",
    )

    assert 0 == found.exit_code, found.stderr
    assert ("found", 1) == (found.report["answer"], found.report["schema_version"])
    assert [slowed.shas[3]] == found.suspects[0]
    (step, *_) = found.report["steps"]
    assert step["low"] < step["ratio"] < step["high"]
    assert 1.5 < step["ratio"]
    assert step["before"]["mean"] < step["after"]["mean"]
    assert "work.py" in json.dumps(step["explanation"])
    assert f"{slowed.shas[3][:10]} made test_steady" in place.read_text()
    assert "measuring" in found.stderr


def test_a_spent_budget_leaves_it_undecided(slowed: Scene, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"

    found = _bisect(
        slowed.project,
        *("HEAD~6", "HEAD", "--benchmark", "test_steady", "--budget", "0.01", "--ledger", str(ledger)),
    )

    assert (3, "undecided") == (found.exit_code, found.report["answer"]), found.stderr
    assert found.report["launches"] > 0
    # Of these commits only one changes what the benchmark runs.
    assert slowed.shas[3] == found.report["left"]["bad"]["sha"]
    rows = Ledger(ledger).rows()
    assert {"bisect"} == {row.source for row in rows}
    assert {slowed.shas[0], slowed.shas[6]} == {row.commit.sha for row in rows}
    policies = [row.policy for row in rows if isinstance(row.policy, BisectPolicy)]
    assert len(rows) == len(policies)
    assert {(slowed.shas[0], slowed.shas[6])} == {(one.good, one.bad) for one in policies}


def test_a_commit_without_a_counter_can_be_timed(slowed: Scene, tmp_path: Path) -> None:
    question = ("HEAD~4", "HEAD", "--benchmark", "test_steady", "--ledger", str(tmp_path / "ledger"))

    counted = _bisect(slowed.project, *question, "--metric", "operators")
    timed = _bisect(slowed.project, *question, "--budget", "0.01")

    assert 4 == counted.exit_code
    assert "torch is not used" in counted.stderr
    assert [] == timed.report["skipped"]
    metrics = {row.outcome.metric.name for row in Ledger(tmp_path / "ledger").rows() if row.outcome.message}
    assert "operators" in metrics
    assert "time" not in metrics


def test_a_stopped_bisection_keeps_its_launches_and_is_gone_on_with(slowed: Scene, tmp_path: Path) -> None:
    ledger, counted = tmp_path / "ledger", tmp_path / "counted"
    question = ("HEAD~3", "HEAD", "--benchmark", "test_waits", "--ledger", str(ledger))
    with subprocess.Popen(
        _command(slowed.project, *question),
        cwd=slowed.project.root,
        env=slowed.project.environment({"COUNTED": str(counted)}),
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        while not counted.exists() or counted.stat().st_size <= LAUNCHED:
            assert running.poll() is None, running.communicate()
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, message = running.communicate()

    again = _bisect(slowed.project, *question, "--budget", "0.01")

    assert 130 == running.returncode
    assert "the same command goes on" in message
    assert again.report["earlier"] > 0


def test_equal_ends_are_no_change(slowed: Scene) -> None:
    found = _bisect(
        slowed.project, "HEAD~2", "HEAD", "--benchmark", "test_steady", "--metric", "python_calls"
    )

    assert (0, "no change", []) == (found.exit_code, found.report["answer"], found.report["steps"])
    assert 2 == found.report["measured"]


def test_a_point_of_the_history_is_bisected(slowed: Scene, tmp_path: Path) -> None:
    project, ledger = slowed.project, tmp_path / "ledger"
    name = "tests/test_speed.py::test_steady"
    for run in range(28):
        level = (1.0 if run < 12 else 3.0) + 0.001 * (run % 3)
        row = build_row(level, level, name=name, sha=slowed.shas[run // 4], run=f"run-{run}", minute=90 * run)
        Ledger(ledger).append([row])
    shown = run_perfkit(
        "history", "show", "--ledger", str(ledger), "--json", "-", cwd=project.root, check=True
    )
    (point,) = json.loads(shown.stdout)["points"]

    found = _bisect(
        project, "--from-history", point["point_id"][:6], "--budget", "0.01", "--ledger", str(ledger)
    )

    assert 3 == found.exit_code, found.stderr
    assert slowed.shas[2:4] == (found.report["good"]["sha"], found.report["bad"]["sha"])
    assert name == found.report["benchmark"]["name"]


def test_a_benchmark_of_the_working_tree_is_laid_over_all_commits(tmp_path: Path) -> None:
    project = git_project(tmp_path, {"work.py": work(steady=10)})
    called = work(steady=10).replace("return spin", "return callee() or spin") + CALLEE
    shas = [project.commit({"work.py": called if number else work(steady=10)}) for number in range(3)]
    file = project.root / "tests/test_new.py"
    file.parent.mkdir()
    file.write_text(BENCHMARK)

    found = _bisect(project, "HEAD~3", "HEAD", "--benchmark", "test_steady", "--metric", "python_calls")

    assert 0 == found.exit_code, found.stderr
    assert [[shas[1]]] == found.suspects
    assert "working tree" in " ".join(found.report["notes"])


def test_a_range_in_which_nothing_imports_cannot_be_measured(tmp_path: Path) -> None:
    project = git_project(tmp_path, {"tests/test_speed.py": BENCHMARK, "work.py": "import nowhere\n"})
    for number in range(3):
        project.commit({"README.md": str(number)})

    found = _bisect(project, "HEAD~3", "HEAD", "--benchmark", "test_steady")

    assert 4 == found.exit_code
    assert "No module named 'nowhere'" in found.stderr.splitlines()[-1]
    assert {"skipped"} == {row.outcome.status for row in Ledger(project.ledger).rows()}


# The one commit does not import; the other calls one function more, and takes three times as long.
BROKEN, CHANGED = 3, 4


def _bisect_by(scene: Scene, url: str, *arguments: str, ledger: Path) -> Bisected:
    question = ("HEAD~6", "HEAD", "--benchmark", "test_steady", "--engine", url)
    return _bisect(scene.project, *question, *arguments, "--ledger", str(ledger))


def _module(number: int) -> str:
    """Return the module of a commit."""
    dose = 30 if number >= CHANGED else 10
    text = work(steady=dose, other=number) + "\ndef callee():\n    pass\n"
    if number >= CHANGED:
        text = text.replace(f"return spin({dose})", f"return callee() or spin({dose})")
    return "import nowhere\n" if number == BROKEN else text


@pytest.fixture(scope="module")
def partly_broken(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Return a project whose fourth commit changed a benchmark, and whose third one does not import."""
    files = {"tests/test_speed.py": BENCHMARK, "work.py": _module(0)}
    project = git_project(tmp_path_factory.mktemp("scene"), files)
    shas = [project.repository.git.head.commit.hexsha]
    shas += [project.commit({"work.py": _module(number)}, f"Change {number}") for number in range(1, 7)]
    return Scene(project=project, shas=tuple(shas))


def test_commits_that_do_not_import_are_skipped_and_reported(partly_broken: Scene) -> None:
    question = ("HEAD~6", "HEAD", "--benchmark", "test_steady", "--metric", "python_calls")

    found = _bisect(partly_broken.project, *question)

    assert 0 == found.exit_code, found.stderr
    assert [[*partly_broken.shas[BROKEN : CHANGED + 1]]] == found.suspects
    (skipped,) = found.report["skipped"]
    assert partly_broken.shas[BROKEN] == skipped["commit"]["sha"]
    assert "No module named 'nowhere'" in skipped["reason"]
    (step,) = found.report["steps"]
    assert 1 == step["after"]["mean"] - step["before"]["mean"]
    assert "callee" == step["counted"]["causes"][0]["what"]


@pytest.mark.slow
def test_a_commit_is_found_by_time_though_a_worker_is_killed(partly_broken: Scene, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    ledger = tmp_path / "ledger"
    with cluster(tmp_path / "cluster", workers=2) as made:
        made.wait_for_workers(2)
        killer = threading.Thread(target=made.kill_worker_at_work)
        killer.start()
        found = _bisect_by(partly_broken, made.url, "--budget", "240", ledger=ledger)
        killer.join()
        measured = Ledger(ledger).runs()
        again = _bisect_by(partly_broken, made.url, "--budget", "0.01", ledger=ledger)

    assert 0 == found.exit_code, found.stderr
    assert "is lost; its task is done anew" in found.stderr
    assert partly_broken.shas[CHANGED] == found.suspects[0][-1]
    assert "profiling" not in found.stderr
    (step, *_) = found.report["steps"]
    assert step["low"] < step["ratio"] < step["high"]
    assert 1.5 < step["ratio"]
    assert step["before"]["mean"] < step["after"]["mean"]
    assert sorted(found.report["runs"]) == sorted(run.run_id for run in measured)
    assert len(set(found.report["runs"])) == len(found.report["runs"])
    launches = Counter(
        (row.run_id, row.commit.sha, row.placement.launch, row.outcome.metric.name)
        for row in Ledger(ledger).rows()
    )
    assert {1} == set(launches.values())
    assert again.report["earlier"] >= found.report["launches"]
    assert not set(found.report["runs"]).intersection(again.report["runs"])
