"""One measuring perfkit a machine: the second one waits, however the first one ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfkit.measure.lock import machine_lock

HOLDER = """
import sys
from pathlib import Path
from perfkit.measure.lock import machine_lock
with machine_lock(on_wait=lambda: None, folder=Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
Process = subprocess.Popen[str]


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Process]:
    """Start another process that holds the lock until it may go."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert "held\n" == process.stdout.readline()
        yield process
        process.kill()


def let_go(process: Process) -> None:
    """Let the holder end in its own time."""
    assert process.stdin is not None
    process.stdin.close()


@pytest.mark.parametrize("end", [let_go, subprocess.Popen.kill])
def test_a_second_process_says_so_and_waits(
    tmp_path: Path, holder: Process, end: Callable[[Process], None]
) -> None:
    """It gets the machine when the first one has left, of its own will or not, and not before."""
    heard = []

    def on_wait() -> None:
        heard.append(holder.poll())
        end(holder)

    with machine_lock(on_wait=on_wait, folder=tmp_path):
        holder.wait()

    assert [None] == heard


def test_a_free_machine_is_had_without_waiting(tmp_path: Path) -> None:
    """One after the other is no collision, also after a failure inside."""
    heard: list[str] = []
    with (
        pytest.raises(KeyboardInterrupt),
        machine_lock(on_wait=lambda: heard.append("first"), folder=tmp_path),
    ):
        raise KeyboardInterrupt
    with machine_lock(on_wait=lambda: heard.append("second"), folder=tmp_path):
        pass

    assert [] == heard


def test_the_lock_serves_every_user_of_the_machine(tmp_path: Path) -> None:
    """Whoever measured first, its file can be opened by others."""
    with machine_lock(on_wait=lambda: None, folder=tmp_path):
        (file,) = tmp_path.iterdir()

    assert 0o666 == file.stat().st_mode & 0o777
