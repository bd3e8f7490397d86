"""State that all code of a process shares: drawn from a seed, and put back after the body of each test.

Only the body is watched: what fixtures set up is the suite's own design, and they undo it themselves.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.machinery
import os
import random
import signal
import sys
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import pytest

Value = TypeVar("Value")
# Python takes blocks up to this many bytes from pools of its own, larger ones from the C library.
_LARGEST_SMALL = 512
_MOST_OF_A_SIZE = 128
_LARGE = 64
_DEEPEST = 16
_kept: list[object] = []
# A generator that is not imported yet is seeded right after its module's import, before anybody can draw.
_SEEDED_BY: dict[str, Callable[[int], None]] = {}
_seed = 0


def seed_generators(*parts: object) -> None:
    """Seed all generators alike wherever the parts are equal; of numpy and torch only if they are loaded."""
    global _seed  # noqa: PLW0603 (the generators belong to the process too)
    _seed = zlib.crc32(repr(parts).encode())
    random.seed(_seed)
    for name in _SEEDED_BY:
        if name in sys.modules:
            _SEEDED_BY[name](_seed)


def seed_on_import() -> None:
    """Have numpy's and torch's generators seeded when they are imported from now on."""
    if not any(isinstance(finder, _Seeding) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Seeding())


class _Seeding:
    """Finds the modules of generators as Python does, and seeds these once they are imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _SEEDED_BY:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_seed(module: ModuleType) -> None:
                execute(module)
                _SEEDED_BY[name](_seed)

            spec.loader.exec_module = execute_and_seed  # type: ignore[method-assign]
        return spec


def _seed_numpy(seed: int) -> None:
    sys.modules["numpy.random"].seed(seed)


def _seed_torch(seed: int) -> None:
    torch = sys.modules["torch"]
    # torch.manual_seed() would also keep a traceback for each kind of device that is not initialised.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


_SEEDED_BY |= {"numpy.random": _seed_numpy, "torch": _seed_torch}


def draw_layout(seed: int) -> int:
    """Allocate and keep memory of sizes drawn from ``seed``; return a depth of the stack for ``at_depth``.

    Addresses decide what shares cache lines, which changes the speed of the same code by a percent. Drawn
    anew for each launch, this is noise that repetitions show.
    """
    source = random.Random(seed)  # noqa: S311 (a layout, not a secret)
    for size in range(16, _LARGEST_SMALL + 1, 16):
        # A bytes object has 33 bytes of overhead, so each pool of Python's small blocks gets some of these.
        _kept.extend(bytes(max(size - 33, 0)) for _ in range(source.randrange(_MOST_OF_A_SIZE)))
    _kept.extend(bytearray(source.randrange(_LARGEST_SMALL, 1 << 14)) for _ in range(_LARGE))
    return source.randrange(_DEEPEST)


def at_depth(depth: int, call: Callable[[], Value]) -> Value:
    """Call from this many calls deeper: each takes some 700 bytes of the interpreter's own stack."""
    # A call from Python to Python takes none of it; one through an iterator of the interpreter does.
    return next(map(functools.partial(at_depth, depth - 1), (call,))) if depth else call()


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


# When a test's set-up began, by the clock and by CPU time.
BEGUN = pytest.StashKey[tuple[float, float]]()


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
