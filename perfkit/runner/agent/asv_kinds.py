"""What asv's kinds of benchmarks other than times measure: text in a fresh interpreter, memory, numbers."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from .counters.model import PEAK_MEMORY, TRACKED, Count
from .processes import peak_resident
from .provenance import foreign_files

_BYTES = frozenset({"b", "byte", "bytes"})
_ANSWER, _LOADED = "perfkit-seconds ", "perfkit-loaded "
# It reads its program from its standard input, since a command line is limited in length. It imports nothing
# but timeit, so that a statement which imports something finds as little of that loaded as it would by hand.
_PROGRAM = "import sys; exec(sys.stdin.read())"


def raw_block(
    code: Callable[[], object], *, env: Mapping[str, object] | None, root: Path | None
) -> Callable[[int], float]:
    """Return a block that times so many runs of a text in a fresh interpreter, in seconds."""

    def block(iterations: int) -> float:
        made = code()
        statement, setup = made if isinstance(made, tuple) else (made, "")
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            input=_program(str(statement), str(setup), iterations),
            env={**os.environ, **{str(name): str(value) for name, value in (env or {}).items()}},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise RuntimeError(f"its interpreter ended with exit status {done.returncode}: {last}")
        seconds, loaded = _answer(done.stdout)
        _check_code(loaded, root)
        return seconds

    return block


def _program(statement: str, setup: str, iterations: int) -> str:
    statement, setup = textwrap.dedent(statement), textwrap.dedent(setup)
    finders = [f"{type(one).__module__}.{type(one).__qualname__}" for one in sys.meta_path]
    kinds = [f"{one.__module__}.{one.__qualname__}" for one in sys.meta_path if isinstance(one, type)]
    return textwrap.dedent(f"""
        import timeit
        known = {[*finders, *kinds]!r}
        def name(one):
            kind = one if isinstance(one, type) else type(one)
            return kind.__module__ + "." + kind.__qualname__
        sys.path[:] = {sys.path!r}
        sys.meta_path[:] = [one for one in sys.meta_path if name(one) in known]
        seconds = timeit.timeit({statement!r}, {setup!r}, number={iterations})
        print()
        print({_ANSWER!r} + repr(seconds))
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file and name != "__main__":
                print({_LOADED!r} + name + " " + file)
    """)


def _answer(output: str) -> tuple[float, dict[str, str]]:
    lines = output.splitlines()
    seconds = next(line.removeprefix(_ANSWER) for line in reversed(lines) if line.startswith(_ANSWER))
    loaded = (line.removeprefix(_LOADED).partition(" ") for line in lines if line.startswith(_LOADED))
    return float(seconds), {name: file for name, _, file in loaded}


def _check_code(loaded: Mapping[str, str], root: Path | None) -> None:
    foreign = foreign_files(loaded, root) if root is not None else {}
    if foreign:
        name, file = min(foreign.items())
        raise RuntimeError(f"wrong code imported in a fresh interpreter: {name} came from {file}")


def measure_peak(run: Callable[[], object]) -> Count:
    """Return the peak of this process's resident size while a benchmark is set up and runs, in bytes."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
    peak = peak_resident(run)
    if peak is None:
        pytest.skip("the peak of one benchmark's memory can be read on Linux only, from /proc")
    return Count(metric=PEAK_MEMORY, unit="B", values=(float(peak),), causes=())


def tracked_number(value: object, unit: object, *, name: str) -> Count:
    """Return what a benchmark has tracked, in its own unit."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise TypeError(
            f"{name} returned an object of type {kind}, and only single numbers are compared"
        ) from None
    if math.isnan(number):
        pytest.skip(f"{name} returned nan")
    if math.isinf(number):
        raise ValueError(f"{name} returned {number}, which cannot be compared")
    text = str(unit)
    stored = "B" if text.lower() in _BYTES else text
    return Count(metric=TRACKED, unit=stored, values=(number,), causes=())
