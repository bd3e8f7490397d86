"""Which functions made a benchmark slower: their own time on one side against the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.experiments.sequential import Contender
from perfkit.measure.lockstep.crew import Crew
from perfkit.measure.lockstep.profiled import OwnTime, profile_sides
from perfkit.records import SIDES, Side
from perfkit.repo.checkout import Roots
from perfkit.verdict.model import Comparison, Explanation, MovedFunction

_PROFILED_S = 0.5
_MOST_CALLS = 200
_SHOWN = 5
# Of the benchmark's time; what moved less is the profiler's own noise.
_WORTH_TELLING = 0.005
_BUILT_IN = "~"


@dataclass(frozen=True, kw_only=True)
class _Key:
    """A function, wherever its line has moved to."""

    file: str
    function: str


def explain(comparison: Comparison, contender: Contender, crew: Crew, roots: Roots) -> Explanation | None:
    """Profile a regressed benchmark on both sides and return what moved; None where that failed."""
    name, head_s = comparison.benchmark.name, comparison.head_s or _PROFILED_S
    children = [crew.start(side, nodes=[name]) for side in SIDES]
    calls = max(1, min(_MOST_CALLS, round(_PROFILED_S / head_s)))
    passes = profile_sides(children, calls=calls, limit_s=contender.limit_s)
    if passes is None:
        return None
    functions = moved_functions(
        {side: _relative(passes[side], roots.root(side)) for side in SIDES},
        at_least_s=_WORTH_TELLING * head_s,
    )
    return Explanation(benchmark=name, functions=functions)


def moved_functions(
    passes: Mapping[Side, Sequence[OwnTime]], *, at_least_s: float
) -> tuple[MovedFunction, ...]:
    """Return the functions whose own time per call moved most, and by ``at_least_s`` seconds.

    A function is known by file and name: lines move with every change above them.
    """
    seconds: dict[Side, defaultdict[_Key, float]] = {}
    lines: dict[_Key, int] = {}
    for side, functions in passes.items():
        seconds[side] = defaultdict(float)
        for one in functions:
            key = _Key(file=one.file, function=one.function)
            seconds[side][key] += one.own_s
            lines[key] = one.line
    moved = [
        MovedFunction(
            function=key.function,
            file="built-in" if key.file == _BUILT_IN else key.file,
            line=line,
            base_s=seconds["base"][key],
            head_s=seconds["head"][key],
        )
        for key, line in lines.items()
    ]
    moved.sort(key=lambda one: -abs(one.head_s - one.base_s))
    return tuple(one for one in moved[:_SHOWN] if abs(one.head_s - one.base_s) >= at_least_s)


def _relative(functions: Sequence[OwnTime], root: Path) -> list[OwnTime]:
    """Name the side's own files by their place in it, so that both sides' are the same."""
    return [
        OwnTime(file=_shorten(one.file, root), line=one.line, function=one.function, own_s=one.own_s)
        for one in functions
    ]


def _shorten(file: str, root: Path) -> str:
    path = Path(file)
    if path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    for place in ("site-packages", "dist-packages"):
        if place in path.parts:
            return "/".join(path.parts[path.parts.index(place) + 1 :])
    return file if file == _BUILT_IN else path.name
