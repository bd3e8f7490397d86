"""`perfkit bisect --engine` finds the commit by pairs that workers of a real cluster measure."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, cluster
from forked_commands import run_perfkit
from gating import GitProject, benchmark, git_project, work

from perfkit.ledger.store import Ledger
from perfkit.model.policies import BisectPolicy

pytest.importorskip("distributed", reason="the extra `engine` is not installed")
pytestmark = pytest.mark.alone

BENCHMARK = "import work\n" + benchmark("steady", "work.steady")
# The commit at this place calls one function more, and takes three times as long.
CHANGED = 4


@dataclass(frozen=True, kw_only=True)
class Bisected:
    """What a bisection left: its exit code, what it said, and its JSON (empty where it wrote none)."""

    exit_code: int
    stderr: str
    report: dict[str, Any]

    @property
    def suspects(self) -> list[list[str]]:
        """The commits that may have made each step."""
        return [[one["commit"]["sha"] for one in step["suspects"]] for step in self.report["steps"]]


def _bisect(project: GitProject, url: str, *arguments: str, ledger: Path) -> Bisected:
    question = ("HEAD~6", "HEAD", "--benchmark", "test_steady", "--json", "-", "--ledger", str(ledger))
    done = run_perfkit(
        "bisect", *question, "--engine", url, *arguments, cwd=project.root, env=project.environment()
    )
    assert set() == project.left_behind()
    assert 1 == len(project.worktrees())
    assert "Traceback" not in done.stderr
    report = json.loads(done.stdout) if done.stdout else {}
    return Bisected(exit_code=done.returncode, stderr=done.stderr, report=report)


def _module(number: int) -> str:
    """Return the module of a commit; its second one does not import."""
    dose = 30 if number >= CHANGED else 10
    text = work(steady=dose, other=number) + "\ndef callee():\n    pass\n"
    if number >= CHANGED:
        text = text.replace(f"return spin({dose})", f"return callee() or spin({dose})")
    return "import nowhere\n" if number == 1 else text


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A project of six commits after the first, and their hashes in order."""

    project: GitProject
    shas: tuple[str, ...]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Return a project whose fourth commit changed a benchmark, and whose first one does not import."""
    files = {"tests/test_speed.py": BENCHMARK, "work.py": _module(0)}
    project = git_project(tmp_path_factory.mktemp("scene"), files)
    shas = [project.repository.git.head.commit.hexsha]
    shas += [project.commit({"work.py": _module(number)}, f"Change {number}") for number in range(1, 7)]
    return Scene(project=project, shas=tuple(shas))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return a cluster whose one worker nobody kills."""
    with cluster(tmp_path_factory.mktemp("cluster"), workers=1) as made:
        yield made


def test_a_commit_is_found_by_counts(scene: Scene, shared: Cluster, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"

    found = _bisect(scene.project, shared.url, "--metric", "python_calls", ledger=ledger)

    assert 0 == found.exit_code, found.stderr
    assert [[scene.shas[CHANGED]]] == found.suspects
    (step,) = found.report["steps"]
    assert 1 == step["after"]["mean"] - step["before"]["mean"]
    rows = Ledger(ledger).rows()
    counted = Counter(row.commit.sha for row in rows if row.outcome.metric.name == "python_calls")
    assert {1} == set(counted.values())
    assert {(scene.shas[0], scene.shas[6])} == {
        (row.policy.good, row.policy.bad) for row in rows if isinstance(row.policy, BisectPolicy)
    }
    assert sorted({row.run_id for row in rows}) == sorted(found.report["runs"])
    assert {"bisect"} == {row.source for row in rows}


@pytest.mark.slow
def test_a_commit_is_found_by_time_though_a_worker_is_killed(scene: Scene, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    with cluster(tmp_path / "cluster", workers=2) as made:
        made.wait_for_workers(2)
        killer = threading.Thread(target=made.kill_worker_at_work)
        killer.start()
        found = _bisect(scene.project, made.url, "--budget", "240", ledger=ledger)
        killer.join()
        measured = Ledger(ledger).runs()
        again = _bisect(scene.project, made.url, "--budget", "0.01", ledger=ledger)

    assert 0 == found.exit_code, found.stderr
    assert "is lost; its task is done anew" in found.stderr
    assert scene.shas[CHANGED] == found.suspects[0][-1]
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--engine", "local", "--machine", "0123abcd"), "--machine and --clone need an engine"),
        (("--engine", "tcp://host:1"), "an engine must read local or dask://HOST:PORT"),
        (("--machine", "nobody"), "its machine is"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(
    scene: Scene, shared: Cluster, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    found = _bisect(scene.project, shared.url, *arguments, ledger=tmp_path / "ledger")

    assert found.exit_code in (2, 4)
    assert said in found.stderr.splitlines()[-1]
    assert [] == list((tmp_path / "ledger").glob("*.parquet"))
