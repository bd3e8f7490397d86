"""Predicts what a gate would find in its time, from earlier gates on this machine.

The benchmarks go through an imagined gate in which nothing has changed: it shares its time out as a real one
does, and a benchmark leaves at the look that decides identical code. What is left at its end would go to one
that became slower and therefore stayed open.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from perfkit.gating.design import (
    MOST_KEPT,
    USUAL_SD,
    Candidate,
    Forecast,
    Method,
    counting_s,
    share_out,
    usual_look,
)
from perfkit.gating.judge import WELL_KNOWN, interval_error, joined_pairs, last_look, pair_location
from perfkit.gating.rows import pairs_of
from perfkit.gating.rules import ComparedBenchmark
from perfkit.gating.run import BenchmarkState
from perfkit.model import WALL_TIME, Benchmark, Row
from perfkit.model.comparisons import UNDECIDED, KnownFrom, LaunchPair, PlannedBenchmark, Policy, Verdict
from perfkit.stats.interval import trimmed_variance, widening
from perfkit.stats.planning import deciding_look, minimum_detectable_effect, pooled_spread

# A launch of a benchmark of short calls usually takes this many seconds, with its share of what all
# benchmarks have in common. It is assumed where no gate on this machine is in the ledger.
USUAL_LAUNCH_S = 0.3
# A scatter rests on at least this many degrees of freedom: fewer launches do not show it.
_FEWEST_DEGREES = 4
# A slowdown to more than ten times the time is beyond what a gate is planned for.
_LARGEST_EFFECT = 9.0
# A benchmark's name, and its version: another source may scatter otherwise.
Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Experience:
    """What earlier gates on a machine show of one benchmark: its launches by gate, and their mean seconds."""

    gates: Sequence[Sequence[LaunchPair]] = ()
    seconds: Sequence[float] = ()

    @property
    def pairs(self) -> tuple[LaunchPair, ...]:
        """The launches of all gates as one series."""
        return joined_pairs(self.gates)

    @property
    def launch_s(self) -> float | None:
        """The seconds that a launch takes in the median gate, None where that is not known."""
        return statistics.median(self.seconds) if self.seconds else None

    def wide_sd(self, policy: Policy) -> float | None:
        """Return the deviation of log ratios, as wide as an interval takes it; None from too few launches.

        It is that within gates, since two gates may have compared code that differs.
        """
        logs = [[pair_location(pair) for pair in pairs] for pairs in self.gates]
        spread = pooled_spread(logs, partial(trimmed_variance, trimmed_from=policy.trimmed_from))
        if spread is None or spread.degrees < _FEWEST_DEGREES:
            return None
        return spread.sd * widening([pair.group for pair in self.pairs], policy.shared_variance)


@dataclass(frozen=True, kw_only=True)
class Foresight:
    """The benchmarks of a gate that has not been made, how long it would take, and the budget for all of it.

    ``unchanged_s`` and ``enough_s`` are as in a ``GatePlan``.
    """

    benchmarks: tuple[PlannedBenchmark, ...]
    unchanged_s: float
    enough_s: float | None


def experience_from(rows: Iterable[Row], machine_id: str) -> Mapping[Key, Experience]:
    """Return what the rows of gates show of each benchmark on a machine."""
    runs: dict[str, list[Row]] = {}
    for row in rows:
        timed = row.outcome.causes is None and bool(row.outcome.values)
        if row.source == "gate" and row.machine.machine_id == machine_id and timed:
            runs.setdefault(row.run_id, []).append(row)
    gates: dict[Key, list[Sequence[LaunchPair]]] = {}
    seconds: dict[Key, list[float]] = {}
    for of_run in runs.values():
        by_benchmark: dict[Key, list[Row]] = {}
        for row in of_run:
            by_benchmark.setdefault(_key(row.outcome.benchmark), []).append(row)
        for key, own in by_benchmark.items():
            gates.setdefault(key, []).append(pairs_of(own))
        for key, costs in _launch_seconds(of_run).items():
            seconds.setdefault(key, []).append(statistics.fmean(costs))
    return {key: Experience(gates=found, seconds=seconds.get(key, ())) for key, found in gates.items()}


def foresee(
    compared: Sequence[ComparedBenchmark],
    known: Mapping[Key, Experience],
    method: Method,
    *,
    set_up_s: float,
) -> Foresight:
    """Return what a gate of these benchmarks would find, when setting up takes ``set_up_s`` seconds."""
    policy = method.policy
    gate = _ImaginedGate(policy=policy, expected=tuple(_expected(compared, known, policy)))
    whole_s = max(method.budget_s - set_up_s, 0.0)
    counting = sum(counting_s(one.launch_s, one.call_s) for one in gate.expected) if method.counted else 0.0
    kept_s = min(counting, MOST_KEPT * whole_s)
    left_s = gate.run(whole_s - kept_s)
    costs = [one.decision_s or one.next_look_s for one in gate.candidates()]
    forecast = Forecast(costs_s=costs, left_s=left_s, after_s=kept_s)
    return Foresight(
        benchmarks=tuple(_planned(one, gate.launches[one.node], left_s, policy) for one in gate.expected),
        unchanged_s=max(method.budget_s - left_s, set_up_s),
        enough_s=forecast.enough_s(method.budget_s) if costs else None,
    )


@dataclass(frozen=True, kw_only=True)
class _Expected:
    """A benchmark with what is known of it, or else assumed.

    ``unchanged_at`` is the look at which it would leave where it has not changed, None where none decides;
    ``decided`` is the verdict that earlier gates on the pair have come to, if any.
    """

    node: str
    compared: ComparedBenchmark
    pairs: tuple[LaunchPair, ...]
    gates: int
    sd: float
    launch_s: float
    known_from: KnownFrom
    unchanged_at: int | None
    decided: Verdict | None

    @property
    def call_s(self) -> float:
        return statistics.median(self.pairs[-1].head_s) if self.pairs else 0.0


@dataclass
class _ImaginedGate:
    """A gate in which nothing has changed, whose launches take what is expected of them."""

    policy: Policy
    expected: tuple[_Expected, ...]
    launches: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.launches = {one.node: len(one.compared.prior) for one in self.expected}

    def run(self, left_s: float) -> float:
        """Share the time out until all is decided or none can have its next look; return what is left."""
        costs_s = {one.node: one.launch_s for one in self.expected}
        while True:
            chosen = share_out(self.candidates(), left_s)
            if not chosen:
                return left_s
            # Until one of them has a look nothing changes who is measured.
            steps = min(self._to_next_look(node) for node in chosen)
            for node in chosen:
                self.launches[node] += steps
                left_s -= steps * costs_s[node]

    def candidates(self) -> list[Candidate]:
        """Return the benchmarks that are open and have a look left."""
        found = map(self._candidate, self.expected)
        return [one for one in found if one is not None]

    def _candidate(self, one: _Expected) -> Candidate | None:
        launches, leaves = self.launches[one.node], one.unchanged_at
        is_over = launches >= (self.policy.looks[-1] if leaves is None else leaves)
        if one.decided or is_over:
            return None
        # As in a gate, the usual scatter is assumed until a benchmark has shown its own.
        if launches < WELL_KNOWN:
            leaves = max(usual_look(self.policy, one.compared.margin), self._next_look(one.node))
        return Candidate(
            node=one.node,
            next_look_s=self._to_next_look(one.node) * one.launch_s,
            decision_s=None if leaves is None else (leaves - launches) * one.launch_s,
            suspect=False,
            changed=one.compared.changed,
            begun=launches > len(one.compared.prior),
            swept=launches >= self.policy.looks[0],
        )

    def _to_next_look(self, node: str) -> int:
        return self._next_look(node) - self.launches[node]

    def _next_look(self, node: str) -> int:
        return min(look for look in self.policy.looks if look > self.launches[node])


def _expected(
    compared: Sequence[ComparedBenchmark], known: Mapping[Key, Experience], policy: Policy
) -> Iterator[_Expected]:
    """Yield each benchmark with its own scatter and cost; what is not known is that of others, or usual."""
    sds = {key: sd for key, one in known.items() if (sd := one.wide_sd(policy)) is not None}
    costs_s = {key: cost_s for key, one in known.items() if (cost_s := one.launch_s) is not None}
    usual_sd = statistics.median(sds.values()) if sds else USUAL_SD
    usual_s = statistics.fmean(costs_s.values()) if costs_s else USUAL_LAUNCH_S
    for one in compared:
        key = _key(one.benchmark)
        experience, sd = known.get(key, Experience()), sds.get(key, usual_sd)
        known_from: KnownFrom = "its gates" if key in sds else "other benchmarks" if sds else "usual"
        yield _Expected(
            node=one.benchmark.name,
            compared=one,
            pairs=experience.pairs,
            gates=len(experience.gates) if key in sds else 0,
            sd=sd,
            launch_s=costs_s.get(key, usual_s),
            known_from=known_from,
            unchanged_at=_unchanged_at(one, sd, experience.pairs, policy),
            decided=_decided(one, policy),
        )


def _decided(one: ComparedBenchmark, policy: Policy) -> Verdict | None:
    verdict = BenchmarkState(one).judge(policy).verdict
    return None if verdict in UNDECIDED else verdict


def _unchanged_at(
    one: ComparedBenchmark, sd: float, pairs: Sequence[LaunchPair], policy: Policy
) -> int | None:
    """Return the look, of those still to come, that decides identical code; None where none does."""
    for look in policy.looks:
        decides = look > len(one.prior) and deciding_look(
            0.0,
            _judged_sd(sd, look, policy),
            errors={look: interval_error(pairs, policy, look=look)},
            margin=one.margin,
            threshold=policy.threshold(one.margin),
            trimmed_from=policy.trimmed_from,
            one_sided=policy.one_sided,
        )
        if decides:
            return look
    return None


def _judged_sd(sd: float, launches: int, policy: Policy) -> float:
    return max(sd, policy.least_sd) if launches < WELL_KNOWN else sd


def _planned(one: _Expected, launches: int, left_s: float, policy: Policy) -> PlannedBenchmark:
    """Return what would be found of a benchmark that has had its launches, and gets what time is left."""
    if one.decided is None:
        launches += int(left_s / one.launch_s)
    reached = last_look(launches, policy) or 0
    return PlannedBenchmark(
        benchmark=one.compared.benchmark,
        margin=one.compared.margin,
        gating=one.compared.gating,
        launch_sd=one.sd,
        launch_s=one.launch_s,
        known_from=one.known_from,
        gates=one.gates,
        launches=reached,
        seconds=max(reached - len(one.compared.prior), 0) * one.launch_s,
        effect=_effect(one, reached, policy) if reached and one.decided is None else None,
        decided=one.decided,
    )


def _effect(one: _Expected, launches: int, policy: Policy) -> float | None:
    error = interval_error(one.pairs, policy, look=launches)
    effect = minimum_detectable_effect(
        _judged_sd(one.sd, launches, policy),
        launches,
        error=error,
        margin=policy.threshold(one.compared.margin),
        trimmed_from=policy.trimmed_from,
    )
    return effect if effect <= _LARGEST_EFFECT else None


def _launch_seconds(rows: Sequence[Row]) -> Mapping[Key, Sequence[float]]:
    """Return the seconds of each benchmark's launches in a gate, those of its first launch left out.

    Rows hold when a launch was complete and what was timed in it. What else went by since the launch before
    is shared among the benchmarks of the launch.
    """
    timed: dict[int, dict[Key, float]] = {}
    complete: dict[int, datetime] = {}
    for row in rows:
        if row.outcome.metric == WALL_TIME:
            launch, key = row.placement.launch, _key(row.outcome.benchmark)
            of_launch = timed.setdefault(launch, {})
            of_launch[key] = of_launch.get(key, 0.0) + (row.outcome.loops or 1) * sum(row.outcome.values)
            complete[launch] = max(complete.get(launch, row.recorded_at), row.recorded_at)
    found: dict[Key, list[float]] = {}
    for before, launch in itertools.pairwise(sorted(complete, key=complete.__getitem__)):
        took_s = (complete[launch] - complete[before]).total_seconds()
        shared_s = max(took_s - sum(timed[launch].values()), 0.0) / len(timed[launch])
        for key, timed_s in timed[launch].items():
            found.setdefault(key, []).append(timed_s + shared_s)
    return found


def _key(benchmark: Benchmark) -> Key:
    return benchmark.name, benchmark.version
