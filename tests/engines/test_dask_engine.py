"""A real cluster on this machine does each task once, loses workers, and serves commands."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, Pile, cluster, kill, recorded, simulated_tasks
from forked_commands import run_perfkit
from gating import GitProject, benchmark, git_project, work

from perfkit.commands.tasks import own_class, run_of
from perfkit.errors import NotMeasuredError, UsageError
from perfkit.features.cluster.dask import DaskEngine, scheduler_address
from perfkit.ledger.store import Ledger

pytest.importorskip("distributed", reason="the extra `engine` is not installed")

ROWS_OF_A_TASK = 3


@pytest.fixture(scope="module")
def one_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), workers=0) as made:
        yield made


@pytest.fixture
def shared(one_cluster: Cluster) -> Cluster:
    """Return the cluster with two workers, also after a test that ended one."""
    if missing := 2 - len(one_cluster.workers):
        for _ in range(missing):
            one_cluster.start_worker()
        one_cluster.wait_for_workers(2)
    return one_cluster


def _expected(count: int, seconds: float = 0) -> list[tuple[str, str, str]]:
    return sorted(
        (run_of(task), task.commits[0], f"simulated[{number}]")
        for task in simulated_tasks(count, seconds=seconds)
        for number in range(ROWS_OF_A_TASK)
    )


def test_two_workers_file_every_task_once_and_one_that_fails_is_tried_twice(
    shared: Cluster, tmp_path: Path
) -> None:
    pile = Pile(waiting=simulated_tasks(3, seconds=0, fails=[2]), ledger=tmp_path)

    with DaskEngine(shared.url) as engine:
        classes = engine.classes()
        engine.perform(pile)

    assert (own_class(),) == classes
    assert 4 == pile.given
    assert ["2: it was set to fail"] == pile.failures
    assert _expected(2) == recorded(tmp_path)


UNFIT: list[tuple[str | None, str, str]] = [
    (None, "", "it has no resource measure; start it with --resources measure=1"),
    ("measure=1", "import sys; sys.modules['perfkit'] = None", "it has no perfkit"),
    (
        "measure=1",
        "from perfkit.features.cluster import worker; worker.own_version = lambda: '0.0.1'",
        "it has perfkit 0.0.1, and this command has",
    ),
]


def test_workers_that_are_not_fit_are_refused_in_words(shared: Cluster) -> None:
    output: list[str] = []
    unfit = [shared.start_worker(resources=resources, program=program) for resources, program, _ in UNFIT]
    shared.wait_for_workers(2 + len(unfit))

    with (
        DaskEngine(shared.url, log=output.append, wanted=["another machine"]) as engine,
        pytest.raises(NotMeasuredError) as caught,
    ):
        engine.classes()
    for worker in unfit:
        kill(worker)
        shared.workers.remove(worker)

    for _, _, reason in UNFIT:
        assert 1 == sum(f" is refused: {reason}" in line for line in output), output
    assert "is fit (" in str(caught.value)
    assert "perfkit engine check" in str(caught.value)


def test_a_worker_that_is_killed_loses_nothing_nor_does_an_error_of_this_side(
    shared: Cluster, tmp_path: Path
) -> None:
    output: list[str] = []
    pile = Pile(waiting=simulated_tasks(2, seconds=0.2), ledger=tmp_path)
    killer = threading.Thread(target=shared.kill_worker_at_work)

    def leave(filed: int) -> None:
        if filed == 2:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    pile.on_done = leave
    with DaskEngine(shared.url, log=output.append) as engine:
        engine.classes()
        killer.start()
        # It is none of the scheduler's.
        with pytest.raises(BrokenPipeError):
            engine.perform(pile)
    killer.join()

    assert [] == pile.failures
    assert _expected(2, 0.2) == recorded(tmp_path)
    assert any("is lost; its task is done anew" in line for line in output), output


@pytest.mark.slow
def test_a_scheduler_that_is_killed_is_reported_and_the_rest_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tasks = simulated_tasks(5, seconds=0.1)
    ledger = tmp_path / "ledger"
    with cluster(tmp_path / "cluster", workers=1) as made:
        pile = Pile(waiting=list(tasks), ledger=ledger)
        pile.on_done = lambda filed: made.kill_scheduler() if filed == 2 else None

        with DaskEngine(made.url) as engine:
            engine.classes()
            with pytest.raises(NotMeasuredError, match=r"scheduler at .* is gone; start it again") as caught:
                engine.perform(pile)

        assert 4 == caught.value.exit_code
        done = set(pile.filed)
        made.start_scheduler()
        made.start_worker()
        rest = Pile(waiting=[task for task in tasks if task.commits[0] not in done], ledger=ledger)
        with DaskEngine(made.url) as engine:
            engine.classes()
            engine.perform(rest)

    assert "Traceback" not in capfd.readouterr().err
    assert 2 == len(done)
    assert 3 == len(rest.filed)
    assert [] == rest.failures
    assert _expected(5, 0.1) == recorded(ledger)


def test_no_scheduler_is_a_line(tmp_path: Path) -> None:
    nobody = Cluster(folder=tmp_path)

    with (
        pytest.raises(UsageError, match="no Dask scheduler answers at tcp://"),
        DaskEngine(nobody.url, connect_s=0.5),
    ):
        pass


@pytest.mark.parametrize("url", ["dask://", "dask://host:port", "tcp://host:1", "dask://a/b:1"])
def test_a_url_of_another_form_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="an engine must read local or dask://HOST:PORT"):
        scheduler_address(url)


def test_the_port_may_be_left_out() -> None:
    assert "tcp://host:8786" == scheduler_address("dask://host")


BENCHMARKS = "import work\n" + benchmark("one", "work.one")


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
