"""What a calibration says of the gate: how often it errs, what it finds, what it leaves open, and why."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_NOT_MEASURED, EXIT_PASS, EXIT_REGRESSED
from perfkit.gating.judge import interval_error, last_look, pair_location
from perfkit.gating.rows import comparison_of, pairs_of
from perfkit.model import Row
from perfkit.model.comparisons import UNDECIDED, Comparison, LaunchPair, Policy, Verdict
from perfkit.model.policies import CalibrationPolicy, judged_policy
from perfkit.stats.binomial import lower_bound, upper_bound
from perfkit.stats.components import Components, variance_components
from perfkit.stats.location import log_ratios
from perfkit.stats.planning import decidable_margin, minimum_detectable_effect

_ACCUSING = ("REGRESSED", "IMPROVED")
_UNMEASURED = ("FAILED", "TIMEOUT", "MISSING", "CHANGED")
_TOLERATED_OPEN = 0.1


@dataclass(frozen=True, kw_only=True)
class Share:
    """A counted share with its exact one-sided bounds at 95 % each (Clopper and Pearson 1934)."""

    count: int
    of: int
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Power:
    """How often a plant (a relative slowdown) was found, and how many gates accused another benchmark."""

    plant: float
    found: Share
    others_accused: int
    median_reading: float | None


@dataclass(frozen=True, kw_only=True)
class Steadiness:
    """One benchmark over the gates in which it had no plant.

    ``components`` are deviations of log ratios; ``launches`` the median number it took until it was decided;
    ``effect`` the slowdown that would be found 19 times of 20, and ``decidable`` the smallest margin at which
    identical code would be UNCHANGED nine times of ten, after as many launches as the budget allowed.
    """

    benchmark: str
    seconds: float | None
    unchanged: Share
    components: Components
    launches: float
    effect: float | None
    decidable: float | None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A calibration as far as it has run; the first three shares are of the gates of identical code.

    ``unmeasured`` counts how often a benchmark failed in them, took too long, or was on one side only.
    """

    planned: int
    gates: int
    policy: Policy
    margin: float
    accused: Share
    unchanged: Share
    undecided: Share
    powers: tuple[Power, ...]
    benchmarks: tuple[Steadiness, ...]
    median_gate_s: float
    exit_code: int
    unmeasured: int = 0


@dataclass(frozen=True, kw_only=True)
class _Gate:
    plant: float | None
    planted: str | None
    wall_s: float
    rows: Mapping[str, Sequence[Row]]
    comparisons: Mapping[str, Comparison]

    @property
    def accused(self) -> set[str]:
        """The benchmarks that gate and were accused or praised; the others have no share of alpha."""
        return {
            name for name, found in self.comparisons.items() if found.gating and found.verdict in _ACCUSING
        }


def finished_cases(rows: Iterable[Row], study: str) -> frozenset[int]:
    """Return the numbers of the gates of a study that ran to their end."""
    return frozenset(policy.rehearsal.case for policy, _ in _of_study(rows, study))


def calibration_of(rows: Sequence[Row], *, study: str, planned: int) -> Calibration | None:
    """Return what the finished gates of a study say, every verdict recomputed; None where none finished."""
    gates = _gates(_of_study(rows, study))
    if not gates:
        return None
    alike = [gate for gate in gates if gate.plant is None]
    verdicts = [found.verdict for gate in alike for found in gate.comparisons.values() if found.gating]
    first = judged_policy(next(row for rows in gates[0].rows.values() for row in rows))
    accused = _share(sum(bool(gate.accused) for gate in alike), len(alike))
    undecided = _share(sum(verdict in UNDECIDED for verdict in verdicts), len(verdicts))
    unmeasured = sum(verdict in _UNMEASURED for verdict in verdicts)
    policy = first.rules
    return Calibration(
        planned=planned,
        gates=len(gates),
        policy=policy,
        margin=first.margin,
        accused=accused,
        unchanged=_passed(verdicts),
        undecided=undecided,
        powers=tuple(_powers(gates)),
        benchmarks=tuple(_steadiness(gates, policy)),
        median_gate_s=statistics.median(gate.wall_s for gate in gates),
        exit_code=_exit_code(accused, undecided, unmeasured, policy),
        unmeasured=unmeasured,
    )


def _of_study(rows: Iterable[Row], study: str) -> Iterator[tuple[CalibrationPolicy, Row]]:
    """Yield the rows of finished gates: those of an interrupted one are partial, or have no verdict."""
    for row in rows:
        policy = row.policy
        if row.partial or not isinstance(policy, CalibrationPolicy):
            continue
        if policy.rehearsal.study == study and policy.verdict:
            yield policy, row


def _gates(rows: Iterable[tuple[CalibrationPolicy, Row]]) -> list[_Gate]:
    cases: dict[int, list[tuple[CalibrationPolicy, Row]]] = {}
    for policy, row in rows:
        cases.setdefault(policy.rehearsal.case, []).append((policy, row))
    return [_gate(of_case) for _, of_case in sorted(cases.items())]


def _gate(rows: Sequence[tuple[CalibrationPolicy, Row]]) -> _Gate:
    by_name: dict[str, list[Row]] = {}
    for _, row in rows:
        by_name.setdefault(row.outcome.benchmark.name, []).append(row)
    first, _ = rows[0]
    return _Gate(
        plant=first.rehearsal.plant,
        planted=first.rehearsal.planted,
        wall_s=first.wall_s or 0.0,
        rows=by_name,
        comparisons={name: comparison_of(rows) for name, rows in by_name.items()},
    )


def _powers(gates: Sequence[_Gate]) -> Iterator[Power]:
    for plant in sorted({gate.plant for gate in gates if gate.plant is not None}):
        planted = [gate for gate in gates if gate.plant == plant]
        found = sum(_verdict(gate) == "REGRESSED" for gate in planted)
        estimates = [gate.comparisons[str(gate.planted)].estimate for gate in planted if _verdict(gate)]
        readings = [estimate.ratio - 1 for estimate in estimates if estimate is not None]
        yield Power(
            plant=plant,
            found=_share(found, len(planted)),
            others_accused=sum(bool(gate.accused - {gate.planted}) for gate in planted),
            median_reading=statistics.median(readings) if readings else None,
        )


def _verdict(gate: _Gate) -> str | None:
    comparison = gate.comparisons.get(str(gate.planted))
    return None if comparison is None else comparison.verdict


def _steadiness(gates: Sequence[_Gate], policy: Policy) -> Iterator[Steadiness]:
    for name in dict.fromkeys(name for gate in gates for name in gate.comparisons):
        bare = [gate for gate in gates if gate.planted != name and name in gate.comparisons]
        if bare:
            yield _steadiness_of(name, bare, policy)


def _steadiness_of(name: str, gates: Sequence[_Gate], policy: Policy) -> Steadiness:
    pairs = [pairs_of(gate.rows[name]) for gate in gates]
    verdicts = [gate.comparisons[name].verdict for gate in gates]
    margin = gates[0].comparisons[name].margin
    effect, decidable = _reach(pairs, gates, policy, margin)
    times = [found for gate in gates if (found := gate.comparisons[name].base_s) is not None]
    return Steadiness(
        benchmark=name,
        seconds=statistics.median(times) if times else None,
        unchanged=_passed(verdicts),
        components=_components(pairs),
        launches=statistics.median(map(len, pairs)),
        effect=effect,
        decidable=decidable,
    )


def _reach(
    launches: Sequence[Sequence[LaunchPair]], gates: Sequence[_Gate], policy: Policy, margin: float
) -> tuple[float | None, float | None]:
    """Return the detectable slowdown and the decidable margin; None where no look was reached."""
    reached = last_look(round(statistics.median(map(_most_launches, gates))), policy)
    logs = [pair_location(pair) for pairs in launches for pair in pairs]
    if reached is None or len(logs) <= 1:
        return None, None
    sd = statistics.stdev(logs)
    error = interval_error([pair for pairs in launches for pair in pairs], policy, look=reached)
    threshold, trimmed_from = policy.threshold(margin), policy.trimmed_from
    effect = minimum_detectable_effect(sd, reached, error=error, margin=threshold, trimmed_from=trimmed_from)
    return effect, decidable_margin(sd, reached, error=error, trimmed_from=trimmed_from)


def _most_launches(gate: _Gate) -> int:
    """Return the most launches that any benchmark had, which is how many the budget allowed."""
    return max(len(pairs_of(rows)) for rows in gate.rows.values())


def _components(gates: Sequence[Sequence[LaunchPair]]) -> Components:
    by_preloader: dict[object, list[float]] = {}
    for number, pairs in enumerate(gates):
        for pair in pairs:
            place = (number, pair.preloader)
            by_preloader.setdefault(place, []).append(pair_location(pair))
    rounds = [log_ratios(*pair.sides("typical")).tolist() for pairs in gates for pair in pairs]
    return variance_components(by_preloader, rounds)


def _passed(verdicts: Sequence[Verdict]) -> Share:
    return _share(sum(one in ("UNCHANGED", "NOT SLOWER") for one in verdicts), len(verdicts))


def _share(count: int, of: int) -> Share:
    return Share(count=count, of=of, low=lower_bound(count, of), high=upper_bound(count, of))


def _exit_code(accused: Share, undecided: Share, unmeasured: int, policy: Policy) -> int:
    """Return 1 where the gate errs more often than alpha beyond doubt, 4 where it could not measure all.

    It is 3 where it leaves too much open.
    """
    if not accused.of:
        return EXIT_NOT_MEASURED
    if accused.low > policy.alpha:
        return EXIT_REGRESSED
    if unmeasured:
        return EXIT_NOT_MEASURED
    too_open = undecided.count > _TOLERATED_OPEN * undecided.of
    return EXIT_INCONCLUSIVE if too_open else EXIT_PASS
