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
# With the last of these a hook begins, with the others it ends.
_HOOKS = (
    *(("balance", "PhaseClock", "begin"), ("balance", "PhaseClock", "end")),
    *(("instruments", "_BalanceWatch", "end_step"), ("instruments", "_BalanceWatch", "start_step")),
    *(("child", "Reporter", "steps"), ("balance", "PhaseClock", "moment")),
)
# The seconds, those of hooks so far, and what begins: a phase, or with None the one around the present one
# again, or with a number the next step.
_events: list[tuple[float, float, str | int | None]] = []
_process = os.getpid()
# When the present hook began, when the last one ended, and the seconds of all.
_hook_s, _ended_s, _hooks_s = 0.0, 0.0, 0.0
_clock = time.perf_counter


def enter(phase: str) -> None:
    """Begin a phase; what is inside of "off" is no part of a step."""
    _events.append((_clock(), _hooks_s, phase))


def leave() -> None:
    """End the phase that began last."""
    _events.append((_clock(), _hooks_s, None))


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
    _events.append((_clock(), _hooks_s, samples))


def _steps() -> list[dict[str, float]]:
    steps: list[dict[str, float]] = []
    present: defaultdict[str, float] = defaultdict(float)
    phases = [_REST]
    last_s, last_hooks_s = _begun_s, 0.0
    for now_s, hooks_s, what in _events:
        own_s = hooks_s - last_hooks_s
        is_off = _OFF in phases
        present[_OFF if is_off else phases[-1]] += now_s - last_s - own_s
        present[_OFF if is_off else _PERFKIT] += own_s
        last_s, last_hooks_s = now_s, hooks_s
        if what is None:
            phases.pop()
        elif isinstance(what, str):
            phases.append(what)
        elif not is_off:
            steps.append({**present, "samples": what})
            present.clear()
    return steps


def _beginning(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def begun(*args: object) -> object:
        global _hook_s  # noqa: PLW0603 (the script has one clock)
        _hook_s = _hook_s or _clock()
        return call(*args)

    return begun


def _ending(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def ended(*args: object, **kwargs: object) -> object:
        global _hook_s, _ended_s, _hooks_s  # noqa: PLW0603 (the script has one clock)
        _hook_s = _hook_s or _clock()
        try:
            return call(*args, **kwargs)
        finally:
            _ended_s = _clock()
            _hooks_s += _ended_s - _hook_s if _hook_s else 0.0
            _hook_s = 0.0

    return ended


def _fetching(fetch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return ``fetch`` with all that perfkit does before and after its own timing of it as a hook."""

    @functools.wraps(fetch)
    def fetched(iterator: object) -> object:
        global _hook_s, _hooks_s  # noqa: PLW0603 (the script has one clock)
        begun_s = _hook_s = _clock()
        try:
            return fetch(iterator)
        finally:
            _hooks_s += _clock() - _ended_s if _ended_s > begun_s else 0.0
            _hook_s = 0.0

    return fetched


def _write() -> None:
    if os.getpid() == _process and os.environ.get("RANK", "0") == "0" and "HAND_OUT" in os.environ:
        Path(os.environ["HAND_OUT"]).write_text(json.dumps(_steps()))


if f"{_PASSES}.child" in sys.modules:
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    for _module, _owner, _name in _HOOKS:
        _kind = getattr(sys.modules[f"{_PASSES}.{_module}"], _owner)
        _call = getattr(_kind, _name)
        setattr(_kind, _name, _beginning(_call) if _name == "moment" else _ending(_call))
    _BaseDataLoaderIter.__next__ = _fetching(_BaseDataLoaderIter.__next__)  # type: ignore[method-assign, assignment]
atexit.register(_write)
_begun_s = _clock()
