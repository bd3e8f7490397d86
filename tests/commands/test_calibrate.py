"""`perfkit calibrate` on a real project runs gates, continues a study, and names mistakes."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest
from forked_commands import run_perfkit
from gating import PERFKIT, GitProject, benchmark, git_project, work

from perfkit.ledger.store import Ledger

BENCHMARKS = "import work\n" + benchmark("one", "work.one") + benchmark("two", "work.two")
COMMAND = ("--gates", "1", "--plant", "90%", "--margin", "40%", "--budget", "30")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> GitProject:
    """Return a project with two benchmarks."""
    files = {"tests/test_speed.py": BENCHMARKS, "work.py": work(one=10, two=10)}
    return git_project(tmp_path_factory.mktemp("calibrate"), files)


def _command(project: GitProject, *arguments: str) -> list[str]:
    return [str(PERFKIT), "calibrate", "--ledger", str(project.ledger), *arguments]


def _calibrate(project: GitProject, *arguments: str) -> subprocess.CompletedProcess[str]:
    _, *command = _command(project, "--json", "-", *arguments)
    return run_perfkit(*command, cwd=project.root, env=project.environment())


@pytest.mark.alone
def test_a_stopped_study_goes_on(project: GitProject) -> None:
    with subprocess.Popen(
        _command(project, *COMMAND),
        cwd=project.root,
        env=project.environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        message = ""
        while "gate 1 of 2" not in message:
            line = running.stderr.readline()
            assert line, message
            message += line
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        message = running.stderr.read()
    assert (130, True) == (running.returncode, "1 of 2 gates are kept" in message), message
    assert set() == project.left_behind()

    done = _calibrate(project, *COMMAND)

    assert "1 of 2 gates are done already" in done.stderr
    report = json.loads(done.stdout)
    assert (2, 2) == (report["planned"], report["gates"]), done.stderr
    assert 0 == report["accused"]["count"]
    (power,) = report["powers"]
    assert (1, 1) == (power["found"]["count"], power["found"]["of"]), done.stderr
    assert 0.6 < power["median_reading"] < 1.3
    assert {"calibrate"} == {row.source for row in Ledger(project.ledger).rows()}
    assert 1 == len(Ledger(project.ledger).files())

    again = _calibrate(project, *COMMAND)

    assert "2 of 2 gates are done already" in again.stderr
    assert report == json.loads(again.stdout)
