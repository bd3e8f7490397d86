"""One perfkit measures on a machine at a time; a second one waits, names the first, and gives up in time."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forked_commands import run
from processes_seen import wait_until

from perfkit.agent.processes import read_process
from perfkit.errors import NotMeasuredError, UsageError
from perfkit.runner.lock import lock_folder, machine_lock, who_measures

HOLDER = """
import sys
from pathlib import Path
folder = Path(sys.argv[1])
sys.argv = ["/somewhere/bin/perfkit", "gate", "--base", "main"]
from perfkit.runner.lock import machine_lock
with machine_lock(log=print, folder=folder):
    print("held", flush=True)
    sys.stdin.read()
"""
NAME = "perfkit-measuring.lock"
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
    assert process.stdin is not None
    process.stdin.close()


@pytest.mark.parametrize("end", [let_go, subprocess.Popen.kill])
def test_a_second_process_states_whom_it_waits_for(
    tmp_path: Path, holder: Process, end: Callable[[Process], None]
) -> None:
    logged = []

    def log(text: str) -> None:
        logged.append((holder.poll(), text))
        end(holder)

    with machine_lock(log=log, folder=tmp_path) as waited_s:
        holder.wait()

    ((status, text),) = logged
    assert status is None
    assert text.startswith(f"waiting for perfkit gate (process {holder.pid}, since ")
    assert text.endswith(" UTC): it measures on this machine")
    assert waited_s > 0


def test_a_holder_that_stands_still_is_named_as_stopped(tmp_path: Path, holder: Process) -> None:
    holder.send_signal(signal.SIGSTOP)
    assert wait_until(lambda: (found := read_process(holder.pid)) is not None and found.is_stopped)

    output = who_measures(folder=tmp_path)

    assert output is not None
    assert f", stopped: `kill -CONT {holder.pid}` lets it go on)" in output


class Clock:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


@pytest.mark.parametrize(("wait_s", "shown"), [(0.0, 0), (30.0, 1), (150.0, 3)])
def test_the_wait_has_an_end_where_one_was_set(
    tmp_path: Path, holder: Process, wait_s: float, shown: int
) -> None:
    logged: list[str] = []
    clock = Clock()

    with (
        pytest.raises(NotMeasuredError) as caught,
        machine_lock(log=logged.append, wait_s=wait_s, folder=tmp_path, clock=clock, pause=clock.pause),
    ):
        pass

    assert 4 == caught.value.exit_code
    assert f"perfkit gate (process {holder.pid}, since " in str(caught.value)
    assert f"longer than --wait {wait_s:g}; nothing was measured" in str(caught.value)
    assert shown == len(logged)
    assert pytest.approx(100.0 + wait_s) == clock.now_s


def test_every_minute_it_reports_for_how_long_it_has_waited(tmp_path: Path, holder: Process) -> None:
    logged: list[str] = []
    clock = Clock()
    with (
        pytest.raises(NotMeasuredError),
        machine_lock(log=logged.append, wait_s=90.0, folder=tmp_path, clock=clock, pause=clock.pause),
    ):
        pass

    assert [True, False] == [text.startswith("waiting for perfkit gate") for text in logged]
    assert logged[1].startswith(f"waiting (60.0 s so far) for perfkit gate (process {holder.pid}")


@pytest.mark.parametrize("wait_s", [-1.0, float("nan")])
def test_a_time_that_is_none_is_refused(tmp_path: Path, wait_s: float) -> None:
    with (
        pytest.raises(UsageError, match="--wait must be zero"),
        machine_lock(log=print, wait_s=wait_s, folder=tmp_path),
    ):
        pass


def test_a_free_machine_is_had_without_waiting(tmp_path: Path) -> None:
    logged: list[str] = []
    with pytest.raises(KeyboardInterrupt), machine_lock(log=logged.append, folder=tmp_path):
        raise KeyboardInterrupt
    with machine_lock(log=logged.append, wait_s=0.0, folder=tmp_path) as waited_s:
        pass

    assert ([], 0.0) == (logged, waited_s)
    assert "" == (tmp_path / NAME).read_text()
    assert who_measures(folder=tmp_path) is None


def test_the_lock_serves_every_user_of_the_machine(tmp_path: Path) -> None:
    with machine_lock(log=print, folder=tmp_path):
        (file,) = tmp_path.iterdir()

    assert 0o666 == file.stat().st_mode & 0o777


def test_a_lock_that_was_tidied_away_is_made_anew(tmp_path: Path, holder: Process) -> None:
    (tmp_path / NAME).unlink()

    with machine_lock(log=print, wait_s=0.0, folder=tmp_path):
        assert holder.poll() is None
        assert (tmp_path / NAME).exists()


@pytest.mark.parametrize("in_the_way", ["link", "second name", "folder"])
def test_what_stands_in_the_place_of_the_lock_is_never_written_to(tmp_path: Path, in_the_way: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    if in_the_way == "link":
        (tmp_path / NAME).symlink_to(victim)
    elif in_the_way == "second name":
        (tmp_path / NAME).hardlink_to(victim)
    else:
        (tmp_path / NAME).mkdir()

    with pytest.raises(UsageError, match="remove it"), machine_lock(log=print, folder=tmp_path):
        pass

    assert "precious" == victim.read_text()


def test_one_machine_has_one_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PERFKIT_LOCK_FOLDER")
    found = lock_folder()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    assert found == lock_folder()
    assert found.stat().st_mode & 0o002
    monkeypatch.setenv("PERFKIT_LOCK_FOLDER", str(tmp_path))
    assert tmp_path == lock_folder()
    monkeypatch.setenv("PERFKIT_LOCK_FOLDER", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match=r"PERFKIT_LOCK_FOLDER is .*nowhere, which is no folder"):
        lock_folder()


READ_ONLY = """
mount -t tmpfs -o ro,mode=1777 none /run/lock || exit 77
exec "$0" -c "from perfkit.runner.lock import lock_folder, machine_lock
with machine_lock(log=print):
    print(lock_folder())"
"""


@pytest.mark.skipif(not Path("/run/lock").is_dir(), reason="there is no such folder here")
def test_a_folder_on_a_read_only_mount_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERFKIT_LOCK_FOLDER")
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no mount can be made here")

    done = run([unshare, "-rm", "sh", "-c", READ_ONLY, sys.executable])

    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no mount can be made here: {done.stderr}")
    assert "/tmp\n" == done.stdout, done.stderr  # noqa: S108 (the place that all users share)
