"""A guard: it runs one command, and ends all its processes once the command or the coordinator has ended.

The kernel makes a guard the parent of every process below it whose own parent ends, so that it can also end
daemons and stopped processes. It does nothing that could hang. It does not ask the kernel to kill it together
with the coordinator, since then it could not end the others: it notices that the coordinator's socket closes.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
from collections.abc import Sequence
from typing import NoReturn

from .processes import adopt_orphans, die_with, kill, kill_descendants

_NO_SUCH_COMMAND = 127
_FIRST_AFTER_STANDARD, _NO_DESCRIPTOR = 3, 1 << 20
# Python ignores these signals, but a command expects their default action.
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)


def guard(descriptor: int, command: Sequence[str]) -> NoReturn:
    """Run a command in a session of its own, and end as it ended once all its descendants have ended, too.

    The command's process id is sent through the socket; when the other end closes, all processes are ended.
    """
    os.set_inheritable(descriptor, False)  # noqa: FBT003 (positional only)
    adopt_orphans()
    pid = _start(command)
    _close_all_but(descriptor)
    coordinator = socket.socket(fileno=descriptor)
    with contextlib.suppress(OSError):
        coordinator.sendall(f"{pid}\n".encode())
    # It becomes readable when the command has ended, as the socket does when the coordinator has.
    select.select([coordinator.fileno(), os.pidfd_open(pid)], [], [])
    _end_like(_end_all(pid))


def _start(command: Sequence[str]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            die_with(parent)
            for number in _IGNORED:
                signal.signal(number, signal.SIG_DFL)
            os.execvp(command[0], list(command))  # noqa: S606 (no shell is wanted)
        except OSError as error:
            os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
        finally:
            os._exit(_NO_SUCH_COMMAND)
    return pid


def _close_all_but(kept: int) -> None:
    """Close what only the command needs: a pipe kept open here would hide that the command has ended."""
    os.closerange(_FIRST_AFTER_STANDARD, kept)
    os.closerange(kept + 1, _NO_DESCRIPTOR)


def _end_all(pid: int) -> int:
    """End every process below this one, and return the command's status as ``waitpid`` gives it."""
    status = 0
    # Where there is no list of descendants, only the group can be ended.
    kill(pid)
    with contextlib.suppress(ChildProcessError):
        while True:
            kill_descendants()
            # A process that is started meanwhile becomes a child of this one when its parent ends.
            ended, found = os.waitpid(-1, 0)
            if ended == pid:
                status = found
    return status


def _end_like(status: int) -> NoReturn:
    """End as the command did, so that whatever waits for the guard learns how the command ended."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)
