"""`--engine dask://…` and `perfkit engine check` as commands: real projects, real workers, exit codes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, cluster
from forked_commands import run_perfkit
from gating import GitProject, benchmark, git_project, work

from perfkit.commands.tasks import own_class
from perfkit.ledger.store import Ledger

pytest.importorskip("distributed", reason="the extra `engine` is not installed")

BENCHMARKS = "import work\n" + benchmark("one", "work.one")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return a cluster of two workers on this machine."""
    with cluster(tmp_path_factory.mktemp("cluster"), workers=2) as made:
        made.wait_for_workers(2)
        yield made


@pytest.fixture
def project(tmp_path: Path) -> GitProject:
    """Return a project of three commits; only the last has the benchmark, and it is not committed."""
    made = git_project(tmp_path, {"work.py": work(one=5)})
    made.commit({"work.py": work(one=6)})
    made.commit({"work.py": work(one=7)})
    (made.root / "tests").mkdir()
    (made.root / "tests/test_speed.py").write_text(BENCHMARKS)
    return made


def _perfkit(project: GitProject, shared: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_perfkit(
        *arguments,
        "--ledger",
        str(project.ledger),
        "--json",
        "-",
        cwd=project.root,
        env={**project.environment(), "PYTHONPATH": shared.environment()["PYTHONPATH"]},
    )


@pytest.mark.slow
def test_a_backfill_goes_to_workers_and_is_known_afterwards(shared: Cluster, project: GitProject) -> None:
    command = ("backfill", "..HEAD", "--launches", "1", "--benchmarks", "tests", "--engine", shared.url)

    done = _perfkit(project, shared, *command)

    assert 0 == done.returncode, done.stderr
    rows = Ledger(project.ledger).rows()
    assert 3 == len({row.commit.sha for row in rows}) == len({row.run_id for row in rows}) == len(rows)
    assert {("ok", "tests/test_speed.py::test_one", False, own_class().machine_id)} == {
        (row.outcome.status, row.outcome.benchmark.name, row.commit.dirty, row.machine.machine_id)
        for row in rows
    }
    assert 1 == len(project.worktrees())
    again = _perfkit(project, shared, *command)
    message = json.loads(again.stdout)
    assert (0, 0, 3) == (again.returncode, message["measured"], message["known"]), again.stderr
    # Measured here, it is the same run of the same task.
    here = _perfkit(project, shared, *command[:-2], "--every", "1")
    assert 3 == json.loads(here.stdout)["known"], here.stderr


@pytest.mark.slow
def test_a_calibration_goes_to_workers(shared: Cluster, project: GitProject) -> None:
    project.commit({}, "Keep the benchmark")
    command = (
        "calibrate", "--gates", "1", "--plant", "90%", "--margin", "40%", "--budget", "20",
        "--benchmarks", "tests", "--engine", shared.url,
    )  # fmt: skip

    done = _perfkit(project, shared, *command)

    report = json.loads(done.stdout)
    assert (2, 2) == (report["planned"], report["gates"]), done.stderr
    assert {"calibrate"} == {row.source for row in Ledger(project.ledger).rows()}
    again = _perfkit(project, shared, *command)
    assert "2 of 2 gates are done already" in again.stderr
    assert report == json.loads(again.stdout)


def test_every_worker_is_proven_fit(shared: Cluster, project: GitProject) -> None:
    command = ["engine", "check", shared.url]
    done = run_perfkit(*command, cwd=project.root, env=shared.environment())

    assert 0 == done.returncode, done.stdout + done.stderr
    assert "2 of 2 workers may measure, on one class of machines" in done.stdout
    assert 2 == done.stdout.count(own_class().machine_id)


def test_what_is_no_engine_is_refused(project: GitProject) -> None:
    done = run_perfkit("engine", "check", "somewhere", cwd=project.root, env=project.environment())

    refused = "perfkit: an engine must read local or dask://HOST:PORT, found somewhere\n"
    assert (2, refused) == (done.returncode, done.stderr)
