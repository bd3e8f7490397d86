"""Timers that ``scripts.py`` puts around a script's own lines; none counts what one inside of it counts."""

from __future__ import annotations

import atexit
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")
_OFF, _REST = "off", "rest"
_open: list[str] = []
_steps: list[dict[str, float]] = []
_present: defaultdict[str, float] = defaultdict(float)
_process = os.getpid()
_last_s = time.perf_counter()


def enter(phase: str) -> None:
    """Begin a phase; what is inside of "off" is no part of a step."""
    _count()
    _open.append(phase)


def leave() -> None:
    """End the phase that began last."""
    _count()
    _open.pop()


def timed(phase: str, call: Callable[[], _T]) -> _T:
    """Return what an expression gives, which is a phase by itself."""
    enter(phase)
    try:
        return call()
    finally:
        leave()


def waiting(loop: Callable[[], Iterable[_T]]) -> Iterator[_T]:
    """Yield what a loop is over, and count the wait for it."""
    iterator = timed("data wait", lambda: iter(loop()))
    end = object()
    while (item := timed("data wait", lambda: next(iterator, end))) is not end:
        yield item  # type: ignore[misc]


def step(samples: int = 0) -> None:
    """End a step of so many samples."""
    _count()
    if _OFF not in _open:
        _steps.append({**_present, "samples": samples})
        _present.clear()


def _count() -> None:
    global _last_s  # noqa: PLW0603 (the script has one clock)
    now_s = time.perf_counter()
    _present[_OFF if _OFF in _open else _open[-1] if _open else _REST] += now_s - _last_s
    _last_s = now_s


def _write() -> None:
    if os.getpid() == _process and os.environ.get("RANK", "0") == "0" and "HAND_OUT" in os.environ:
        Path(os.environ["HAND_OUT"]).write_text(json.dumps(_steps))


atexit.register(_write)
