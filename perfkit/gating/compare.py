"""One comparison from its first launch to its verdicts, recorded launch by launch.

Gates and calibrations are such comparisons; both sides are laid out and surveyed before.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from perfkit.errors import RecordingError, RunInterruptedError
from perfkit.gating.accept import accept
from perfkit.gating.counters import (
    CountResult,
    count_compared,
    count_instructions,
    count_targets,
    joined,
    left_out,
    measure_imports,
    measure_numbers,
    paired,
)
from perfkit.gating.coverage import project_folder
from perfkit.gating.design import Forecast, Method, counting_s
from perfkit.gating.explain import (
    cold_starts,
    disturbed_launches,
    doubtful_assumptions,
    on_the_device,
    waiting_threads,
    why_not_measured,
)
from perfkit.gating.gains import doubt_gains, work_of_edited
from perfkit.gating.judge import is_faster, slow_first_calls
from perfkit.gating.results import drawn_otherwise, with_result
from perfkit.gating.rows import (
    NOT_TIMED,
    Prior,
    RunContext,
    count_rows,
    find_prior,
    finding_row,
    finished_row,
    launch_rows,
)
from perfkit.gating.rules import ComparedBenchmark, finding_on_failure
from perfkit.gating.run import BenchmarkState, LockstepLaunches, SequentialComparison
from perfkit.gating.sides import OpenSides, with_install
from perfkit.gating.survey import Survey, run_by_own_files
from perfkit.identity import new_run_id, utc_now
from perfkit.ledger.recording import Run
from perfkit.ledger.remote import shown_place
from perfkit.ledger.store import Ledger
from perfkit.model import SIDES, Benchmark, Row, Source
from perfkit.model.comparisons import Comparison, ComparisonProgress, ExactComparison, MeasuringEdit
from perfkit.model.counters import IMPORT_TIME, IMPORTS, PEAK_RESIDENT, is_count
from perfkit.model.policies import CalibrationPolicy, GatePolicy, JudgedPolicy, Rehearsal
from perfkit.repo.environments import installed_facts
from perfkit.runner.commands import fixed_environment
from perfkit.runner.lockstep.launch import schedule
from perfkit.runner.machine.conditions import Watch
from perfkit.runner.machine.facts import own_devices, read_environment, read_machine

# Counting Python's calls makes them several times slower, so without torch only short calls are counted.
_LONGEST_COUNTED_S = 0.05
# Counting a long call takes about as long as this many, comparing its results as the second number.
_CALLS_TO_COUNT, _CALLS_TO_COMPARE = 6, 2
# More benchmarks than these are not named one by one as they are counted.
_NAMED_ONE_BY_ONE = 100
# A check whether the sides disturb one another on an accelerator may take this share of the budget.
_CHECKED_SHARE = 0.1
# So may the times to import, and, where timing took all of it, counting and the look at gains.
_SHARE_AFTER, _LEAST_AFTER_S = 0.1, 3.0
# A launch whose processes first import for longer begins that late at most.
_LATE_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Record:
    """The ledger and source that a comparison is recorded under; ``rehearsal`` is set in a calibration.

    ``earlier`` are the rows of gates on the same pair, whose tests it may continue.
    """

    ledger: Ledger
    source: Source
    rehearsal: Rehearsal | None = None
    earlier: Sequence[Row] = ()


@dataclass(frozen=True, kw_only=True)
class CompletedComparison:
    """What a comparison found, and the ``context`` and ``prior`` runs of its record.

    ``loaded`` are the sides' files that it imported; it is None where earlier runs alone decided a benchmark,
    since what they imported is not known. ``timed_s`` is how many seconds set-up and timing took, and
    ``counted_s`` how many counting took after it; what is undecided needs about ``left_s`` more, None where
    that is not known. ``unrecorded`` is the error, such as a full disk, for which
    the end of its record is not in the ledger; the verdicts are valid all the same. ``measuring`` is what
    head edits of how it is measured, with what that does.
    """

    context: RunContext
    prior: Prior
    comparisons: tuple[Comparison, ...]
    exact: tuple[ExactComparison, ...]
    loaded: frozenset[str] | None
    notes: tuple[str, ...]
    timed_s: float
    counted_s: float
    left_s: float | None = None
    unrecorded: RecordingError | None = None
    measuring: tuple[MeasuringEdit, ...] = ()


def compare_sides(
    sides: OpenSides,
    surveyed: Survey,
    method: Method,
    *,
    record: Record,
    began: float,
    progress: ComparisonProgress,
) -> CompletedComparison:
    """Compare what a survey found, and record it; the budget begins at ``began``, on the monotonic clock."""
    if sides.pair.same_code and not (sides.environments or sides.scope.slowdowns or record.rehearsal):
        method = dataclasses.replace(
            method,
            policy=dataclasses.replace(method.policy, same_code=True),
            counter_policy=dataclasses.replace(method.counter_policy, same_code=True),
        )
    context = describe(sides, surveyed, method, record)
    prior = find_prior(record.earlier, context)
    with recorded(
        record.ledger, source=context.source, run_id=context.run_id, recorded_at=context.recorded_at
    ) as run:
        return _Comparing(
            sides=sides,
            surveyed=surveyed,
            method=method,
            context=context,
            prior=prior,
            run=run,
            progress=progress,
            began=began,
            ledger=record.ledger.path,
        ).complete()


@contextmanager
def recorded(ledger: Ledger, *, source: Source, run_id: str, recorded_at: datetime) -> Iterator[Run]:
    """Record a run; what it measured before an interruption is kept, and the error names the place."""
    run = ledger.run(source=source, run_id=run_id, recorded_at=recorded_at)
    try:
        with run:
            yield run
    except KeyboardInterrupt:
        raise RunInterruptedError(f"interrupted; {_kept(run)}") from None


def describe(sides: OpenSides, surveyed: Survey, method: Method, record: Record) -> RunContext:
    """Return what all rows of the run have in common: its commits, machine, environment and rules."""
    variables = fixed_environment(dict(os.environ), hash_seed=0)
    installed = installed_facts(sides.environments)
    return RunContext(
        source=record.source,
        run_id=new_run_id(),
        recorded_at=utc_now(),
        commits={side: sides.pair.side(side).commit for side in SIDES},
        machine=read_machine(timed=True),
        environment=read_environment(
            variables, torch_settings=surveyed.torch, installed=installed.get("head")
        ),
        base_environment=read_environment(
            variables, torch_settings=surveyed.base_torch, installed=installed["base"]
        )
        if installed
        else None,
        seed=method.seed,
        policy=method.policy,
        kind=_policy_kind(sides, method, record.rehearsal),
        same={} if sides.pair.base.commit.dirty else surveyed.same,
    )


def _policy_kind(
    sides: OpenSides, method: Method, rehearsal: Rehearsal | None
) -> Callable[..., JudgedPolicy]:
    """Return a function that makes the policy of a row, with what all rows of the run have in common."""
    gate = functools.partial(
        GatePolicy,
        base=sides.pair.base.commit.sha,
        budget_s=method.budget_s,
        mode="fresh processes" if sides.launcher.why_no_fork else "forked",
        as_is=False,
    )
    if rehearsal is None:
        return gate
    return functools.partial(CalibrationPolicy, rehearsal=rehearsal, **gate.keywords)


def _missing_in_head(skipped: Comparison) -> Comparison:
    reason = (skipped.message or "").removeprefix("on both sides: ")
    return dataclasses.replace(
        skipped, verdict="MISSING", message=f"base's own files run it, head's skip it: {reason}"
    )


@dataclass
class _Comparing:
    """A comparison under way."""

    sides: OpenSides
    surveyed: Survey
    method: Method
    context: RunContext
    prior: Prior
    run: Run
    progress: ComparisonProgress
    began: float
    ledger: Path
    _compared: Mapping[str, ComparedBenchmark] = field(init=False)
    _looked_up: tuple[str, ...] = ()
    _failing: bool = False
    _counted: int = 0

    def __post_init__(self) -> None:
        continued = self.prior.continued(self.surveyed.compared)
        self._compared = {one.benchmark.name: one for one in continued}

    def complete(self) -> CompletedComparison:
        """Time and count until all is decided or the budget is spent, judge, and publish the record."""
        numbers = self._measure_numbers()
        timing = self._time() if self.method.timed else None
        timed_s = time.monotonic() - self.began
        left_s = timing.forecast().beyond_s if timing is not None and not timing.stopped else None
        result = joined([numbers, self._count(timing), self._beside_times(timing)])
        counted_s = time.monotonic() - self.began - timed_s
        judged = tuple(
            with_result(one, result.results) for one in self._judged(timing.states if timing else {})
        )
        faster = {one.benchmark.name for one in judged if is_faster(one) and not one.costs_more_cpu}
        judged = doubt_gains(
            judged, self._compared, self.sides.launcher, log=self.progress.info, until=self._end(timing)
        )
        counters = result.compared(self.method.counter_policy, faster)
        comparisons = self._without_skips_of_head((*judged, *self.surveyed.findings, *result.findings))
        work = work_of_edited(self.sides, self.surveyed, self.method, log=self.progress.info)
        head = self.sides.roots.head
        comparisons = tuple(with_install(one, head) for one in work.doubted(comparisons))
        unrecorded = None
        try:
            self.run.add(list(count_rows(result.pairs, counters, self.context)))
            self._publish(comparisons)
        except RecordingError as error:
            # All is measured and judged, and the caller reports that before this error.
            self.run.leave()
            unrecorded = error
        return CompletedComparison(
            context=self.context,
            prior=self.prior,
            comparisons=comparisons,
            exact=(*counters, *slow_first_calls(judged)),
            loaded=self._loaded(timing, result),
            notes=(*result.notes, *drawn_otherwise(result.results), *self._notes(timing)),
            timed_s=timed_s,
            counted_s=counted_s,
            left_s=left_s,
            unrecorded=unrecorded,
            measuring=(*work.edits, *self.surveyed.measuring),
        )

    def _without_skips_of_head(self, comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
        skipped = [one.benchmark.name for one in comparisons if one.verdict == "SKIPPED"]
        ran = run_by_own_files(self.sides, self.surveyed, skipped)
        return tuple(_missing_in_head(one) if one.benchmark.name in ran else one for one in comparisons)

    def _measure_numbers(self) -> CountResult:
        """Measure numbers that are not times, which need few launches, in half of the budget at most."""
        method, until = self.method, self.began + self.method.budget_s / 2
        if not self.surveyed.numbers:
            return CountResult()
        return measure_numbers(
            self.surveyed.numbers,
            self.sides.launcher,
            error=method.policy.alpha / method.policy.family,
            has_time=lambda: time.monotonic() < until,
            log=lambda node: self.progress.info(f"measuring {node}"),
            base_own=self.surveyed.base_own,
            mend=self.sides.missing.bring,
        )

    def _time(self) -> SequentialComparison:
        """Make launches until every benchmark is decided, or the budget is spent; record each of them."""
        deadline = self.began + self.method.budget_s
        timing = SequentialComparison.of(
            self._compared.values(),
            launches=LockstepLaunches(
                self.sides.launcher,
                limit_s=lambda node: self._compared[node].limit_s,
                check_s=_CHECKED_SHARE * self.method.budget_s,
                until=math.inf if self.method.go_on_s else deadline,
                mend=self.sides.missing.bring,
                states=own_devices().states,
            ),
            policy=self.method.policy,
            deadline=deadline,
        )
        timing.keep = lambda measured: self.run.add(list(launch_rows(measured, self._compared, self.context)))
        timing.announce = self._announce
        timing.after_s = self._counting_s
        timing.late_s = max(_LATE_S, _SHARE_AFTER * self.method.budget_s)
        timing.go_on_s = self.method.go_on_s
        timing.announce_going_on = self._announce_going_on
        if self.method.fail_fast:
            timing.is_enough = self._fails
        timing.watch = Watch()
        if self._compared:
            self.sides.launcher.warm_up(self.surveyed.libraries)
            self.sides.launcher.narrow(self._compared)
            self.progress.info("measuring")
            goes_on = self.method.go_on_s > 0
            if not timing.has_time and not goes_on:
                timing.left_out = self._leave_out_unchanged_files()
            if timing.has_time or goes_on:
                self.sides.launcher.prepare()
            timing.run(schedule(seed=self.method.seed), self.progress)
        return timing

    def _leave_out_unchanged_files(self) -> frozenset[str]:
        """Import only the files of benchmarks that run changed functions; return the benchmarks of others."""
        changed = {name.partition("::")[0] for name, one in self._compared.items() if one.changed}
        if not changed:
            return frozenset()
        left_out = frozenset(name for name in self._compared if name.partition("::")[0] not in changed)
        self.sides.launcher.narrow(name for name in self._compared if name not in left_out)
        return left_out

    def _counting_s(self, state: BenchmarkState) -> float:
        if not self.method.counted or state.launch_s is None or state.call_s is None:
            return 0.0
        return counting_s(state.launch_s, state.call_s)

    def _announce(self, forecast: Forecast) -> None:
        method = self.method
        text = forecast.announced(self._margins(), budget_s=method.budget_s, goes_on=method.go_on_s > 0)
        self.progress.info(text)

    def _announce_going_on(self, forecast: Forecast) -> None:
        self.progress.info(forecast.going_on(budget_s=self.method.budget_s, most_s=self.method.go_on_s))

    def _fails(self, comparisons: Sequence[Comparison]) -> bool:
        """Return whether the gate fails already, by a benchmark that gates, REGRESSED and is not accepted."""
        regressed = [one for one in comparisons if one.verdict == "REGRESSED" and one.gating]
        # What was accepted is looked up once for each set of regressions, since git is asked for it.
        known = tuple(one.benchmark.name for one in regressed)
        if known and known != self._looked_up:
            outputs = self.sides.project.output_paths
            marked = accept(comparisons, (), self.sides.pair, ledger=self.ledger, outputs=outputs).comparisons
            self._looked_up = known
            self._failing = any(
                one.accepted is None for one in marked if one.verdict == "REGRESSED" and one.gating
            )
        return bool(known) and self._failing

    def _margins(self) -> str:
        margins = sorted({one.margin for one in self._compared.values()})
        text = " to ".join(f"{100 * margin:g}" for margin in dict.fromkeys((margins[0], margins[-1])))
        return f"{'a margin' if len(margins) == 1 else 'margins'} of {text} %"

    def _notes(self, timing: SequentialComparison | None) -> Iterator[str]:
        if timing is not None:
            if self.sides.environments and self.method.counted:
                yield (
                    "counts are of different versions: they show what changed and fail nothing"
                    " (with --exact-only they decide)"
                )
            yield from why_not_measured(timing, budget_s=self.method.budget_s + self.method.go_on_s)
            yield from doubtful_assumptions(timing)
            yield from disturbed_launches(timing)
            yield from on_the_device(self.sides.launcher.residents)
            yield from cold_starts(self.run.rows)
            yield from waiting_threads(timing, threads=int(self.surveyed.torch.get("threads", "1")))

    def _count(self, timing: SequentialComparison | None) -> CountResult:
        """Count, once all is timed, the benchmarks that were reached, and the training targets."""
        method, launcher = self.method, self.sides.launcher
        reached = tuple(one for one in self._compared.values() if timing is None or _is_reached(timing, one))
        benchmarks = tuple(one for one in reached if timing is None or _is_counted(timing, one))
        results: list[CountResult] = []
        counted = {one.benchmark.name for one in benchmarks} if method.counted else set()
        if method.counted:
            self.progress.info("counting")
        waiting = list(reached) if method.counted or method.timed else []
        until = self._end(timing)
        while part := _next_part(waiting, timing, counted, until - time.monotonic(), first=not results):
            waiting = [one for one in waiting if one not in part]
            results.append(
                count_compared(
                    part,
                    launcher,
                    log=self._log_counting,
                    decide=not method.timed,
                    uncounted={one.benchmark.name for one in part} - counted,
                    with_results=method.timed,
                    base_own=self.surveyed.base_own,
                    mend=self.sides.missing.bring,
                    until=math.inf if timing is None else until,
                )
            )
        results.append(left_out(waiting, counted, method.counter_policy))
        if method.counted:
            stopped = timing is not None and timing.stopped
            targets = () if stopped else method.targets
            results.append(count_targets(targets, self.sides.project, launcher, method.rules))
        if method.instructions:
            results.append(count_instructions(benchmarks, self.sides.callgrind, log=self._log_instructions))
        return joined(results)

    def _end(self, timing: SequentialComparison | None) -> float:
        """Return when what follows timing should be over: it has a small share of the budget at least."""
        least_s = max(_LEAST_AFTER_S, _SHARE_AFTER * self.method.budget_s)
        deadline = self.began + self.method.budget_s if timing is None else timing.deadline
        return max(deadline, time.monotonic() + least_s)

    def _beside_times(self, timing: SequentialComparison | None) -> CountResult:
        """Return the peaks of the launches' memory, and the times to import where these may have moved."""
        if timing is None or not self.method.counted or not timing.states:
            return CountResult()
        peaks = {name: state.peaks for name, state in timing.states.items() if state.peaks}
        pairs = [
            paired(
                self._compared[name].benchmark, PEAK_RESIDENT, "B", found, gating=self._compared[name].gating
            )
            for name, found in peaks.items()
        ]
        if not timing.stopped and self._imports_changed():
            files = tuple(sorted({name.partition("::")[0] for name in timing.states}))
            until = time.monotonic() + _SHARE_AFTER * self.method.budget_s
            imported = measure_imports(self.sides.launcher, files, until=until)
            one = Benchmark(name=IMPORTS, version=self.context.commits["head"].sha)
            if imported:
                pairs.append(paired(one, IMPORT_TIME, "s", imported))
        return CountResult(pairs=tuple(pairs))

    def _imports_changed(self) -> bool:
        """Return whether a file differs that is imported as benchmarks are listed."""
        changed, folder = self.surveyed.changed, project_folder(self.sides)
        imported = self.surveyed.loaded.difference(self.surveyed.laid)
        return changed is not None and not changed.files.isdisjoint(str(folder / file) for file in imported)

    def _loaded(self, timing: SequentialComparison | None, result: CountResult) -> frozenset[str] | None:
        states = timing.states.values() if timing else ()
        if any(state.compared.prior and not state.own for state in states):
            return None
        return result.loaded.union(timing.loaded if timing else ())

    def _judged(self, states: Mapping[str, BenchmarkState]) -> Iterator[Comparison]:
        for name, state in states.items():
            if state.failure is None:
                yield state.judge(self.method.policy)
            else:
                yield finding_on_failure(self._compared[name], state.failure, base_own=self.surveyed.base_own)

    def _publish(self, comparisons: Sequence[Comparison]) -> Path | None:
        """Add the findings and what is known only at the end, and publish the record in the ledger."""
        timed = {row.outcome.benchmark.name for row in self.run.rows if not is_count(row)}
        self.run.add(
            [
                finding_row(one, self.context)
                for one in comparisons
                if one.verdict in NOT_TIMED or one.benchmark.name not in timed
            ]
        )
        known = {one.benchmark.name: one for one in comparisons}
        wall_s = time.monotonic() - self.began
        return self.run.publish(
            lambda row: finished_row(row, known, wall_s=wall_s, continues=tuple(self.prior.runs))
        )

    def _log_counting(self, node: str) -> None:
        self._counted += 1
        if len(self._compared) <= _NAMED_ONE_BY_ONE:
            self.progress.info(f"counting {node}")
        elif self._counted % _NAMED_ONE_BY_ONE == 0:
            self.progress.info(f"counted {self._counted} of {len(self._compared)} benchmarks")

    def _log_instructions(self, node: str) -> None:
        self.progress.info(f"counting instructions of {node}")


def _is_reached(timing: SequentialComparison, one: ComparedBenchmark) -> bool:
    """Return whether a benchmark had a launch; where measuring stopped, only one that REGRESSED counts."""
    if timing.stopped and timing.verdict(one.benchmark.name) != "REGRESSED":
        return False
    return bool(one.prior) or timing.states[one.benchmark.name].call_s is not None


def _next_part(
    waiting: Sequence[ComparedBenchmark],
    timing: SequentialComparison | None,
    counted: Collection[str],
    left_s: float,
    *,
    first: bool,
) -> list[ComparedBenchmark]:
    """Return the benchmarks that are counted next: first all with short calls, then those there is time for.

    How long these take is an estimate, so they get half of the time that is left, the fastest of them all.
    """
    if timing is None:
        return list(waiting)
    calls_s = {one.benchmark.name: _call_s(timing.states[one.benchmark.name]) for one in waiting}
    short = [one for one in waiting if calls_s[one.benchmark.name] <= _LONGEST_COUNTED_S]
    if first and short:
        return short
    costs = {
        name: call_s * (_CALLS_TO_COUNT if name in counted else _CALLS_TO_COMPARE)
        for name, call_s in calls_s.items()
    }
    chosen: list[ComparedBenchmark] = []
    for one in sorted(waiting, key=lambda one: costs[one.benchmark.name]):
        seconds = costs[one.benchmark.name]
        if seconds > left_s:
            break
        left_s = (left_s if chosen else left_s / 2) - seconds
        chosen.append(one)
    return chosen


def _call_s(state: BenchmarkState) -> float:
    """Return the seconds of a call, which an earlier gate has timed where this one has not."""
    return state.call_s if state.call_s is not None else min(state.pairs[-1].head_s)


def _is_counted(timing: SequentialComparison, one: ComparedBenchmark) -> bool:
    """Return whether a benchmark that was reached is counted: it uses torch or has short calls.

    Without torch no count decides, so only cheap ones are made.
    """
    call_s = timing.states[one.benchmark.name].call_s
    return call_s is not None and (timing.uses_torch or call_s <= _LONGEST_COUNTED_S)


def _kept(run: Run) -> str:
    if run.file is not None:
        return f"its launches so far are in {shown_place(run.file)}"
    return run.kept if run.rows else "no launch was complete"
