"""A gate's measurements and findings as rows of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from perfkit.gating.counts import CountedPair
from perfkit.gating.sequential import ComparedBenchmark, MeasuredLaunch
from perfkit.model import (
    DEVICE_TIME,
    HOST_TIME,
    SIDES,
    TIME_SET_ASIDE,
    TYPICAL_TIME,
    WALL_TIME,
    Benchmark,
    Commit,
    Environment,
    Machine,
    Metric,
    Outcome,
    Placement,
    Row,
    Side,
    Source,
    Status,
)
from perfkit.model.comparisons import Comparison, ExactComparison, Policy, Verdict
from perfkit.model.counters import count_outcomes
from perfkit.model.counting import Counts
from perfkit.model.policies import Disturbance, JudgedPolicy, judged_policy
from perfkit.runner.agent.clock import ALONE
from perfkit.runner.lockstep.turns import Timing
from perfkit.runner.session import cold_start_values

_STATUS: Mapping[Verdict, Status] = {"TIMEOUT": "timeout", "FAILED": "error"}


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What all rows of one run share; ``kind`` makes a row's policy from what differs between rows.

    ``base_environment`` is that of base, None where it is that of head.
    """

    source: Source = "gate"
    run_id: str
    recorded_at: datetime
    commits: Mapping[Side, Commit]
    machine: Machine
    environment: Environment
    seed: int
    policy: Policy
    kind: Callable[..., JudgedPolicy] = JudgedPolicy
    base_environment: Environment | None = None

    def environment_of(self, side: Side | None) -> Environment:
        """Return the environment that a side was measured in."""
        return self.base_environment or self.environment if side == "base" else self.environment

    def judged(
        self,
        *,
        margin: float,
        gating: bool,
        verdict: Verdict | None = None,
        faults: float | None = None,
        cpu_s: float | None = None,
        collected_s: float | None = None,
        disturbed: tuple[Disturbance, ...] = (),
    ) -> JudgedPolicy:
        """Return the policy of a row."""
        return self.kind(
            rules=self.policy,
            margin=margin,
            gating=gating,
            verdict=verdict,
            faults=faults,
            cpu_s=cpu_s,
            collected_s=collected_s,
            disturbed=disturbed,
        )


def launch_rows(
    measured: Iterable[MeasuredLaunch],
    compared: Mapping[str, ComparedBenchmark],
    context: RunContext,
) -> Iterator[Row]:
    """Yield rows for each launch of each benchmark and side: for all calls, and for typical ones if known.

    On an accelerator the times of the device and of the host are rows of their own, and so is the first call.

    They have no verdict yet when they are recorded: ``settled`` adds it once the run is over.
    """
    for one in measured:
        for side in SIDES:
            for timed in _set_aside(one.timing, side) if one.set_aside else _timed(one.timing, side):
                yield _launch_row(one, side, compared[one.node], timed, context)
            cold = None if one.set_aside else one.timing.cold.get(side)
            for metric, seconds in cold_start_values(cold):
                row = _launch_row(one, side, compared[one.node], (metric, (seconds,)), context)
                policy = replace(row.policy, marks=(*row.policy.marks, *(cold.marks if cold else ())))
                outcome = replace(row.outcome, warmup=0, loops=1)
                yield replace(row, outcome=outcome, policy=policy)


def count_rows(
    pairs: Iterable[CountedPair], exact: Iterable[ExactComparison], context: RunContext
) -> Iterator[Row]:
    """Yield a row for each count of each side, or for the reason why there is none."""
    judged = {(one.benchmark.name, one.metric.name): one for one in exact}
    for pair in pairs:
        for side in SIDES:
            for outcome in count_outcomes(pair.benchmark, pair.counts[side]):
                one = judged[pair.benchmark.name, outcome.metric.name]
                policy = context.judged(margin=one.margin, gating=one.gating, verdict=one.verdict)
                yield _row(outcome, Placement(side=side, seed=context.seed), policy, context)


def side_count_rows(
    benchmark: Benchmark, counts: Mapping[Side, Counts], context: RunContext
) -> Iterator[Row]:
    """Yield a row for each count of sides that are not compared, or for the reason why there is none."""
    policy = context.judged(margin=0.0, gating=False)
    for side, found in counts.items():
        for outcome in count_outcomes(benchmark, found):
            yield _row(outcome, Placement(side=side, seed=context.seed), policy, context)


def finding_row(comparison: Comparison, context: RunContext) -> Row:
    """Return the row of a benchmark that failed, or that has no launch of its own in this gate.

    A benchmark that earlier gates had already decided is not filed as a failure.
    """
    status = "ok" if comparison.estimate else _STATUS.get(comparison.verdict, "skipped")
    policy = context.judged(margin=comparison.margin, gating=comparison.gating, verdict=comparison.verdict)
    outcome = Outcome(benchmark=comparison.benchmark, status=status, message=comparison.message)
    return _row(outcome, Placement(side="head", seed=context.seed), policy, context)


def settled(
    row: Row, verdicts: Mapping[str, Verdict], *, wall_s: float, continues: Sequence[str] = ()
) -> Row:
    """Return a row with what is known only when its run is over: its seconds, and the benchmark's verdict.

    A count has its own verdict already; a benchmark that was not judged gets none.
    """
    policy = judged_policy(row)
    verdict = policy.verdict or verdicts.get(row.outcome.benchmark.name)
    said = replace(policy, verdict=verdict, wall_s=round(wall_s, 2), continues=tuple(continues))
    return replace(row, policy=said)


def _timed(timing: Timing, side: Side) -> Iterator[tuple[Metric, tuple[float, ...]]]:
    yield WALL_TIME, timing.base_s if side == "base" else timing.head_s
    typical_s = timing.base_typical_s if side == "base" else timing.head_typical_s
    if typical_s:
        yield TYPICAL_TIME, typical_s
    device = timing.devices.get(side)
    if device is not None and device.device_s:
        yield DEVICE_TIME, device.device_s
    if device is not None and device.host_s:
        yield HOST_TIME, device.host_s


def _set_aside(timing: Timing, side: Side) -> Iterator[tuple[Metric, tuple[float, ...]]]:
    yield TIME_SET_ASIDE, timing.base_s if side == "base" else timing.head_s


def _launch_row(
    one: MeasuredLaunch,
    side: Side,
    compared: ComparedBenchmark,
    timed: tuple[Metric, tuple[float, ...]],
    context: RunContext,
) -> Row:
    timing = one.timing
    metric, values = timed
    outcome = Outcome(
        benchmark=compared.benchmark,
        metric=metric,
        warmup=timing.pace.untimed,
        loops=timing.pace.loops,
        values=values,
    )
    placement = Placement(
        side=side,
        launch=one.slot.launch,
        preloader=one.preloader,
        block=one.slot.block,
        order=0 if one.slot.begins == side else 1,
        seed=context.seed,
    )
    policy = context.judged(
        margin=compared.margin,
        gating=compared.gating,
        faults=round(timing.faults_per_iteration[side], 1),
        cpu_s=timing.cpu_s.get(side),
        collected_s=timing.collected_s.get(side),
        disturbed=one.disturbed,
    )
    on_device = timing.devices[side].marks if side in timing.devices else ()
    alone = (ALONE,) if timing.alone else ()
    if marks := (*on_device, *alone, *one.marks):
        policy = replace(policy, marks=marks)
    row = _row(outcome, placement, policy, context)
    if facts := {**one.facts, **_reserved(timing, side)}:
        row = replace(row, machine=replace(row.machine, facts={**row.machine.facts, **facts}))
    return replace(row, recorded_at=one.at)


def _reserved(timing: Timing, side: Side) -> Mapping[str, str]:
    """Return the most bytes that a side reserved of each device by the end of its rounds."""
    return {f"gpu{one.index}_reserved_bytes": str(one.peak) for one in timing.memory.get(side, ())}


def _row(outcome: Outcome, placement: Placement, policy: JudgedPolicy, context: RunContext) -> Row:
    return Row(
        run_id=context.run_id,
        recorded_at=context.recorded_at,
        source=context.source,
        commit=context.commits[placement.side or "head"],
        machine=context.machine,
        environment=context.environment_of(placement.side),
        outcome=outcome,
        placement=placement,
        policy=policy,
    )
