"""Commands under a guard report how they ended, and leave no process after their end or the coordinator's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes_seen import gone, read_pids, wait_until

from perfkit.agent.processes import read_process
from perfkit.runner.commands import GuardedCommand, run_command

# Leaves a child in its group, one in a session of its own, and a daemon whose parent is gone; stops the first
# two, reports all their numbers, and does what its last argument names.
FAMILY = """
import os, signal, subprocess, sys, time
wait = [sys.executable, "-c", "import signal; signal.pause()"]
daemon = "import subprocess as s, sys; print(s.Popen(sys.argv[1:], start_new_session=True, stdout=-3).pid)"
group = subprocess.Popen(wait)
session = subprocess.Popen(wait, start_new_session=True)
daemon = int(subprocess.check_output([sys.executable, "-c", daemon, *wait[:2], wait[2]]))
for stopped in (group.pid, session.pid):
    os.kill(stopped, signal.SIGSTOP)
print(group.pid, session.pid, daemon, os.getpid(), flush=True)
exec(sys.argv[1])
"""
COORDINATOR = """
import signal, sys
from pathlib import Path
from perfkit.runner.commands import run_command
run_command([sys.executable, "-c", sys.argv[1], sys.argv[3]], output=Path(sys.argv[2]), limit_s=None)
"""
SLEEPS = "signal.pause()"


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print('well')", "ended with exit status 0; well"),
        ("import sys; print('a line'); sys.exit('the reason')", "ended with exit status 1; the reason"),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL (out of memory?)"),
        ("import os; os.kill(os.getpid(), 15)", "was killed by SIGTERM"),
    ],
)
def test_how_a_command_ended_is_reported(tmp_path: Path, code: str, words: str) -> None:
    ending = run_command(python(code), output=tmp_path / "log", limit_s=60)

    assert words == ending.words


def test_a_command_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    ending = run_command(["/no/such/command"], output=tmp_path / "log", limit_s=60)

    assert "ended with exit status 127; /no/such/command cannot be started: No such file" in ending.words


@pytest.mark.parametrize(("ends", "limit_s", "status"), [("pass", 60.0, 0), (SLEEPS, 0.0, None)])
def test_nothing_outlives_a_command(tmp_path: Path, ends: str, limit_s: float, status: int | None) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = GuardedCommand(python(FAMILY, ends), output=output.fileno())
    try:
        assert wait_until(lambda: read_pids(log))
        assert status == process.wait(limit_s)
    finally:
        process.end()

    assert 4 == len(read_pids(log))
    assert all(map(gone, read_pids(log)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_coordinator_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    log = tmp_path / "log"
    with subprocess.Popen(python(COORDINATOR, FAMILY, str(log), SLEEPS)) as coordinator:
        try:
            assert wait_until(lambda: read_pids(log))
            assert not any(map(gone, read_pids(log)))
        finally:
            coordinator.send_signal(number)

    assert wait_until(lambda: all(map(gone, read_pids(log))))


def test_a_command_ends_with_its_guard(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = GuardedCommand(python("import signal; signal.pause()"), output=output.fileno())
    found = read_process(process.pid)
    assert found is not None
    os.kill(found.parent, signal.SIGKILL)

    assert wait_until(lambda: gone(process.pid))
    assert -signal.SIGKILL == process.end()


def test_a_command_inherits_what_it_is_given_and_no_more(tmp_path: Path) -> None:
    program = (
        "import os, sys; print(os.getsid(0) == os.getpid(), sys.stdin.read(), os.listdir('/proc/self/fd'))"
    )
    reading, writing = os.pipe()
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = GuardedCommand(python(program), output=output.fileno(), inherit=[writing])
    os.close(writing)

    assert 0 == process.wait(60)
    # The guard has closed its copy: nobody holds the pipe any more.
    assert b"" == os.read(reading, 1)
    os.close(reading)
    stated = log.read_text()
    assert stated.startswith("True  ['0', '1', '2', ")
    assert 5 == stated.count(",") + 1
