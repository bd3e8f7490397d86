"""Counts, their causes in lines of the code, and the reasons why metrics were not counted."""

from __future__ import annotations

import dataclasses
import linecache
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FrameType

from ..provenance import own_part

# A source is the name of what is counted, and its place in the code.
Source = tuple[str, str]
Amounts = Counter[Source]
_MOST_CAUSES = 100
# The counters and their units. docs/architecture.md lists what else a new one needs.
OF_TENSORS = ("operators", "syncs", "allowed_syncs", "allocated", "peak", "saved", "flops")
OF_DEVICES = ("to_device", "to_host")
INSTRUCTIONS = "instructions"
KEPT = "kept"
# What a call keeps is looked for in about so many CPU seconds at most.
MOST_KEPT_S = 4.0
UNITS: Mapping[str, str] = {
    **dict.fromkeys(("operators", "syncs", "allowed_syncs"), "1"),
    **dict.fromkeys(("allocated", "peak", "saved", *OF_DEVICES), "B"),
    "flops": "FLOP",
    **dict.fromkeys(("python_calls", "kernels", "graphs", "graph_breaks", "recompiles"), "1"),
    **dict.fromkeys(("python_peak", "resident", KEPT), "B"),
    INSTRUCTIONS: INSTRUCTIONS,
}
# Why operators are not counted where a benchmark uses no torch.
NO_TORCH = "torch is not used"
# What benchmarks of asv suites measure instead of a time, which need not repeat.
PEAK_MEMORY, TRACKED = "peak memory", "tracked value"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A part of a count: what it is, such as "aten::mm", and the own line or function that it comes from.

    ``place`` is "" where no own line is on the stack; ``text`` is the text of the line, which identifies it
    where its number has changed.
    """

    what: str
    place: str
    amount: float
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Count:
    """A metric's value in each counted iteration, and the causes of the last one, largest first."""

    metric: str
    unit: str
    values: tuple[float, ...]
    causes: tuple[Cause, ...]

    @property
    def exact(self) -> bool:
        """Whether the count repeated to the digit, in two or more iterations."""
        return len(self.values) > 1 and len(set(self.values)) == 1


@dataclass(frozen=True, kw_only=True)
class Counts:
    """All counts, and by metric the reasons why others were not made.

    ``training`` means that a backward pass and an optimizer's step were counted too. ``losses`` are
    what a training loop went backward from, each with its type.
    """

    counts: tuple[Count, ...]
    not_counted: Mapping[str, str]
    training: bool = False
    losses: tuple[tuple[str, float], ...] = ()


def count_of(metric: str, found: Sequence[Amounts] | Sequence[float]) -> Count:
    """Return a counter's values by iteration; given amounts by source, with the causes of the last one."""
    sums = [sum(one.values()) if isinstance(one, Counter) else one for one in found]
    causes = causes_of(found[-1]) if isinstance(found[-1], Counter) else ()
    return Count(metric=metric, unit=UNITS[metric], values=tuple(map(float, sums)), causes=causes)


def joined_counts(one: Counts, other: Counts) -> Counts:
    """Return the counts of one process with the values that another process counted as well."""
    values = {count.metric: count.values for count in other.counts}
    return replace(
        one,
        counts=tuple(
            replace(count, values=(*count.values, *values.get(count.metric, ()))) for count in one.counts
        ),
    )


def as_message(counts: Counts) -> dict[str, object]:
    """Return counts as data that JSON can hold."""
    return dataclasses.asdict(counts)


def causes_of(amounts: Mapping[Source, float]) -> tuple[Cause, ...]:
    """Return the causes of an amount, largest first; equal ones by name, so that the order repeats."""
    largest = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        Cause(what=what, place=place, amount=float(amount))
        for (what, place), amount in largest[:_MOST_CAUSES]
        if amount
    )


def with_texts(counts: Counts, root: Path) -> Counts:
    """Return counts whose causes have the text of their lines."""
    return replace(
        counts,
        counts=tuple(
            replace(count, causes=tuple(_with_text(cause, root) for cause in count.causes))
            for count in counts.counts
        ),
    )


def _with_text(cause: Cause, root: Path) -> Cause:
    file, _, line = cause.place.rpartition(":")
    if not file or not line.isdigit():
        return cause
    return replace(cause, text=linecache.getline(str(root / file), int(line)).strip())


_HERE = f"{Path(__file__).parent}{os.sep}"
_ALLOWANCE = "# perfkit: sync allowed"


class Places:
    """Names lines and functions: own ones by their path in the tree, "src/losses.py:41", others in short."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # The keys are file names: to hash a code object, with all its constants, takes ten times as long.
        self._own: dict[str, str | None] = {}
        # A key is a code object's identity and an instruction in it. The object is kept, so that no other one
        # can get its identity.
        self._lines: dict[tuple[int, int], tuple[str, CodeType]] = {}
        self._allowed: dict[str, bool] = {}

    def line_of(self, frame: FrameType | None) -> str:
        """Return the innermost own line from a frame outward, "" where there is none."""
        own = self._own
        while frame is not None:
            name = frame.f_code.co_filename
            try:
                file = own[name]
            except KeyError:
                file = own[name] = self._own_file(name)
            if file is not None:
                return self._line(frame, file)
            frame = frame.f_back
        return ""

    def innermost(self, stack: Sequence[tuple[str, int]]) -> str:
        """Return the innermost own line of a stack whose outermost comes first, "" where there is none."""
        found = ((self._own_file(name), line) for name, line in reversed(stack))
        return next((f"{file}:{line}" for file, line in found if file is not None), "")

    def is_own(self, file: str) -> bool:
        """Return whether a file is the tree's own."""
        return bool(file) and self._own_file(file) is not None

    def shortened(self, file: str, line: int) -> str:
        """Return a line of a library by its path in a folder of libraries."""
        return f"{_short(file)}:{line}"

    def function_of(self, code: CodeType) -> str:
        """Return where a function begins, in own code or in a library."""
        file = self._own_file(code.co_filename) or _short(code.co_filename)
        return f"{file}:{code.co_firstlineno}"

    def allows_sync(self, line: str) -> bool:
        """Return whether an own line carries the comment that allows it to wait for a device."""
        if line not in self._allowed:
            file, _, number = line.rpartition(":")
            text = linecache.getline(str(self._root / file), int(number)) if file else ""
            self._allowed[line] = _ALLOWANCE in text
        return self._allowed[line]

    def _line(self, frame: FrameType, file: str) -> str:
        code = frame.f_code
        key = (id(code), frame.f_lasti)
        known = self._lines.get(key)
        if known is None:
            known = self._lines[key] = (f"{file}:{frame.f_lineno}", code)
        return known[0]

    def _own_file(self, name: str) -> str | None:
        if name.startswith(("<", _HERE)):
            return None
        part = own_part(Path(name), self._root)
        return part.as_posix() if part is not None else None


def is_ours(code: CodeType) -> bool:
    """Return whether a function belongs to the counting itself."""
    return code.co_filename.startswith(_HERE)


def _short(name: str) -> str:
    folders = [f"{entry.rstrip(os.sep)}{os.sep}" for entry in sys.path if entry]
    longest = max((folder for folder in folders if name.startswith(folder)), key=len, default="")
    return Path(name.removeprefix(longest)).as_posix()
