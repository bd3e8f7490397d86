"""Rows of the ledger: those that a gate writes, and the comparisons that follow from them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from perfkit.agent.clock import ALONE
from perfkit.agent.counters.model import Counts
from perfkit.config import Project
from perfkit.errors import EXIT_NOT_MEASURED, EXIT_PASS, LedgerError, RepositoryError
from perfkit.gating.accept import find_acceptances, mark
from perfkit.gating.counter_verdicts import compare_count, explain_counts, not_compared, without_blame
from perfkit.gating.counters import CountedPair
from perfkit.gating.judge import compare, joined_pairs, slow_first_calls
from perfkit.gating.rules import ComparedBenchmark
from perfkit.gating.run import MeasuredLaunch
from perfkit.ledger.recording import RunFacts, cold_start_values, device_values
from perfkit.ledger.store import Ledger
from perfkit.model import (
    GATES,
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
from perfkit.model.comparisons import (
    Acceptance,
    Comparison,
    ExactComparison,
    GateReport,
    LaunchPair,
    Policy,
    Verdict,
    exit_code,
)
from perfkit.model.counters import NOT_COUNTED, count_of, count_outcomes, is_count
from perfkit.model.history import GateRatio
from perfkit.model.policies import Disturbance, JudgedPolicy, gate_policy, judged_policy
from perfkit.repo.sides import SidePair
from perfkit.runner.lockstep.turns import Timing

_STATUS: Mapping[Verdict, Status] = {"TIMEOUT": "timeout", "FAILED": "error"}
# Findings on benchmarks that could not be compared.
NOT_TIMED = frozenset({"NEW", "MISSING", "CHANGED", "FAILED", "TIMEOUT", "SKIPPED", "SAME CODE"})


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What all rows of one run share; ``kind`` makes a row's policy from what differs between rows.

    ``base_environment`` is that of base, None where it is that of head. ``same`` maps benchmarks to the hash
    of the code that they run on both sides.
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
    same: Mapping[str, str] = field(default_factory=dict)

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
        peak_bytes: float | None = None,
        first_s: float | None = None,
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
            peak_bytes=peak_bytes,
            first_s=first_s,
            disturbed=disturbed,
        )


def launch_rows(
    measured: Iterable[MeasuredLaunch],
    compared: Mapping[str, ComparedBenchmark],
    context: RunContext,
) -> Iterator[Row]:
    """Yield rows for each launch of each benchmark and side: for all calls, and for lower-quartile ones.

    On an accelerator the times of the device and of the host are rows of their own, and so is the first call.

    They have no verdict yet when they are recorded: ``finished_row`` adds it once the run is over.
    """
    for one in measured:
        for side in SIDES:
            for timed in _set_aside(one.timing, side) if one.set_aside else _timed(one.timing, side):
                yield _launch_row(one, side, compared[one.node], timed, context)
            cold = None if one.set_aside else one.timing.cold.get(side)
            for timed in cold_start_values(cold):
                row = _launch_row(one, side, compared[one.node], timed, context)
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

    A benchmark that earlier gates had already decided, or that runs no changed code, is not filed as a
    failure.
    """
    is_fine = comparison.estimate is not None or comparison.verdict == "SAME CODE"
    status = "ok" if is_fine else _STATUS.get(comparison.verdict, "skipped")
    policy = context.judged(margin=comparison.margin, gating=comparison.gating, verdict=comparison.verdict)
    outcome = Outcome(benchmark=comparison.benchmark, status=status, message=comparison.message)
    return _row(outcome, Placement(side="head", seed=context.seed), policy, context)


def finished_row(
    row: Row, judged: Mapping[str, Comparison], *, wall_s: float, continues: Sequence[str] = ()
) -> Row:
    """Return a row with what is known only when its run is over: its seconds, and what was found.

    A count has its own verdict already; a benchmark that was not judged gets none.
    """
    policy, one = judged_policy(row), judged.get(row.outcome.benchmark.name)
    found = replace(
        policy,
        verdict=policy.verdict or (one.verdict if one else None),
        wall_s=round(wall_s, 2),
        continues=tuple(continues),
        doubts=one.doubts if one and not is_count(row) else (),
        result=one.result if one and not is_count(row) else None,
    )
    return replace(row, policy=found)


def _timed(timing: Timing, side: Side) -> Iterator[tuple[Metric, tuple[float, ...]]]:
    yield WALL_TIME, timing.base_s if side == "base" else timing.head_s
    typical_s = timing.base_typical_s if side == "base" else timing.head_typical_s
    if typical_s:
        yield TYPICAL_TIME, typical_s
    yield from device_values(timing.devices.get(side))


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
        warmup=timing.plan.untimed,
        loops=timing.plan.loops,
        values=values,
    )
    placement = Placement(
        side=side,
        launch=one.slot.launch,
        preloader=one.group,
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
        peak_bytes=timing.peak_bytes.get(side) if metric == WALL_TIME else None,
        first_s=timing.first_s.get(side) if metric == WALL_TIME else None,
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
    return {f"gpu{one.index}_reserved_bytes": str(one.peak) for one in timing.memory.get(side, ())}


def _row(outcome: Outcome, placement: Placement, policy: JudgedPolicy, context: RunContext) -> Row:
    facts = RunFacts(
        run_id=context.run_id,
        recorded_at=context.recorded_at,
        source=context.source,
        commit=context.commits[placement.side or "head"],
        machine=context.machine,
        environment=context.environment_of(placement.side),
    )
    if placement.side == "head" and (ran := context.same.get(outcome.benchmark.name)) is not None:
        outcome = replace(outcome, same_as=context.commits["base"].sha, ran=ran or None)
    return facts.row(outcome, placement=placement, policy=policy)


def policy_of(rows: Sequence[Row]) -> Policy:
    """Return the rules that rows of a gate were measured under."""
    return judged_policy(rows[0]).rules


def pairs_of(rows: Sequence[Row]) -> tuple[LaunchPair, ...]:
    """Return the launches of one benchmark in one run, in order, from the rows of both sides."""
    base, head = (_timed_rows(rows, side, WALL_TIME) for side in SIDES)
    typical = {side: _timed_rows(rows, side, TYPICAL_TIME) for side in SIDES}
    return tuple(
        LaunchPair(
            launch=launch,
            group=head[launch].placement.preloader or 0,
            base_s=base[launch].outcome.values,
            head_s=head[launch].outcome.values,
            base_typical_s=_values(typical["base"].get(launch)),
            head_typical_s=_values(typical["head"].get(launch)),
            begins=_begins(head[launch]),
            base_cpu_s=_cpu_s(base[launch]),
            head_cpu_s=_cpu_s(head[launch]),
            base_collected_s=_collected_s(base[launch]),
            head_collected_s=_collected_s(head[launch]),
            base_peak=_peak(base[launch]),
            head_peak=_peak(head[launch]),
            base_first_s=_first_s(base[launch]),
            head_first_s=_first_s(head[launch]),
        )
        for launch in sorted(base.keys() & head.keys())
    )


def _cpu_s(row: Row) -> float | None:
    return row.policy.cpu_s if isinstance(row.policy, JudgedPolicy) else None


def _collected_s(row: Row) -> float:
    return (row.policy.collected_s or 0.0) if isinstance(row.policy, JudgedPolicy) else 0.0


def _peak(row: Row) -> float | None:
    return row.policy.peak_bytes if isinstance(row.policy, JudgedPolicy) else None


def _first_s(row: Row) -> float | None:
    return row.policy.first_s if isinstance(row.policy, JudgedPolicy) else None


def comparison_of(rows: Sequence[Row], prior: Sequence[Sequence[Row]] = ()) -> Comparison:
    """Return the verdict on one benchmark from its rows in a run, and in the runs that it continued."""
    last = rows[-1]
    policy = judged_policy(last)
    # The launches before a failure decide nothing. The row of the failure comes last and has its cause.
    for row in reversed(rows):
        verdict = judged_policy(row).verdict
        if verdict in NOT_TIMED:
            return Comparison(
                benchmark=row.outcome.benchmark,
                verdict=verdict,
                margin=policy.margin,
                gating=policy.gating,
                message=row.outcome.message,
            )
    pairs = joined_pairs([pairs_of(run) for run in (*prior, rows)])
    found = compare(
        last.outcome.benchmark, pairs, policy_of(rows), margin=policy.margin, gating=policy.gating
    )
    return replace(found, result=policy.result).doubted(*policy.doubts)


def exact_comparisons_of(rows: Sequence[Row]) -> list[ExactComparison]:
    """Return the comparisons of counts that the rows of both sides of a run lead to."""
    by_count: dict[tuple[str, str], dict[Side, Row]] = {}
    for row in rows:
        if is_count(row) and row.placement.side is not None:
            key = row.outcome.benchmark.name, row.outcome.metric.name
            by_count.setdefault(key, {})[row.placement.side] = row
    return [_exact_comparison(sides.get("base"), sides.get("head")) for sides in by_count.values()]


def _exact_comparison(base: Row | None, head: Row | None) -> ExactComparison:
    row = head or base
    assert row is not None  # noqa: S101 (there is one row at least)
    old, new = (count_of(one) if one is not None else None for one in (base, head))
    benchmark, policy = row.outcome.benchmark, judged_policy(row)
    if old is None or new is None:
        reasons = (_why_not(base), _why_not(head))
        return not_compared(benchmark, row.outcome.metric.name, old, new, reasons, gating=policy.gating)
    found = compare_count(benchmark, old, new, margin=policy.margin, gating=policy.gating)
    return without_blame(found) if policy.rules.same_code else found


def _why_not(row: Row | None) -> str | None:
    return (row.outcome.message or "").removeprefix(NOT_COUNTED) or None if row is not None else None


def _values(row: Row | None) -> tuple[float, ...]:
    return row.outcome.values if row is not None else ()


def _begins(head: Row) -> Side | None:
    order = head.placement.order
    return None if order is None else "base" if order else "head"


def _timed_rows(rows: Sequence[Row], side: Side, metric: Metric) -> dict[int, Row]:
    return {
        row.placement.launch: row
        for row in rows
        if row.placement.side == side and row.outcome.metric == metric and row.outcome.values
    }


@dataclass(frozen=True, kw_only=True)
class Prior:
    """The rows of earlier gates whose test is continued, by run, oldest first."""

    runs: dict[str, list[Row]] = field(default_factory=dict)

    def pairs_for(self, one: ComparedBenchmark) -> tuple[LaunchPair, ...]:
        """Return the earlier launches of this version of a benchmark; a changed version has none."""
        found = [
            [row for row in rows if row.outcome.benchmark == one.benchmark] for rows in self.runs.values()
        ]
        return joined_pairs([pairs_of(rows) for rows in found])

    def continued(self, compared: Iterable[ComparedBenchmark]) -> tuple[ComparedBenchmark, ...]:
        """Return benchmarks with their earlier launches."""
        return tuple(replace(one, prior=self.pairs_for(one)) for one in compared)


def earlier_rows(ledger: Ledger, pair: SidePair, *, source: Source = "gate") -> list[Row]:
    """Return the rows of the gates that were made of a pair of commits, in the order of recording.

    Those of environments are another ``source``.
    """
    commits = {(side, pair.side(side).commit.sha) for side in SIDES}
    runs: dict[str, list[Row]] = {}
    for row in ledger.rows_on({sha for _, sha in commits}):
        if row.source == source:
            runs.setdefault(row.run_id, []).append(row)
    of_pair = (rows for rows in runs.values() if {_side(row) for row in rows} == commits)
    return [row for rows in of_pair for row in rows]


def continued_seed(seed: int, earlier: Sequence[Row]) -> int:
    """Return the seed of a gate that comes after others on its pair; it is ``seed`` itself after none.

    With the same seed, a gate that continues another's test would draw the same hash seeds and orders again,
    so that its launches would have the same bias.
    """
    runs = dict.fromkeys(row.run_id for row in earlier)
    if not runs:
        return seed
    digest = hashlib.sha256(repr((seed, *runs)).encode()).digest()
    return int.from_bytes(digest[:4], "big")


def find_prior(rows: Sequence[Row], context: RunContext) -> Prior:
    """Return the gates of the same pair under the same rules, on the same machine and environment.

    A side with uncommitted changes or without a commit may have held other code then, so its gates are never
    continued.
    """
    runs: dict[str, list[Row]] = {}
    if any(commit.dirty for commit in context.commits.values()):
        return Prior()
    for row in rows:
        if row.source == context.source and _fits(row, context):
            runs.setdefault(row.run_id, []).append(row)
    pair = {(side, commit.sha) for side, commit in context.commits.items()}
    return Prior(runs={run: found for run, found in runs.items() if {_side(row) for row in found} == pair})


def _fits(row: Row, context: RunContext) -> bool:
    return (
        row.outcome.metric in (WALL_TIME, TYPICAL_TIME)
        and bool(row.outcome.values)
        and not row.commit.dirty
        and row.machine.machine_id == context.machine.machine_id
        and row.environment.env_id == context.environment_of(row.placement.side).env_id
        and isinstance(row.policy, JudgedPolicy)
        and row.policy.rules.tests_like(context.policy)
    )


def _side(row: Row) -> tuple[str | None, str]:
    return row.placement.side, row.commit.sha


def recompute_gate(run: str, *, ledger: Path, project: Project) -> GateReport:
    """Return the report of a gate whose id begins or ends with ``run``, judged anew."""
    kept = Ledger(ledger)
    rows = kept.rows_of(run)
    one = rows[0]
    if one.source not in GATES:
        raise LedgerError(f'run "{run}" is of {one.source}, not a gate; see "perfkit ledger list"')
    commits = _commits(rows, base=gate_policy(one).base)
    acceptances = _acceptances(commits, ledger, project)
    comparisons = mark(judge_anew(rows, kept), acceptances)
    exact = mark((*exact_comparisons_of(rows), *slow_first_calls(comparisons)), acceptances)
    return _report(rows, commits, comparisons, exact)


def judge_anew(rows: Sequence[Row], kept: Ledger) -> list[Comparison]:
    """Return the verdicts that follow from the rows of a gate and of the gates that it continued."""
    prior = [_by_benchmark(kept.rows_of(earlier)) for earlier in judged_policy(rows[0]).continues]
    return [
        comparison_of(own, [earlier[name] for earlier in prior if name in earlier])
        for name, own in _by_benchmark([row for row in rows if not is_count(row)]).items()
    ]


def gate_ratio(
    times_of: Callable[[str, str], Sequence[Row]], run_id: str, benchmark: str, base: str | None, head: str
) -> GateRatio | None:
    """Return what a gate found for one benchmark: the estimate that its verdict rests on.

    None if the gate compared other commits, a launch failed, the benchmark's own source differs between the
    sides, or the first look was not reached.
    """
    rows = times_of(run_id, benchmark)
    sides = {(row.placement.side, row.commit.sha) for row in rows}
    versions = {row.outcome.benchmark.version for row in rows}
    failed = any(row.outcome.status != "ok" for row in rows)
    if sides != {("base", base), ("head", head)} or len(versions) > 1 or failed:
        return None
    policy = judged_policy(rows[0])
    found = comparison_of(rows, [times_of(run, benchmark) for run in policy.continues]).estimate
    if found is None:
        return None
    return GateRatio(ratio=found.ratio, low=found.low, high=found.high, alpha=policy.rules.alpha)


def _commits(rows: Sequence[Row], *, base: str) -> Mapping[Side, Commit]:
    known = {row.placement.side: row.commit for row in rows if row.placement.side is not None}
    return {"base": Commit(sha=base), **known}


def _report(
    rows: Sequence[Row],
    commits: Mapping[Side, Commit],
    comparisons: Sequence[Comparison],
    exact: Sequence[ExactComparison],
) -> GateReport:
    first = rows[0]
    policy = gate_policy(first)
    environments = {row.placement.side: row.environment for row in rows}
    code = exit_code((*comparisons, *exact))
    until_cut_off_s = (max(row.recorded_at for row in rows) - first.recorded_at).total_seconds()
    return GateReport(
        run_id=first.run_id,
        recorded_at=first.recorded_at,
        base=commits["base"],
        head=commits["head"],
        machine=first.machine,
        environment=environments.get("head", first.environment),
        base_environment=environments.get("base") if first.source == "environments" else None,
        policy=policy.rules,
        budget_s=policy.budget_s,
        wall_s=until_cut_off_s if policy.wall_s is None else policy.wall_s,
        comparisons=tuple(comparisons),
        # Launches may be missing, so a gate that was cut off never passes.
        exit_code=EXIT_NOT_MEASURED if first.partial and code == EXIT_PASS else code,
        explanations=explain_counts(comparisons, exact),
        exact=tuple(exact),
        notes=("This gate was cut off: launches and counts of it may be missing.",) if first.partial else (),
        from_ledger=True,
        cut_off=first.partial,
    )


def _acceptances(commits: Mapping[Side, Commit], ledger: Path, project: Project) -> tuple[Acceptance, ...]:
    """Return what people have accepted, by now, of these commits; nothing where git does not know them."""
    try:
        acceptances, _ = find_acceptances(
            project.root,
            base=commits["base"],
            head=commits["head"],
            ledger=ledger,
            outputs=project.output_paths,
        )
    except RepositoryError:
        return ()
    return acceptances


def _by_benchmark(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.outcome.benchmark.name, []).append(row)
    return found
