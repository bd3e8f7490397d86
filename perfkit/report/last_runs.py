"""What a pytest session says of how its times differ from those of the last runs."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from perfkit.features.site.wording import ratio_text, short_sha
from perfkit.model.history import Moved
from perfkit.report.names import short_names
from perfkit.units import counted

_MOST_BEYOND, _MOST_UNKNOWN = 5, 3
# What moved by less is not worth a line where nobody knows what runs differ by.
_WORTH_TELLING = 0.02


def last_runs_lines(moved: Sequence[Moved], *, measured: str | None) -> Iterator[str]:
    """Yield what moved by more than runs of it differ, else the farthest, and the command that would decide.

    ``moved`` comes with the farthest first. ``measured`` is the commit whose code was measured as it is; None
    where there were changes besides.
    """
    if not moved:
        return
    beyond = [one for one in moved if one.is_beyond][:_MOST_BEYOND]
    unknown = [one for one in moved if one.spread is None and one.size >= _WORTH_TELLING]
    told = beyond or unknown[:_MOST_UNKNOWN]
    if not told:
        few = counted(len(moved), "benchmark")
        yield f"against the last runs here (not interleaved) none of {few} moved far"
        return
    yield "against the last runs here (not interleaved, so no verdict):"
    names = short_names(one.benchmark for one in moved)
    for one in told:
        known = (
            "too few runs to say what they differ by"
            if one.spread is None
            else f"its runs differ by {100 * one.spread:.1f} %"
        )
        yield f"  {ratio_text(one.ratio)}  {names[one.benchmark]}  ({known})"
    ((base, _),) = Counter(one.commit for one in told).most_common(1)
    if base == measured:
        yield "  the commit is the same, so that it is the machine, or chance"
        return
    yield f"  to decide: perfkit gate --base {short_sha(base)} --select {shlex.quote(_selection(told))}"


def _selection(told: Sequence[Moved]) -> str:
    """Return what pytest's -k chooses these benchmarks by; it takes no parameters in brackets."""
    names = {one.benchmark.partition("[")[0].rpartition("::")[2] for one in told}
    return " or ".join(sorted(names))
