"""What the gates of a study came to: verdicts are recomputed from the launches in its ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from plan import Case, plan_study
from study import LEDGERS, read_outcomes

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_PASS, EXIT_REGRESSED
from perfkit.gating.judge import look_interval, pair_location
from perfkit.gating.rows import comparison_of, pairs_of, policy_of
from perfkit.ledger.store import Ledger
from perfkit.model import Row
from perfkit.model.comparisons import Calls, Comparison, Estimate, Verdict

_ACCUSING: tuple[Verdict, ...] = ("REGRESSED", "IMPROVED")
_NOMINAL_ERROR = 0.05


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A case that ran: its verdicts by benchmark, its wall time in seconds, and its rows by benchmark.

    ``put_off`` is how often the machine was unfit for it before.
    """

    case: Case
    exit_code: int
    wall_s: float
    put_off: int
    comparisons: Mapping[str, Comparison]
    rows: Mapping[str, Sequence[Row]]

    @property
    def measured(self) -> bool:
        """Whether it ended with a verdict on every benchmark."""
        return self.exit_code in {EXIT_PASS, EXIT_REGRESSED, EXIT_INCONCLUSIVE}

    @property
    def accused(self) -> set[str]:
        """The benchmarks judged REGRESSED or IMPROVED."""
        return set(self.judged(*_ACCUSING))

    @property
    def finds_slowdown(self) -> bool:
        """Whether the slowed benchmark was judged REGRESSED, and nothing else accused or praised."""
        slowed = self.case.benchmark
        return self.accused == {slowed} and self.comparisons[str(slowed)].verdict == "REGRESSED"

    def judged(self, *verdicts: Verdict) -> tuple[str, ...]:
        """Return the benchmarks that have one of these verdicts."""
        return tuple(name for name, found in self.comparisons.items() if found.verdict in verdicts)

    @property
    def estimates(self) -> dict[str, Estimate]:
        """What each verdict rests on, of the benchmarks that have an interval."""
        found = self.comparisons.items()
        return {name: one.estimate for name, one in found if one.estimate is not None}

    @property
    def series(self) -> set[str]:
        """The benchmarks that have an interval."""
        return set(self.estimates)

    @cached_property
    def nominal_misses(self) -> set[str]:
        """The benchmarks of which a 95 % interval over all launches, looked at once, leaves out no change.

        It is one of lower-quartile calls or of all, as the verdict's own interval is.
        """
        found = self.estimates.items()
        return {name for name, one in found if _misses_no_change(self.rows[name], one.calls)}


def read_gates(study: str, ledger: Path | None = None) -> list[Gate]:
    """Return the gates of a study that ran, in the order of its plan."""
    place = LEDGERS / study if ledger is None else ledger
    outcomes = {outcome["subject"]: outcome for outcome in read_outcomes(place)}
    rows: dict[str, list[Row]] = {}
    for row in Ledger(place).rows() if outcomes else []:
        rows.setdefault(row.run_id, []).append(row)
    return [
        _gate(case, outcomes[case.subject], rows.get(str(outcomes[case.subject]["run_id"]), []))
        for case in plan_study(study)
        if case.subject in outcomes
    ]


def _gate(case: Case, outcome: Mapping[str, object], rows: Sequence[Row]) -> Gate:
    by_benchmark: dict[str, list[Row]] = {}
    for row in rows:
        by_benchmark.setdefault(row.outcome.benchmark.name.rpartition("test_")[2], []).append(row)
    return Gate(
        case=case,
        exit_code=int(str(outcome["exit_code"])),
        wall_s=float(str(outcome["wall_s"])),
        put_off=int(str(outcome["put_off"])),
        comparisons={name: comparison_of(found) for name, found in by_benchmark.items()},
        rows=by_benchmark,
    )


def _misses_no_change(rows: Sequence[Row], calls: Calls) -> bool:
    pairs = pairs_of(rows)
    logs = [pair_location(pair, calls) for pair in pairs]
    groups = [pair.group for pair in pairs]
    interval = look_interval(logs, groups, policy_of(rows), error=_NOMINAL_ERROR)
    return bool(abs(interval.centre) > interval.half_width)
