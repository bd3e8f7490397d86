"""Every command that measures waits for the machine, shows what it waits for, and ends when interrupted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
from forked_commands import run_perfkit
from gating import PERFKIT, GitProject, benchmark, git_project, work

from perfkit.runner.lock import machine_lock
from perfkit.units import human_seconds

EXPERIMENT = """
name = "nothing"
target = "training:main"
blocks = 2
budget = "10s"
[factors]
size = [1, 2]
"""
FILES = {
    "work.py": work(steady=10),
    "tests/test_speed.py": "import work\n" + benchmark("a", "work.steady"),
    "training.py": "def main(size=1):\n    pass\n",
    "experiment.toml": EXPERIMENT,
}
VERBS = {
    "gate": ("gate",),
    "plan": ("gate", "--plan"),
    "backfill": ("backfill", "HEAD", "--benchmarks", "tests"),
    "calibrate": ("calibrate", "--gates", "1", "--benchmarks", "tests"),
    "doctor": ("doctor", "--seconds", "1"),
    "tricks": ("tricks", "--only", "item_per_step"),
    "experiment": ("experiment", "run", "experiment.toml"),
    "profile": ("profile", "training:main", "--out", "x.stat"),
    "why": ("why", "training:main"),
    "explain": ("explain", "HEAD~1", "HEAD", "--target", "training:main"),
}
_WAIT_S = 60


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> GitProject:
    """Return a repository in which every command finds something to measure."""
    made = git_project(tmp_path_factory.mktemp("waiting"), FILES)
    made.commit({"work.py": work(steady=11)})
    return made


@pytest.fixture
def busy() -> Iterator[None]:
    """Hold the machine."""
    with machine_lock(log=print):
        yield


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("verb", ["gate", "backfill", "calibrate"])
def test_a_mistyped_selection_is_refused_before_the_wait(project: GitProject, verb: str) -> None:
    command = [*VERBS[verb], "--select", "a and", "--wait", "60"]

    done = run_perfkit(*command, cwd=project.root, env=project.environment())

    assert 2 == done.returncode
    assert 'perfkit: --select is not what pytest\'s -k reads: "a and": ' in done.stderr
    assert 1 == len(done.stderr.splitlines()), done.stderr


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("verb", VERBS)
def test_no_command_measures_beside_another(project: GitProject, verb: str) -> None:
    done = run_perfkit(*VERBS[verb], "--wait", "0", cwd=project.root, env=project.environment())

    assert 4 == done.returncode, done.stderr
    assert f"(process {os.getpid()}, since " in done.stderr
    assert "held this machine for longer than --wait 0; nothing was measured" in done.stderr
    assert set() == project.left_behind()


def test_the_time_waited_is_reported_and_eats_no_budget(project: GitProject) -> None:
    with contextlib.ExitStack() as machine:
        machine.enter_context(machine_lock(log=print))
        with subprocess.Popen(
            project.command("--exact-only", "--base", "HEAD~1", "--json", "-", "--verbose"),
            cwd=project.root,
            env=project.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            assert any(line.startswith("waiting for ") for line in process.stderr)
            machine.close()
            stdout, stderr = process.communicate(timeout=_WAIT_S)

    report = json.loads(stdout)
    assert report["waited_s"] > 0
    waited = human_seconds(report["waited_s"])
    assert f"after {waited} of waiting for another perfkit" in " ".join(stderr.split())


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("verb", "number"), [("gate", signal.SIGHUP), ("profile", signal.SIGTERM), ("experiment", signal.SIGQUIT)]
)
def test_a_waiting_command_can_be_ended(project: GitProject, verb: str, number: signal.Signals) -> None:
    with subprocess.Popen(
        [PERFKIT, *VERBS[verb]],
        cwd=project.root,
        env=project.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        shown = next(line for line in process.stdout if line.startswith("waiting for "))
        process.send_signal(number)
        output = process.stdout.read()

    assert 130 == process.returncode, output
    assert f"(process {os.getpid()}, since " in shown
    assert "interrupted" in output
    assert "Traceback" not in output
    assert set() == project.left_behind()
