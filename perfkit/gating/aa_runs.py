"""A/A runs: the plan and the results of a calibration, and whether a machine is fit for a margin."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_NOT_MEASURED, EXIT_PASS, EXIT_REGRESSED
from perfkit.gating.judge import interval_error, last_look, pair_location
from perfkit.gating.rows import comparison_of, pairs_of
from perfkit.model import Machine, Row
from perfkit.model.calibration import (
    Calibration,
    Components,
    Condition,
    Fitness,
    Noise,
    Power,
    Share,
    Steadiness,
)
from perfkit.model.comparisons import UNDECIDED, Comparison, LaunchPair, Policy, Verdict
from perfkit.model.policies import CalibrationPolicy, judged_policy
from perfkit.stats.interval import log_ratios, lower_bound, upper_bound, widening
from perfkit.stats.planning import (
    decidable_margin,
    expected_half_width,
    minimum_detectable_effect,
    variance_components,
)

_ACCUSING = ("REGRESSED", "IMPROVED")
_UNMEASURED = ("FAILED", "TIMEOUT", "MISSING", "CHANGED")
_TOLERATED_OPEN = 0.1
_FEWEST_LAUNCHES = 5


@dataclass(frozen=True, kw_only=True)
class Case:
    """One gate of a calibration; ``slowdown`` is the injected slowdown of ``benchmark``, as a share."""

    number: int
    slowdown: float | None = None
    benchmark: str | None = None


def plan_cases(
    benchmarks: Sequence[str], *, gates: int, slowdowns: Sequence[float], seed: int
) -> tuple[Case, ...]:
    """Return ``gates`` A/A gates and as many with each injected slowdown, in a random order."""
    source = random.Random(seed)  # noqa: S311 (an experiment's order, not a secret)
    drafts: list[tuple[float | None, str | None]] = [(None, None)] * gates
    for slowdown in slowdowns:
        drafts += [(slowdown, name) for name in in_turn(source, benchmarks, gates)]
    source.shuffle(drafts)
    return tuple(
        Case(number=number, slowdown=slowdown, benchmark=name)
        for number, (slowdown, name) in enumerate(drafts, start=1)
    )


def in_turn(source: random.Random, names: Sequence[str], count: int) -> list[str]:
    """Return ``count`` names: each comes once before any is repeated, in an order drawn anew each time."""
    turns: list[str] = []
    while len(turns) < count:
        turns += source.sample(list(names), len(names))
    return turns[:count]


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
    """Return the results of a study's finished gates, every verdict recomputed; None where none finished."""
    cases: dict[int, list[tuple[CalibrationPolicy, Row]]] = {}
    for policy, row in _of_study(rows, study):
        cases.setdefault(policy.rehearsal.case, []).append((policy, row))
    gates = [_gate(cases[number]) for number in sorted(cases)]
    if not gates:
        return None
    identical = [gate for gate in gates if gate.plant is None]
    verdicts = [found.verdict for gate in identical for found in gate.comparisons.values() if found.gating]
    first = judged_policy(next(row for rows in gates[0].rows.values() for row in rows))
    accused = _share(sum(bool(gate.accused) for gate in identical), len(identical))
    undecided = _share(sum(verdict in UNDECIDED for verdict in verdicts), len(verdicts))
    unmeasured = sum(verdict in _UNMEASURED for verdict in verdicts)
    rules = first.rules
    return Calibration(
        planned=planned,
        gates=len(gates),
        policy=rules,
        margin=first.margin,
        accused=accused,
        unchanged=_passed(verdicts),
        undecided=undecided,
        powers=tuple(_powers(gates)),
        benchmarks=tuple(_steadiness(gates, rules)),
        median_gate_s=statistics.median(gate.wall_s for gate in gates),
        exit_code=_exit_code(accused, undecided, unmeasured, rules),
        unmeasured=unmeasured,
    )


def _of_study(rows: Iterable[Row], study: str) -> Iterator[tuple[CalibrationPolicy, Row]]:
    """Yield the rows of finished gates; those of an interrupted one are partial, or have no verdict."""
    for row in rows:
        policy = row.policy
        if row.partial or not isinstance(policy, CalibrationPolicy):
            continue
        if policy.rehearsal.study == study and policy.verdict:
            yield policy, row


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
        comparisons={name: comparison_of(own) for name, own in by_name.items()},
    )


def _powers(gates: Sequence[_Gate]) -> Iterator[Power]:
    for plant in sorted({gate.plant for gate in gates if gate.plant is not None}):
        slowed = [gate for gate in gates if gate.plant == plant]
        own = [gate.comparisons.get(str(gate.planted)) for gate in slowed]
        estimates = [found.estimate for found in own if found is not None]
        readings = [estimate.ratio - 1 for estimate in estimates if estimate is not None]
        yield Power(
            plant=plant,
            found=_share(sum(one is not None and one.verdict == "REGRESSED" for one in own), len(slowed)),
            others_accused=sum(bool(gate.accused - {gate.planted}) for gate in slowed),
            median_reading=statistics.median(readings) if readings else None,
        )


def _steadiness(gates: Sequence[_Gate], policy: Policy) -> Iterator[Steadiness]:
    for name in dict.fromkeys(name for gate in gates for name in gate.comparisons):
        bare = [gate for gate in gates if gate.planted != name and name in gate.comparisons]
        if not bare:
            continue
        launches = [pairs_of(gate.rows[name]) for gate in bare]
        found = [gate.comparisons[name] for gate in bare]
        effect, decidable = _detectable(launches, bare, policy, found[0].margin)
        times = [one.base_s for one in found if one.base_s is not None]
        yield Steadiness(
            benchmark=name,
            seconds=statistics.median(times) if times else None,
            unchanged=_passed([one.verdict for one in found]),
            components=_components(launches),
            launches=statistics.median(map(len, launches)),
            effect=effect,
            decidable=decidable,
        )


def _detectable(
    launches: Sequence[Sequence[LaunchPair]], gates: Sequence[_Gate], policy: Policy, margin: float
) -> tuple[float | None, float | None]:
    """Return the detectable slowdown and the decidable margin; None where no look was reached."""
    # The benchmark with most launches shows how many the budget allowed.
    allowed = [max(len(pairs_of(rows)) for rows in gate.rows.values()) for gate in gates]
    look = last_look(round(statistics.median(allowed)), policy)
    pairs = [pair for of_gate in launches for pair in of_gate]
    if look is None or len(pairs) <= 1:
        return None, None
    sd = statistics.stdev(map(pair_location, pairs))
    error = interval_error(pairs, policy, look=look)
    threshold, trimmed_from = policy.threshold(margin), policy.trimmed_from
    effect = minimum_detectable_effect(sd, look, error=error, margin=threshold, trimmed_from=trimmed_from)
    return effect, decidable_margin(sd, look, error=error, trimmed_from=trimmed_from)


def _components(gates: Sequence[Sequence[LaunchPair]]) -> Components:
    by_zygote: dict[object, list[float]] = {}
    for number, pairs in enumerate(gates):
        for pair in pairs:
            by_zygote.setdefault((number, pair.group), []).append(pair_location(pair))
    rounds = [log_ratios(*pair.sides("typical")).tolist() for pairs in gates for pair in pairs]
    return variance_components(by_zygote, rounds)


def _passed(verdicts: Sequence[Verdict]) -> Share:
    return _share(sum(one in ("UNCHANGED", "NOT SLOWER") for one in verdicts), len(verdicts))


def _share(count: int, of: int) -> Share:
    return Share(count=count, of=of, low=lower_bound(count, of), high=upper_bound(count, of))


def _exit_code(accused: Share, undecided: Share, unmeasured: int, policy: Policy) -> int:
    """Return 1 if the gate errs more often than alpha beyond doubt, 4 if it could not measure, 3 if open."""
    if not accused.of:
        return EXIT_NOT_MEASURED
    if accused.low > policy.alpha:
        return EXIT_REGRESSED
    if unmeasured:
        return EXIT_NOT_MEASURED
    too_open = undecided.count > _TOLERATED_OPEN * undecided.of
    return EXIT_INCONCLUSIVE if too_open else EXIT_PASS


def judge_fitness(
    machine: Machine,
    conditions: Sequence[Condition],
    pairs: Mapping[str, Sequence[LaunchPair]],
    *,
    launch_s: float,
    policy: Policy,
    margin: float,
    seconds_per_benchmark: float,
) -> Fitness:
    """Return whether a gate under ``policy`` could distinguish identical code from a change of ``margin``.

    ``pairs`` are A/A launches by benchmark; too few to show a scatter are left out. ``launch_s`` is the time
    of one launch of one benchmark, its share of everything else included.
    """
    look = last_look(int(seconds_per_benchmark / launch_s), policy)
    noises = tuple(
        _noise(name, found, launch_s=launch_s, look=look, policy=policy, margin=margin)
        for name, found in pairs.items()
        if len(found) >= _FEWEST_LAUNCHES
    )
    fit = bool(noises) and all(one.half_width is not None and one.half_width < margin for one in noises)
    return Fitness(
        machine=machine,
        margin=margin,
        policy=policy,
        seconds_per_benchmark=seconds_per_benchmark,
        conditions=tuple(conditions),
        noises=noises,
        fit=fit,
        exit_code=EXIT_PASS if fit else EXIT_INCONCLUSIVE if noises else EXIT_NOT_MEASURED,
    )


def _noise(
    name: str,
    pairs: Sequence[LaunchPair],
    *,
    launch_s: float,
    look: int | None,
    policy: Policy,
    margin: float,
) -> Noise:
    sd = statistics.stdev(map(pair_location, pairs))
    half_width, effect = None, None
    if look is not None:
        # The variance that launches of one zygote share widens the interval of a gate.
        wide = sd * widening([pair.group for pair in pairs], policy.shared_variance)
        error = interval_error(pairs, policy, look=look)
        trimmed_from = policy.trimmed_from
        half_width = math.expm1(expected_half_width(wide, look, error=error, trimmed_from=trimmed_from))
        effect = minimum_detectable_effect(wide, look, error=error, margin=margin, trimmed_from=trimmed_from)
    return Noise(
        benchmark=name,
        measured=len(pairs),
        launch_sd=sd,
        launch_s=launch_s,
        launches=look or 0,
        half_width=half_width,
        effect=effect,
    )
