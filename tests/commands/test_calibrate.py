"""`perfkit calibrate` and `perfkit doctor` measure how far this machine and its gates can be trusted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

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


def _doctor(place: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    temporary = place / "tmp"
    temporary.mkdir()
    return run_perfkit(
        "doctor", *arguments, cwd=place, env={**os.environ, "TMPDIR": str(temporary), **variables}
    )


@pytest.mark.alone
def test_the_doctor_measures_and_judges(tmp_path: Path) -> None:
    done = _doctor(tmp_path, "--margin", "10000%", "--seconds", "1", "--json", "-")

    assert 0 == done.returncode, done.stderr
    report = json.loads(done.stdout)
    names = {one["benchmark"].rpartition("::")[2] for one in report["noises"]}
    assert {"test_python", "test_tensors"} == names
    assert all(0 < one["launch_sd"] < 1 for one in report["noises"])
    assert {"load", "steal", "governor", "threads", "other perfkits"} <= {
        one["name"] for one in report["conditions"]
    }
    assert "FIT for a margin of 10000 %" in done.stderr
    assert [] == list((tmp_path / "tmp").iterdir())


def test_no_machine_is_fit_for_next_to_nothing(tmp_path: Path) -> None:
    done = _doctor(tmp_path, "--margin", "0.001%", "--seconds", "1", PYTEST_ADDOPTS="-k nothing_of_it")

    assert 3 == done.returncode, done.stderr
    assert "UNFIT for a margin of 0.001 %" in done.stdout
