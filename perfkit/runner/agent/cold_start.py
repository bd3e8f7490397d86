"""The first call of a benchmark on an accelerator, and how much of it was compiling and autotuning.

This is the seam to torch.compile's clocks: ``torch._dynamo.utils.compile_times`` is how torch's own guides
read them. Nothing of dynamo is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Dynamo's own part, the backend and what that calls are inside of these two.
_COMPILING = ("_compile.compile_inner", "backward._backward_impl")
# Kernels are tried when they first run, after compiling, or for templates such as matrix products within it.
_TUNING_AFTER = (
    "CachingAutotuner.benchmark_all_configs",
    "CachingAutotuner.coordinate_descent_tuning",
    "CachingAutotuner.combo_sequential_autotune",
)
_TUNING_WITHIN = ("_template_autotuning", "_template_precompiling")
_GRAPHS = "unique_graphs"
UNTOLD = "time of compiling not told"


@dataclass(frozen=True, kw_only=True)
class ColdStart:
    """A first call in seconds: all of it, and what torch.compile says of its compiling and autotuning.

    Both parts are None where torch.compile is not loaded or does not tell them. What libraries such as cuDNN
    try by themselves is told by nobody, and is in the rest. ``graphs`` were compiled in it.
    """

    total_s: float
    compiling_s: float | None = None
    autotuning_s: float | None = None
    graphs: int = 0

    @property
    def marks(self) -> tuple[str, ...]:
        """What a row of it says besides: that it compiled for a time that torch did not tell."""
        return (UNTOLD,) if self.graphs and self.compiling_s is None else ()


@dataclass(frozen=True, kw_only=True)
class CompileTimes:
    """What torch.compile has spent in this process, in seconds by name, and how many graphs it compiled."""

    seconds: Mapping[str, float]
    graphs: int


def read_compile_times() -> CompileTimes | None:
    """Return what torch.compile has spent so far; None where it is not loaded, or does not tell."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return None
    try:
        names, seconds = dynamo.compile_times(repr="csv", aggregate=True)
        graphs = int(dynamo.counters["stats"][_GRAPHS])
        return CompileTimes(seconds=dict(zip(names, map(float, seconds), strict=True)), graphs=graphs)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def cold_start(first: Callable[[], float]) -> ColdStart:
    """Make a first call by a function that returns its seconds, and return what it was made of."""
    before = read_compile_times()
    return cold_start_since(before, first())


def cold_start_since(before: CompileTimes | None, total_s: float) -> ColdStart:
    """Return what a first call of so many seconds was made of, which ended just now.

    ``before`` is what torch.compile had spent when it began, None where it was not loaded.
    """
    before = before or CompileTimes(seconds={}, graphs=0)
    after = read_compile_times()
    if after is None:
        return ColdStart(total_s=total_s)
    spent = {name: seconds - before.seconds.get(name, 0.0) for name, seconds in after.seconds.items()}
    whole_s = sum(spent.get(name, 0.0) for name in _COMPILING)
    graphs = max(after.graphs - before.graphs, 0)
    if graphs and not whole_s:
        # This torch compiles, and keeps its times under names that are not known here.
        return ColdStart(total_s=total_s, graphs=graphs)
    within_s = sum(seconds for name, seconds in spent.items() if name.endswith(_TUNING_WITHIN))
    after_s = sum(spent.get(name, 0.0) for name in _TUNING_AFTER)
    return ColdStart(
        total_s=total_s,
        compiling_s=max(whole_s - within_s, 0.0),
        autotuning_s=within_s + after_s,
        graphs=graphs,
    )
