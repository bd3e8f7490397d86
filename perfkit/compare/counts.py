"""What a gate counts: every benchmark, and a step of each configured training target, on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from perfkit.agent.counting.model import Counts
from perfkit.compare.sequential import Contender
from perfkit.compare.survey import Rules, finding_on, finding_on_failure, under_rules
from perfkit.config import Project
from perfkit.identity import source_version
from perfkit.measure.lockstep.counted import count_benchmarks, count_training
from perfkit.measure.lockstep.launch import Failure, SideReport
from perfkit.measure.lockstep.launcher import Launcher
from perfkit.profiling.targets import resolve_target, target_on
from perfkit.records import SIDES, Benchmark, Side
from perfkit.records.comparisons import Comparison, ExactComparison
from perfkit.verdict.exact import ExactPolicy, compare_counts

# The step that is counted: lazily made state, such as an optimizer's, is there by then.
COUNTED_STEP = 3
_TARGET_LIMIT_S = 120.0
_RUNS = 2


@dataclass(frozen=True, kw_only=True)
class CountedPair:
    """A benchmark's or a training step's counts on both sides."""

    benchmark: Benchmark
    counts: Mapping[Side, Counts]
    training: bool
    gating: bool


@dataclass(frozen=True, kw_only=True)
class Tally:
    """All that a gate counted, the findings on what it could not, and what the sides said at their end.

    ``loaded`` are the files of the sides that training loops imported.
    """

    pairs: tuple[CountedPair, ...] = ()
    findings: tuple[Comparison, ...] = ()
    reports: Mapping[Side, SideReport] | None = None
    notes: tuple[str, ...] = ()
    loaded: frozenset[str] = frozenset()

    def compared(self, policy: ExactPolicy) -> tuple[ExactComparison, ...]:
        """Return a comparison for each count of each pair."""
        return tuple(
            one
            for pair in self.pairs
            for one in compare_counts(
                pair.benchmark,
                pair.counts["base"],
                pair.counts["head"],
                policy,
                training=pair.training,
                gating=pair.gating,
            )
        )


def count_contenders(
    contenders: Sequence[Contender], launcher: Launcher, *, say: Callable[[str], None], decide: bool
) -> Tally:
    """Count each benchmark in processes of its own; where the counts ``decide``, a failure is a finding."""
    known = {one.benchmark.name: one for one in contenders}
    found = count_benchmarks(
        launcher, tuple(known), limit_s=lambda node: known[node].limit_s, on_benchmark=say
    )
    pairs = tuple(
        CountedPair(
            benchmark=known[node].benchmark,
            counts={side: found.counts[side][node] for side in SIDES},
            training=False,
            gating=known[node].gating,
        )
        for node in known
        if all(node in found.counts[side] for side in SIDES)
    )
    first = {failure.node: failure for failure in reversed(found.failures)}
    findings = (
        tuple(finding_on_failure(known[node], failure) for node, failure in first.items()) if decide else ()
    )
    return Tally(pairs=pairs, findings=findings, reports=found.reports)


def count_targets(names: Iterable[str], project: Project, launcher: Launcher, rules: Rules) -> Tally:
    """Count a training step of each target on both sides, all of them twice and at once."""
    tallies = []
    for name in names:
        target = resolve_target(name, project, folder=project.root)
        places = {side: target_on(target, launcher.root(side), project=project.root).place for side in SIDES}
        contender = under_rules(Benchmark(name=name, version=source_version(target.place)), rules)
        tallies.append(count_target(contender, places, launcher))
    return joined(tallies)


def count_target(contender: Contender, places: Mapping[Side, str], launcher: Launcher) -> Tally:
    """Count a training step on both sides, twice and at once; a side's place is a function or a script."""
    found = count_training(launcher, places, steps=COUNTED_STEP, runs=_RUNS, limit_s=_TARGET_LIMIT_S)
    return replace(_tally(contender, found.runs), loaded=found.loaded)


def joined(tallies: Sequence[Tally]) -> Tally:
    """Return several tallies as one."""
    return Tally(
        pairs=tuple(pair for tally in tallies for pair in tally.pairs),
        findings=tuple(finding for tally in tallies for finding in tally.findings),
        reports=next((tally.reports for tally in tallies if tally.reports), None),
        notes=tuple(note for tally in tallies for note in tally.notes),
        loaded=frozenset(file for tally in tallies for file in tally.loaded),
    )


def _tally(contender: Contender, found: Mapping[Side, Sequence[Counts | Failure]]) -> Tally:
    """Return a target's counts; where one side alone has none that is a finding, where neither has a note."""
    name = contender.benchmark.name
    problems = {side: next((one for one in found[side] if isinstance(one, Failure)), None) for side in SIDES}
    base, head = problems["base"], problems["head"]
    if base is None and head is None:
        counts = {side: _both_runs([one for one in found[side] if isinstance(one, Counts)]) for side in SIDES}
        pair = CountedPair(
            benchmark=contender.benchmark, counts=counts, training=True, gating=contender.gating
        )
        return Tally(pairs=(pair,))
    if base is not None and head is not None:
        return Tally(notes=(f"no training step of {name} was counted: {head.message}",))
    if head is not None:
        return Tally(findings=(finding_on_failure(contender, head),))
    assert base is not None  # noqa: S101 (neither is a case above)
    return Tally(findings=(finding_on(contender, "NEW", f"on base: {base.message}"),))


def _both_runs(found: Sequence[Counts]) -> Counts:
    """Return the counts of both runs as one: a value each."""
    values = [{count.metric: count.values[-1] for count in one.counts} for one in found]
    last = found[-1]
    counts = (
        replace(count, values=tuple(run[count.metric] for run in values if count.metric in run))
        for count in last.counts
    )
    return replace(last, counts=tuple(counts))
