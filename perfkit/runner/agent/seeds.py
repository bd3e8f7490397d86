"""What is drawn from a seed, alike on both sides: inputs, by the generators, and the layout of memory."""

from __future__ import annotations

import functools
import importlib.machinery
import random
import sys
import zlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TypeVar

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
        """Return the usual spec of a generator's module, None for all others."""
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
    """Allocate memory of sizes drawn from ``seed``, keep it, and return a depth of the stack drawn from it.

    The addresses of objects and of the stack decide what shares lines of a cache or slots of a table, which
    makes the same code slower or faster by a percent. Drawn anew for each launch, this is noise that
    repetitions show; ``at_depth`` makes calls at the depth that is returned.
    """
    source = random.Random(seed)  # noqa: S311 (a layout, not a secret)
    for size in range(16, _LARGEST_SMALL + 1, 16):
        # A bytes object has 33 bytes of overhead, so each pool of Python's small blocks gets some of these.
        _kept.extend(bytes(max(size - 33, 0)) for _ in range(source.randrange(_MOST_OF_A_SIZE)))
    _kept.extend(bytearray(source.randrange(_LARGEST_SMALL, 1 << 14)) for _ in range(_LARGE))
    return source.randrange(_DEEPEST)


def at_depth(depth: int, call: Callable[[], Value]) -> Value:
    """Call from so many calls deeper: each takes some 700 bytes of the interpreter's own stack."""
    # A call from Python to Python takes none of it; one through an iterator of the interpreter does.
    return next(map(functools.partial(at_depth, depth - 1), (call,))) if depth else call()
