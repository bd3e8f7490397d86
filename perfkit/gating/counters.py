"""Counts both sides: benchmarks, steps of training targets, instructions, and numbers in place of times."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from perfkit.agent.counters.model import KEPT, TRACKED, Count, Counts, joined_counts
from perfkit.agent.training import COUNTED_STEP
from perfkit.config import Project
from perfkit.errors import UsageError
from perfkit.gating.counter_verdicts import (
    NO_TIME,
    CounterPolicy,
    compare_count,
    compare_counts,
    is_kept_alike,
    numbers_that_decide,
)
from perfkit.gating.results import ResultFinding, compare_calls, other_losses
from perfkit.gating.rules import ComparedBenchmark, Rules, finding_on, finding_on_failure, under_rules
from perfkit.gating.sides import Mend, mend_nothing
from perfkit.gating.survey import prove_code
from perfkit.identity import source_version
from perfkit.model import SIDES, Benchmark, Side
from perfkit.model.comparisons import Comparison, Doubt, ExactComparison
from perfkit.model.counters import FLOORS, IMPORT_TIME, SYNCS, is_trifle, repeated
from perfkit.profiling.passes.targets import Target, resolve_target, target_on
from perfkit.runner.lockstep.launch import Failure
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.lockstep.untimed import (
    COMMANDS,
    Callgrind,
    CountedSides,
    CountedSteps,
    count_benchmarks,
    count_training,
    time_imports,
)
from perfkit.units import listed

_TARGET_LIMIT_S = 120.0
_RUNS = 2
_IMPORTS = 6
# Under Valgrind a test may take minutes to reach its benchmark.
_VALGRIND_LIMIT_S = 300.0
# Two launches show whether a tracked value repeats.
_TO_REPEAT = 2
_MOST_LISTED = 5


@dataclass(frozen=True, kw_only=True)
class CountedPair:
    """A benchmark's or a training step's counts on both sides.

    A number that a benchmark measures instead of a time has a ``margin`` of its own.
    """

    benchmark: Benchmark
    counts: Mapping[Side, Counts]
    training: bool
    gating: bool
    margin: float | None = None


@dataclass(frozen=True, kw_only=True)
class CountResult:
    """All counts, the findings on what could not be counted, and the sides' files that were imported."""

    pairs: tuple[CountedPair, ...] = ()
    findings: tuple[Comparison, ...] = ()
    notes: tuple[str, ...] = ()
    loaded: frozenset[str] = frozenset()
    results: Mapping[str, ResultFinding] = field(default_factory=dict)

    def compared(self, policy: CounterPolicy, faster: Collection[str] = ()) -> tuple[ExactComparison, ...]:
        """Return a comparison for each count of each pair; ``faster`` names those whose time IMPROVED."""
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
                faster=pair.benchmark.name in faster,
                margin=pair.margin,
            )
        )


def count_compared(
    compared: Sequence[ComparedBenchmark],
    launcher: Launcher,
    *,
    log: Callable[[str], None],
    decide: bool,
    uncounted: AbstractSet[str] = frozenset(),
    with_results: bool = False,
    base_own: Collection[str] | None = None,
    mend: Mend = mend_nothing,
    until: float = math.inf,
) -> CountResult:
    """Count each benchmark on both sides at once; where the counts ``decide``, a failure is a finding.

    With results, what their calls give is compared, also of those that are ``uncounted``.

    Where they do not decide, counts that failed on head alone are missing, with the reason. ``log`` receives
    the node id of each benchmark before it is counted. All are counted again if ``mend`` did something about
    the failures. ``base_own`` are the benchmarks that base has without head's files, None where both sides
    have all. Those that differ are counted again unless that ends after ``until``, on the monotonic clock.
    """
    known = {one.benchmark.name: one for one in compared}
    asked = frozenset(one.benchmark.name for one in compared if with_results and one.result is not False)
    found = _counted(
        launcher,
        [node for node in known if node in asked or node not in uncounted],
        known,
        log=log,
        mend=mend,
        uncounted=uncounted,
        results_of=asked,
        until=until,
    )
    first = {failure.node: failure for failure in reversed(found.failures)}
    counts = {side: dict(found.counts[side]) for side in SIDES}
    reports = [found.reports]
    results = compare_calls(found, {node: known[node] for node in known if node in asked}, launcher)
    moved = [node for node in known if _moved(counts, node)]
    # Counts that depend on inputs drawn at random, or on the hash seed, do not repeat in other processes.
    if moved and time.monotonic() + launcher.collected_s > until:
        for side in SIDES:
            counts[side] |= {node: _without_values(counts[side][node]) for node in moved}
    elif moved:
        launcher.renew(alone=True)
        again = _counted(launcher, moved, known, log=log, until=until)
        reports.append(again.reports)
        for side in SIDES:
            counts[side] |= {
                node: joined_counts(counts[side][node], more) for node, more in again.counts[side].items()
            }
    if not decide:
        lost = {failure.node: failure for failure in found.failures if failure.side == "head"}
        counts["head"] |= {
            node: _not_counted(base, lost[node]) for node, base in counts["base"].items() if node in lost
        }
    pairs = tuple(
        CountedPair(
            benchmark=known[node].benchmark,
            counts={side: counts[side][node] for side in SIDES},
            training=False,
            gating=known[node].gating,
        )
        for node in known
        if all(node in counts[side] for side in SIDES)
    )
    findings = (
        tuple(finding_on_failure(known[node], failure, base_own=base_own) for node, failure in first.items())
        if decide
        else ()
    )
    for one in reports:
        prove_code(one)
    loaded = frozenset(file for one in reports for report in one.values() for file in report.loaded)
    return CountResult(pairs=pairs, findings=findings, loaded=loaded, results=results)


def _counted(
    launcher: Launcher,
    nodes: Sequence[str],
    known: Mapping[str, ComparedBenchmark],
    *,
    log: Callable[[str], None],
    mend: Mend = mend_nothing,
    uncounted: AbstractSet[str] = frozenset(),
    results_of: AbstractSet[str] = frozenset(),
    until: float = math.inf,
) -> CountedSides:
    """Count benchmarks on both sides at once, again where ``mend`` did something about the failures."""
    while True:
        found = count_benchmarks(
            launcher,
            nodes,
            limit_s=lambda node: known[node].limit_s,
            on_benchmark=log,
            uncounted=uncounted,
            results_of=results_of,
            until=until,
        )
        if not mend(found.failures):
            return found


def _moved(counts: Mapping[Side, Mapping[str, Counts]], node: str) -> bool:
    if not all(node in counts[side] for side in SIDES):
        return False
    base, head = ({one.metric: one for one in counts[side][node].counts if repeated(one)} for side in SIDES)
    return any(
        old != new
        and not is_trifle(name, old, new)
        and not (name == KEPT and is_kept_alike(base[name], head[name]))
        for name in base.keys() & head.keys()
        for old, new in [(base[name].values[-1], head[name].values[-1])]
    )


def _without_values(found: Counts) -> Counts:
    lost = {one.metric: NO_TIME for one in found.counts}
    return Counts(counts=(), not_counted={**found.not_counted, **lost})


def _not_counted(base: Counts, failure: Failure) -> Counts:
    why = f"counting failed: {failure.message}"
    return Counts(counts=(), not_counted={count.metric: why for count in base.counts})


def targets_to_count(project: Project) -> tuple[Target, ...]:
    """Return the configured targets whose training steps are counted."""
    config = project.config
    names = config.targets if config.exact.targets is None else config.exact.targets
    targets = tuple(resolve_target(name, project, folder=project.root) for name in names)
    for target in targets:
        target_on(target, project.root, project=project.root)
    return targets


def count_targets(
    targets: Iterable[Target], project: Project, launcher: Launcher, rules: Rules
) -> CountResult:
    """Count a training step of each target on both sides, all of them twice and at once."""
    results = []
    for target in targets:
        places = {side: target_on(target, launcher.root(side), project=project.root).place for side in SIDES}
        one = under_rules(Benchmark(name=target.name, version=source_version(target.place)), rules)
        results.append(count_target(one, places, launcher))
    return joined(results)


def count_target(one: ComparedBenchmark, places: Mapping[Side, str], launcher: Launcher) -> CountResult:
    """Count a training step on both sides, twice and at once; a side's place is a function or a script."""

    def count(*sides: Side, runs: int = 1) -> CountedSteps:
        return count_training(
            launcher, places, steps=COUNTED_STEP, runs=runs, limit_s=_TARGET_LIMIT_S, sides=sides
        )

    found = count(*SIDES, runs=_RUNS)
    result = _target_result(one, found.runs)
    if one.result is not False and other_losses(*(found.runs[side] for side in SIDES)) is not None:
        # The losses of base itself may differ from process to process.
        runs = count("base", "base", "head").runs
        other = other_losses(runs["base"][1:], runs["head"])
        if other is not None and other_losses(runs["base"][:1], runs["base"][1:]) is None:
            notes = (*result.notes, f"other losses of {one.benchmark.name}: {other}")
            result = replace(result, notes=notes)
    return replace(result, loaded=found.loaded)


def check_valgrind() -> None:
    """Check that Valgrind, which counts instructions, is there."""
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if missing:
        raise UsageError(
            f"--instructions counts with Valgrind, but there is no {' and no '.join(missing)} on PATH:"
            " install Valgrind (apt install valgrind), or leave the option out"
        )


def count_instructions(
    compared: Sequence[ComparedBenchmark], callgrind: Callgrind, *, log: Callable[[str], None]
) -> CountResult:
    """Count the instructions of each benchmark; ``log`` receives the node id of each one before."""
    pairs = []
    for one in compared:
        node = one.benchmark.name
        log(node)
        pairs.append(
            CountedPair(
                benchmark=one.benchmark,
                counts=callgrind.count(node, limit_s=_VALGRIND_LIMIT_S),
                training=False,
                gating=one.gating,
            )
        )
    return CountResult(pairs=tuple(pairs))


def left_out(
    benchmarks: Sequence[ComparedBenchmark], counted: Collection[str], policy: CounterPolicy
) -> CountResult:
    """Return what stands for benchmarks for which no time was left: a count that decides stays open."""
    if not benchmarks:
        return CountResult()
    names = [one.benchmark.name for one in benchmarks]
    # Syncs decide in training steps alone.
    gating = sorted(policy.gating, key=lambda one: one == SYNCS)
    metric = next((one for one in gating if one not in FLOORS and one != KEPT), None)
    nothing = Counts(counts=(), not_counted={metric: NO_TIME} if metric else {})
    number = "1 benchmark was" if len(names) == 1 else f"{len(names)} benchmarks were"
    note = f"{number} not counted, and no results were compared: {NO_TIME} (a larger --budget leaves more)"
    return CountResult(
        pairs=tuple(
            CountedPair(
                benchmark=one.benchmark,
                counts=dict.fromkeys(SIDES, nothing),
                training=True,
                gating=one.gating,
            )
            for one in benchmarks
            if one.benchmark.name in counted
        ),
        results={
            one.benchmark.name: ResultFinding(
                result="not compared", doubts=(Doubt(kind="not compared", text=NO_TIME),)
            )
            for one in benchmarks
            if one.result is not False
        },
        notes=(f"{note}: {listed(names, _MOST_LISTED)}",),
    )


def joined(results: Sequence[CountResult]) -> CountResult:
    """Return several results as one."""
    return CountResult(
        pairs=tuple(pair for result in results for pair in result.pairs),
        findings=tuple(finding for result in results for finding in result.findings),
        notes=tuple(note for result in results for note in result.notes),
        loaded=frozenset(file for result in results for file in result.loaded),
        results={name: one for result in results for name, one in result.results.items()},
    )


def _target_result(one: ComparedBenchmark, found: Mapping[Side, Sequence[Counts | Failure]]) -> CountResult:
    """Return a target's counts; a failure on one side alone is a finding, one on both sides a note."""
    name = one.benchmark.name
    problems = {side: next((one for one in found[side] if isinstance(one, Failure)), None) for side in SIDES}
    base, head = problems["base"], problems["head"]
    if base is None and head is None:
        counts = {side: _both_runs([one for one in found[side] if isinstance(one, Counts)]) for side in SIDES}
        pair = CountedPair(benchmark=one.benchmark, counts=counts, training=True, gating=one.gating)
        return CountResult(pairs=(pair,))
    if base is not None and head is not None:
        return CountResult(notes=(f"no training step of {name} was counted: {head.message}",))
    if head is not None:
        return CountResult(findings=(finding_on_failure(one, head),))
    assert base is not None  # noqa: S101 (neither is a case above)
    return CountResult(findings=(finding_on_failure(one, base, base_own=()),))


def _both_runs(found: Sequence[Counts]) -> Counts:
    """Return the counts of both runs as one, with a value of each run."""
    values = [{count.metric: count.values[-1] for count in one.counts} for one in found]
    last = found[-1]
    counts = (
        replace(count, values=tuple(run[count.metric] for run in values if count.metric in run))
        for count in last.counts
    )
    return replace(last, counts=tuple(counts))


def measure_numbers(
    benchmarks: Sequence[ComparedBenchmark],
    launcher: Launcher,
    *,
    error: float,
    has_time: Callable[[], bool],
    log: Callable[[str], None],
    base_own: Collection[str] | None = None,
    mend: Mend = mend_nothing,
) -> CountResult:
    """Measure each number on both sides at once, in launches of its own, until it is decided.

    A tracked value that repeats to the digit in two launches and is alike on both sides is; any other number
    has as many as separate the sides with ``error``, and is not judged where there is no time for these.
    ``base_own`` are the benchmarks that base has without head's files, None where both sides have all. What
    ``mend`` has done something about is measured again.
    """
    known = {one.benchmark.name: one for one in benchmarks}
    values: dict[Side, dict[str, Count]] = {side: {} for side in SIDES}
    failed: dict[str, Failure] = {}
    loaded: set[str] = set()
    most = numbers_that_decide(error)
    for launch in range(most):
        wanted = [name for name in known if name not in failed and not _is_decided(known[name], values)]
        if not wanted or (launch >= _TO_REPEAT and not has_time()):
            break
        found = _counted(launcher, wanted, known, log=log, mend=mend)
        prove_code(found.reports)
        loaded.update(file for report in found.reports.values() for file in report.loaded)
        failed |= {failure.node: failure for failure in reversed(found.failures)}
        for side in SIDES:
            for name, counts in found.counts[side].items():
                values[side][name] = _joined(values[side].get(name), counts)
    measured = [name for name in known if name not in failed]
    enough = [
        name for name in measured if _is_decided(known[name], values) or _launches(name, values) == most
    ]
    return CountResult(
        pairs=tuple(_pair(known[name], values) for name in enough),
        findings=(
            *(
                finding_on_failure(known[name], failure, base_own=base_own)
                for name, failure in failed.items()
            ),
            *(
                finding_on(
                    known[name], "NOT REACHED", f"{_launches(name, values)} of the {most} launches it needs"
                )
                for name in measured
                if name not in enough
            ),
        ),
        loaded=frozenset(loaded),
    )


def paired(
    benchmark: Benchmark,
    metric: str,
    unit: str,
    values: Sequence[Mapping[Side, float]],
    *,
    gating: bool = True,
) -> CountedPair:
    """Return what was measured beside the times, by pairs of processes."""
    counts = {
        side: Counts(
            counts=(
                Count(metric=metric, unit=unit, values=tuple(float(one[side]) for one in values), causes=()),
            ),
            not_counted={},
        )
        for side in SIDES
    }
    return CountedPair(benchmark=benchmark, counts=counts, training=False, gating=gating)


def measure_imports(
    launcher: Launcher, files: tuple[str, ...], *, until: float, floor: float = FLOORS[IMPORT_TIME]
) -> Sequence[Mapping[Side, float]]:
    """Return both sides' seconds to import what files of benchmarks import of the project, in turns.

    The first pair writes bytecode and is not kept. There are none where a side cannot import them alone, or
    where there is no time ``until`` a reading of the monotonic clock; and one where head takes no longer by
    more than the ``floor``.
    """
    pairs: list[Mapping[Side, float]] = []
    for number in range(1 + _IMPORTS):
        pair = time_imports(launcher, files, SIDES if number % 2 else SIDES[::-1])
        if len(pair) < len(SIDES):
            return ()
        pairs.append(pair)
        if time.monotonic() > until:
            break
        if number and max(one["head"] - one["base"] for one in pairs[1:]) <= floor:
            break
    return pairs[1:]


def _joined(before: Count | None, counts: Counts) -> Count:
    (count,) = counts.counts
    return count if before is None else replace(count, values=(*before.values, *count.values))


def _is_decided(one: ComparedBenchmark, values: Mapping[Side, Mapping[str, Count]]) -> bool:
    """Return whether a tracked value has repeated on both sides and is alike within the margin.

    Two values that repeat in two launches differ by chance in one of eight comparisons, where each is one of
    two by a coin.
    """
    base, head = (values[side].get(one.benchmark.name) for side in SIDES)
    if base is None or head is None or not (base.metric == TRACKED and base.exact and head.exact):
        return False
    found = compare_count(one.benchmark, base, head, margin=one.margin, gating=one.gating)
    return found.verdict == "UNCHANGED"


def _launches(name: str, values: Mapping[Side, Mapping[str, Count]]) -> int:
    return min(len(values[side][name].values) if name in values[side] else 0 for side in SIDES)


def _pair(one: ComparedBenchmark, values: Mapping[Side, Mapping[str, Count]]) -> CountedPair:
    name = one.benchmark.name
    return CountedPair(
        benchmark=one.benchmark,
        counts={side: Counts(counts=(values[side][name],), not_counted={}) for side in SIDES},
        training=False,
        gating=one.gating,
        margin=one.margin,
    )
