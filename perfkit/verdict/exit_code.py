"""What a gate's comparisons mean for whoever called it."""

from __future__ import annotations

from collections.abc import Iterable

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_NOT_MEASURED, EXIT_PASS, EXIT_REGRESSED
from perfkit.records.comparisons import Comparison, ExactComparison, Verdict

_CODES: dict[Verdict, int] = {
    "REGRESSED": EXIT_REGRESSED,
    "MISSING": EXIT_NOT_MEASURED,
    "CHANGED": EXIT_NOT_MEASURED,
    "FAILED": EXIT_NOT_MEASURED,
    "TIMEOUT": EXIT_NOT_MEASURED,
    "INCONCLUSIVE": EXIT_INCONCLUSIVE,
    "NOT REACHED": EXIT_INCONCLUSIVE,
    "NEW": EXIT_PASS,
    "IMPROVED": EXIT_PASS,
    "UNCHANGED": EXIT_PASS,
}
_WORST_FIRST = (EXIT_REGRESSED, EXIT_NOT_MEASURED, EXIT_INCONCLUSIVE, EXIT_PASS)


def exit_code(comparisons: Iterable[Comparison | ExactComparison], *, recorded: bool = True) -> int:
    """Return the exit code of a gate: that of its worst comparison; "not measured" where there was none.

    Accepted findings and comparisons that do not gate pass. A new benchmark passes beside compared ones.
    Where all are new nothing was compared, and only an acceptance can let that pass. What was not
    ``recorded`` whole never passes.
    """
    found = tuple(comparisons)
    if all(one.verdict == "NEW" for one in found) and not (found and all(one.accepted for one in found)):
        return EXIT_NOT_MEASURED
    codes = {_code(comparison) for comparison in found} | (set() if recorded else {EXIT_NOT_MEASURED})
    return next(code for code in _WORST_FIRST if code in codes)


def _code(comparison: Comparison | ExactComparison) -> int:
    passes = comparison.accepted is not None or not comparison.gating
    return EXIT_PASS if passes else _CODES[comparison.verdict]
