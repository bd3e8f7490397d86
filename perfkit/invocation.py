"""This process as others see it, and the signals that end it."""

from __future__ import annotations

import contextlib
import functools
import getpass
import math
import os
import platform
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))
_PUT_OFF = (signal.SIGINT, *(number for number in _ENDING if number != signal.SIGQUIT))
_SHOWN_WORDS = 2
# Repeated signals are ignored for this long, so that cleanup can finish.
_TIDYING_UP_S = 5.0
_SOON_S = 0.01
# The handlers that were replaced here, and the times at which signals interrupted this process.
_replaced: dict[signal.Signals, signal.Handlers | Callable[[int, FrameType | None], object]] = {}
_interrupted_at = [-math.inf]
# The --ledger of this command line, None where it has none.
_LEDGER: ContextVar[str | None] = ContextVar("_LEDGER", default=None)
# Commands that read or write a ledger, as messages quote them.
_VERBS = "accept|backfill|compare|gate|history|ledger|log|report"
_IN_LEDGER = re.compile("|".join(rf"(?<={sign})perfkit (?:{_VERBS})\b[^{sign}]*(?={sign})" for sign in '`"'))


def keep_ledger(place: str | None) -> None:
    """Keep the --ledger of this command line for the commands that it prints."""
    _LEDGER.set(place)


def follow_up(command: str) -> str:
    """Return a command to paste, with the --ledger that this command was given."""
    place = _LEDGER.get()
    return command if place is None or "--ledger" in command else f"{command} --ledger {shlex.quote(place)}"


def with_follow_ups(text: str) -> str:
    """Return a message in which the quoted commands have the --ledger that this command was given."""
    return _IN_LEDGER.sub(lambda found: follow_up(found[0]), text)


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
            # Others read it as UTF-8, whereas this process decoded its arguments by its locale.
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

    Repeated signals are ignored for some seconds, so that cleanup can finish; with ``also_ctrl_c`` SIGINT is,
    too. A signal that is ignored, as under nohup, or that other code handles stays as it is. Forked processes
    get the default back, so that they end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _restore_in_forks()
    _interrupted_at[:] = [-math.inf]
    for number in (*((signal.SIGINT,) if also_ctrl_c else ()), *_ENDING):
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        if signal.getsignal(number) == default:
            _replaced[number] = default
            signal.signal(number, _interrupt)
    if signal.SIGINT in _replaced:
        sys.unraisablehook = _interrupt_again
    try:
        yield
    finally:
        _restore()


@contextlib.contextmanager
def signals_put_off() -> Iterator[list[int]]:
    """Put off SIGINT, SIGTERM and SIGHUP until the end of what must not be cut off; yield those that came.

    At the end they take effect, except for those that were removed from the list. SIGQUIT stays as it is.
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
            # Sent to the whole process it might take effect a moment later where there are other threads.
            signal.raise_signal(number)


def was_interrupted() -> bool:
    """Return whether a signal handled here interrupted this process, so that what fails follows from that."""
    return _interrupted_at[-1] > -math.inf


def end_at_once() -> None:
    """Have signals end this process silently from now on."""
    for number in tuple(_replaced):
        signal.signal(number, signal.SIG_DFL)
        del _replaced[number]


def _interrupt(number: int, _: FrameType | None) -> None:
    now = time.monotonic()
    if now - _interrupted_at[-1] >= _TIDYING_UP_S:
        _interrupted_at.append(now)
        raise KeyboardInterrupt(signal.Signals(number).name)


def _interrupt_again(lost: sys.UnraisableHookArgs) -> None:
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    _interrupted_at[:] = [-math.inf]
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, _SOON_S)


def _restore() -> None:
    if sys.unraisablehook is _interrupt_again:
        sys.unraisablehook = sys.__unraisablehook__
    for number, before in tuple(_replaced.items()):
        signal.signal(number, before)
        del _replaced[number]


@functools.cache
def _restore_in_forks() -> None:
    os.register_at_fork(after_in_child=_restore)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid())
