"""This process as others meet it: who it is, and how it is told to end."""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import platform
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))
_SHOWN_WORDS = 2


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """A process that holds something others may wait for or clean up, since a moment in UTC."""

    pid: int
    user: str
    host: str
    since: datetime
    command: str

    @classmethod
    def this(cls) -> Invocation:
        """Return this process, from now on."""
        program = Path(sys.argv[0]).name or "python"
        return cls(
            pid=os.getpid(),
            user=_user(),
            host=platform.node(),
            since=datetime.now(UTC).replace(microsecond=0),
            # Others read it as UTF-8, whatever the locale of this process takes its arguments for.
            command=os.fsencode(shlex.join([program, *sys.argv[1:]])).decode(errors="replace"),
        )

    @property
    def is_of_this_host(self) -> bool:
        """Whether its number means a process here: containers may share a folder, and not their processes."""
        return self.host == platform.node()

    @property
    def short(self) -> str:
        """The command without its options: "perfkit gate"."""
        words = self.command.split()[:_SHOWN_WORDS]
        return " ".join(word for place, word in enumerate(words) if not (place and word.startswith("-")))

    @property
    def since_text(self) -> str:
        """The time in UTC, with the day where that is not today."""
        today = self.since.date() == datetime.now(UTC).date()
        return f"{self.since:%H:%M}" if today else f"{self.since:%Y-%m-%d %H:%M}"


@contextlib.contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Have SIGTERM, SIGHUP and SIGQUIT raise KeyboardInterrupt: they leave as little behind as Ctrl-C.

    A signal that is ignored, as under nohup, or that somebody else handles stays as it is. Forked processes
    get the default back: there nobody would hear of the exception, and they are to end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in _ENDING if signal.getsignal(number) == signal.SIG_DFL]
    _undo_in_forks()
    for number in taken:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        _give_back()


def _interrupt(number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def _give_back() -> None:
    for number in _ENDING:
        if signal.getsignal(number) is _interrupt:
            signal.signal(number, signal.SIG_DFL)


@functools.cache
def _undo_in_forks() -> None:
    os.register_at_fork(after_in_child=_give_back)


def _user() -> str:
    """Return the user's name; a container may have a number without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid())
