"""Timers that ``scripts.py`` puts around a script's own lines; none counts what one inside of it counts.

Under perfkit, what its hooks take belongs to no phase, as in its own times; it is timed around them.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T")
_OFF, _REST, _PERFKIT = "off", "rest", "perfkit"
_PASSES = "perfkit.profiling.passes"
_HOOKS = (
    ("balance", "PhaseClock", ("begin", "end")),
    ("instruments", "_BalanceWatch", ("end_step", "start_step")),
    ("child", "Reporter", ("steps",)),
    ("periods", "Periods", ("_give",)),
)
_open: list[str] = []
_steps: list[dict[str, float]] = []
_present: defaultdict[str, float] = defaultdict(float)
_process = os.getpid()
_last_s = time.perf_counter()
_hooks_s, _is_in_hook = 0.0, False


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
    global _last_s, _hooks_s  # noqa: PLW0603 (the script has one clock)
    now_s = time.perf_counter()
    phase = _OFF if _OFF in _open else _open[-1] if _open else _REST
    _present[phase] += now_s - _last_s - _hooks_s
    _present[_OFF if phase == _OFF else _PERFKIT] += _hooks_s
    _last_s, _hooks_s = now_s, 0.0


def _apart(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def apart(*args: object, **kwargs: object) -> object:
        global _hooks_s, _is_in_hook  # noqa: PLW0603 (the script has one clock)
        if _is_in_hook:
            return call(*args, **kwargs)
        _is_in_hook, begun_s = True, time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            _hooks_s += time.perf_counter() - begun_s
            _is_in_hook = False

    return apart


for _module, _owner, _names in _HOOKS:
    _kind = getattr(sys.modules.get(f"{_PASSES}.{_module}"), _owner, None)
    for _name in _names if _kind else ():
        setattr(_kind, _name, _apart(getattr(_kind, _name)))


def _write() -> None:
    if os.getpid() == _process and os.environ.get("RANK", "0") == "0" and "HAND_OUT" in os.environ:
        Path(os.environ["HAND_OUT"]).write_text(json.dumps(_steps))


atexit.register(_write)
