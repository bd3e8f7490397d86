"""This process as others meet it: who it is, and how it is told to end."""

from __future__ import annotations

import contextlib
import functools
import getpass
import math
import os
import platform
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))
_PUT_OFF = (signal.SIGINT, *(number for number in _ENDING if number != signal.SIGQUIT))
_SHOWN_WORDS = 2
# A command that was told to end has so long for tidying up, before it hears that it is told again.
_TIDYING_UP_S = 5.0
_SOON_S = 0.01
# What is handled here, and how it was handled before; when this process was last told to end.
_taken: dict[signal.Signals, signal.Handlers | Callable[[int, FrameType | None], object]] = {}
_heard = [-math.inf]


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
def ended_like_ctrl_c(*, also_ctrl_c: bool = False) -> Iterator[None]:
    """Have SIGTERM, SIGHUP and SIGQUIT raise KeyboardInterrupt: they leave as little behind as Ctrl-C.

    Who closes a terminal sends several, and who is impatient presses Ctrl-C again. What follows the first
    within some seconds is not heard, since it would end the tidying up; ``also_ctrl_c`` has this be so of
    SIGINT, too.
    A signal that is ignored, as under nohup, or that somebody else handles stays as it is. Forked processes
    get the default back: there nobody would hear of the exception, and they are to end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _undo_in_forks()
    _heard[:] = [-math.inf]
    for number in (*((signal.SIGINT,) if also_ctrl_c else ()), *_ENDING):
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        if signal.getsignal(number) == default:
            _taken[number] = default
            signal.signal(number, _interrupt)
    if signal.SIGINT in _taken:
        sys.unraisablehook = _hear_again
    try:
        yield
    finally:
        _give_back()


@contextlib.contextmanager
def signals_put_off() -> Iterator[list[int]]:
    """Put off SIGINT, SIGTERM and SIGHUP until the end of what must not be cut off; yield those that came.

    At the end they do what they would have done, except for those that were taken from the list. SIGQUIT
    stays as it is, for who cannot wait.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {number: signal.getsignal(number) for number in _PUT_OFF}
    for number, handler in before.items():
        if handler not in (signal.SIG_IGN, None):
            signal.signal(number, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        for number, handler in before.items():
            if handler not in (signal.SIG_IGN, None):
                signal.signal(number, handler)
        for number in dict.fromkeys(came):
            # Sent to the whole process it might be heard a moment later where there are other threads.
            signal.raise_signal(number)


def was_interrupted() -> bool:
    """Tell whether a signal that is handled here told this process to end; whatever fails then is of that."""
    return _heard[-1] > -math.inf


def end_at_once() -> None:
    """Have signals end this process without a word from now on; it has done all that it had to do."""
    for number in tuple(_taken):
        signal.signal(number, signal.SIG_DFL)
        del _taken[number]


def _interrupt(number: int, _: FrameType | None) -> None:
    now = time.monotonic()
    if now - _heard[-1] >= _TIDYING_UP_S:
        _heard.append(now)
        raise KeyboardInterrupt(signal.Signals(number).name)


def _hear_again(lost: sys.UnraisableHookArgs) -> None:
    """Interrupt this process a moment later where no code could hear of it, as in the end of an object.

    The import of a module ends such objects, so that many an interruption would be printed and forgotten.
    """
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    _heard[:] = [-math.inf]
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, _SOON_S)


def _give_back() -> None:
    if sys.unraisablehook is _hear_again:
        sys.unraisablehook = sys.__unraisablehook__
    for number, before in tuple(_taken.items()):
        signal.signal(number, before)
        del _taken[number]


@functools.cache
def _undo_in_forks() -> None:
    os.register_at_fork(after_in_child=_give_back)


def _user() -> str:
    """Return the user's name; a container may have a number without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid())
