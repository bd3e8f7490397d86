"""Puts back what the body of a test changed in its process, so that later benchmarks find it as it was.

Only the body is watched: what fixtures set up is the suite's own design, and they undo it themselves.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

_CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "time", "process_time", "sleep")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Pytest changes it itself in each phase of a test.
_OWN_VARIABLE = "PYTEST_CURRENT_TEST"


@dataclass(frozen=True)
class _Setting:
    """One thing that all code of a process shares; a setting without a ``name`` changes with every use."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


class StateKeeper:
    """A plugin of pytest: ``changed`` names what the bodies of tests changed and what was put back."""

    def __init__(self) -> None:
        self.changed: dict[str, tuple[str, ...]] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run the body of a test, and put back what it changed, however it ends."""
        before = [(setting, setting.read()) for setting in _settings()]
        modules = dict(sys.modules)
        try:
            return (yield)
        finally:
            names = [setting.name for setting, value in before if _put_back(setting, value)]
            names += ["modules"] if _put_back_modules(modules) else []
            if changed := tuple(name for name in names if name):
                self.changed[item.nodeid] = changed


def _put_back(setting: _Setting, before: object) -> bool:
    """Set what is not as it was, and return whether it was not; what cannot be set stays as it is."""
    with contextlib.suppress(Exception):
        if setting.read() != before:
            setting.write(before)
            return True
    return False


def _put_back_modules(before: dict[str, Any]) -> bool:
    gone = {name: module for name, module in before.items() if sys.modules.get(name) is not module}
    sys.modules.update(gone)
    return bool(gone)


def _settings() -> Iterator[_Setting]:
    yield _Setting("working directory", _folder, os.chdir)
    yield _Setting("environment variables", _variables, _set_variables)
    yield _Setting("clock", lambda: {name: getattr(time, name) for name in _CLOCKS}, _set_clocks)
    yield _Setting("garbage collector", lambda: (gc.isenabled(), gc.get_threshold()), _set_collector)
    yield _Setting("signals", lambda: {one: signal.getsignal(one) for one in _SIGNALS}, _set_signals)
    yield _Setting("recursion limit", sys.getrecursionlimit, sys.setrecursionlimit)
    yield _Setting("module search path", lambda: list(sys.path), _set_path)
    yield from _generators()
    if "torch" in sys.modules:
        yield from _of_torch(sys.modules["torch"])


def _generators() -> Iterator[_Setting]:
    """Yield the states of random numbers: what a benchmark draws must not depend on the rounds of others."""
    if "random" in sys.modules:
        random = sys.modules["random"]
        yield _Setting("", random.getstate, random.setstate)
    if "numpy.random" in sys.modules:
        numbers = sys.modules["numpy.random"]
        # Arrays are compared by their bytes.
        yield _Setting("", lambda: _numpy_state(numbers), lambda state: _set_numpy_state(numbers, state))


def _numpy_state(numbers: Any) -> tuple[object, ...]:  # noqa: ANN401 (a module)
    kind, keys, *rest = numbers.get_state()
    return kind, keys.tobytes(), *rest


def _set_numpy_state(numbers: Any, state: tuple[Any, ...]) -> None:  # noqa: ANN401 (a module)
    kind, keys, *rest = state
    numbers.set_state((kind, sys.modules["numpy"].frombuffer(keys, dtype="uint32"), *rest))


def _of_torch(torch: Any) -> Iterator[_Setting]:  # noqa: ANN401 (a module)
    yield _Setting("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype)
    yield _Setting("torch's default device", lambda: _device(torch), torch.set_default_device)
    yield _Setting("torch's threads", torch.get_num_threads, torch.set_num_threads)
    yield _Setting("torch's grad mode", torch.is_grad_enabled, torch.set_grad_enabled)
    yield _Setting(
        "torch's deterministic algorithms",
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    )
    yield _Setting(
        "torch's matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    )
    yield _Setting(
        "",
        lambda: torch.get_rng_state().numpy().tobytes(),
        lambda state: torch.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8)),
    )


def _device(torch: Any) -> object:  # noqa: ANN401 (a module)
    """Return the default device that was set, None where none was: one that is set costs each call time."""
    context = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    return None if context is None else context.device


def _folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 (as the process sees it)
    except OSError:
        return None


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != _OWN_VARIABLE}


def _set_variables(before: dict[str, str]) -> None:
    for name in _variables().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _set_path(before: list[str]) -> None:
    sys.path[:] = before


def _set_clocks(before: dict[str, object]) -> None:
    for name, clock in before.items():
        setattr(time, name, clock)


def _set_collector(before: tuple[bool, tuple[int, int, int]]) -> None:
    enabled, thresholds = before
    gc.set_threshold(*thresholds)
    (gc.enable if enabled else gc.disable)()


def _set_signals(before: dict[signal.Signals, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)
