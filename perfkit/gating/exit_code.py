"""What a gate's comparisons mean for whoever called it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_NOT_MEASURED, EXIT_PASS, EXIT_REGRESSED, EXIT_USAGE
from perfkit.model.comparisons import Comparison, ExactComparison, Verdict
from perfkit.runner.agent.callgrind import INSTRUCTIONS

_CODES: dict[Verdict, int] = {
    "REGRESSED": EXIT_REGRESSED,
    "MISSING": EXIT_NOT_MEASURED,
    "CHANGED": EXIT_NOT_MEASURED,
    "FAILED": EXIT_NOT_MEASURED,
    "TIMEOUT": EXIT_NOT_MEASURED,
    "INCONCLUSIVE": EXIT_INCONCLUSIVE,
    "NOT REACHED": EXIT_INCONCLUSIVE,
    "NEW": EXIT_PASS,
    "SKIPPED": EXIT_PASS,
    "IMPROVED": EXIT_PASS,
    "UNCHANGED": EXIT_PASS,
    "NOT SLOWER": EXIT_PASS,
}
_WORST_FIRST = (EXIT_USAGE, EXIT_REGRESSED, EXIT_NOT_MEASURED, EXIT_INCONCLUSIVE, EXIT_PASS)


def exit_code(comparisons: Iterable[Comparison | ExactComparison], *, recorded: bool = True) -> int:
    """Return the exit code of a gate: that of its worst comparison; "not measured" where there was none.

    Accepted findings, comparisons that do not gate, and what a setting lets pass undecided, pass. A benchmark
    that is new, or that both sides skip, passes beside compared ones. Where nothing that gates was compared
    only an acceptance of all can let that pass.
    Instructions are counted where they were asked for: a gate that could count none has not measured them.
    What was not ``recorded`` whole never passes.
    """
    found = tuple(comparisons)
    if not any(map(_was_compared, found)) and not _is_accepted(found):
        return EXIT_NOT_MEASURED
    codes = {_code(comparison) for comparison in found}
    if not recorded or uncounted_instructions(found):
        codes.add(EXIT_NOT_MEASURED)
    return worst(codes)


def worst(codes: Collection[int]) -> int:
    """Return the exit code that counts where several hold."""
    return next(code for code in _WORST_FIRST if code in codes)


def uncounted_instructions(found: Iterable[Comparison | ExactComparison]) -> Sequence[ExactComparison]:
    """Return what stands for the instructions of each benchmark, where not one's could be counted."""
    wanted = [one for one in found if isinstance(one, ExactComparison) and one.metric.name == INSTRUCTIONS]
    counted = any(one.base is not None and one.head is not None for one in wanted)
    return () if counted else wanted


def _was_compared(one: Comparison | ExactComparison) -> bool:
    """Tell whether there was something to compare that can decide, or should have been."""
    return one.gating and (isinstance(one, ExactComparison) or one.verdict not in ("NEW", "SKIPPED"))


def _is_accepted(found: Sequence[Comparison | ExactComparison]) -> bool:
    benchmarks = [one for one in found if isinstance(one, Comparison)]
    return bool(benchmarks) and all(one.accepted for one in benchmarks)


def _code(comparison: Comparison | ExactComparison) -> int:
    excused = isinstance(comparison, Comparison) and comparison.excused_by is not None
    passes = comparison.accepted is not None or not comparison.gating or excused
    return EXIT_PASS if passes else _CODES[comparison.verdict]
