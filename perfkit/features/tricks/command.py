"""``perfkit tricks``: each trick against the same work without it, in lockstep, and what came out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from perfkit.commands.text_files import replace_reports
from perfkit.config import Project
from perfkit.errors import LedgerError, RecordingError, UsageError
from perfkit.features.experiments.records import Level
from perfkit.features.tricks.loop import WHOLE_S, LoopLaunches, is_whole
from perfkit.features.tricks.report import (
    NOISE_FLOOR,
    TrickResult,
    TricksReport,
    helping,
    sizes_chart,
    tricks_document,
)
from perfkit.features.tricks.suite import SUITE, check, instruction_files, node_of
from perfkit.features.tricks.trick import (
    TOGETHER,
    Choice,
    Equivalence,
    Loop,
    TrickCase,
    TrickPolicy,
    TricksRun,
    best_pair,
    choose,
    choose_for_loop,
    every_name,
    patch_of,
    together,
    trick_named,
)
from perfkit.gating.compare import recorded
from perfkit.gating.counter_verdicts import CounterPolicy
from perfkit.gating.counters import CountResult, count_compared
from perfkit.gating.rows import (
    RunContext,
    comparison_of,
    count_rows,
    exact_comparisons_of,
    finding_row,
    finished_row,
    launch_rows,
)
from perfkit.gating.rules import ComparedBenchmark, finding_on_failure
from perfkit.gating.run import Launches, LockstepLaunches, SequentialComparison
from perfkit.gating.sides import staged_launcher
from perfkit.identity import new_run_id, utc_now
from perfkit.ledger.recording import Run
from perfkit.ledger.store import Ledger
from perfkit.model import SIDES, Benchmark, Row, Source
from perfkit.model.comparisons import Comparison, ComparisonProgress, Policy
from perfkit.model.counters import is_count
from perfkit.model.policies import JudgedPolicy
from perfkit.profiling.passes.targets import resolve_target
from perfkit.repo.commits import read_commit
from perfkit.runner.commands import fixed_environment
from perfkit.runner.lock import measuring
from perfkit.runner.lockstep.collection import list_benchmarks
from perfkit.runner.lockstep.launch import schedule
from perfkit.runner.machine.facts import read_environment, read_machine
from perfkit.stats.interval import TRIMMED_FROM
from perfkit.temporary import temporary_folder
from perfkit.units import counted

# The limit is long, since some tricks take seconds to set up, and a user's loop may take longer.
_LIMIT_S = 120.0
# Each launch has a fork server of its own, so that no two launches share its bias. That is affordable, since
# many tricks share the time that it takes to start one.
_LAUNCHES_PER_FORK_SERVER = 1


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """The cases, whether their sides are equivalent, and how they are judged."""

    cases: tuple[TrickCase, ...]
    equivalences: Mapping[str, Equivalence]
    policy: Policy

    def labelled(self, rows: Iterable[Row]) -> list[Row]:
        """Return rows with their cases."""
        cases = {node_of(case): case for case in self.cases}
        found = []
        for row in rows:
            case = cases[row.outcome.benchmark.name]
            judged = {each.name: getattr(row.policy, each.name) for each in fields(JudgedPolicy)}
            policy = TrickPolicy(**judged, case=case, equivalence=self.equivalences[case.name])
            found.append(replace(row, policy=policy))
        return found

    def unequal(self, margin: float) -> Iterator[Comparison]:
        """Yield a finding for each case that cannot be measured."""
        for case in self.cases:
            found = self.equivalences[case.name]
            if not found.equal:
                yield Comparison(
                    benchmark=Benchmark(name=node_of(case), version=""),
                    verdict="FAILED",
                    margin=margin,
                    message=found.problem or "its two sides do not give the same",
                )


def report_of(rows: Sequence[Row]) -> TricksReport:
    """Return the report that the rows of one run hold."""
    by_case: dict[TrickCase, list[Row]] = {}
    for row in rows:
        by_case.setdefault(_policy(row).case, []).append(row)
    first, policy = rows[0], _policy(rows[0])
    run = policy.run or TricksRun(arguments={}, left_out={})
    return TricksReport(
        run_id=first.run_id,
        recorded_at=first.recorded_at,
        commit=first.commit,
        machine=first.machine,
        environment=first.environment,
        policy=policy.rules,
        wall_s=policy.wall_s or 0.0,
        results=tuple(_result(found) for found in by_case.values()),
        arguments=run.arguments,
        left_out=run.left_out,
        patches=run.patches,
        claims=run.claims,
    )


def _result(rows: Sequence[Row]) -> TrickResult:
    policy = _policy(rows[0])
    return TrickResult(
        case=policy.case,
        comparison=comparison_of([row for row in rows if not is_count(row)]),
        equivalence=policy.equivalence,
        exact=tuple(exact_comparisons_of(rows)),
    )


def _policy(row: Row) -> TrickPolicy:
    if isinstance(row.policy, TrickPolicy):
        return row.policy
    raise LedgerError(f"a row of the run {row.run_id} names no trick")


_SOURCE: Source = "tricks"
# Most tricks have large effects, which six launches can show.
LOOKS = (6, 10, 15, 22, 33, 50)
# On a loop a launch is a turn of some steps.
TURNS = (6, 12, 18, 30, 48, 78)
# Turns of the same processes have this variance in common, in parts of their own.
_SHARED_VARIANCE = 0.1
_SHARE_IN_STEPS = 0.8
_LOOP_MARGIN, _LOOP_ALPHA = 0.05, 0.05
# The two best tricks on a loop are tried together in the rest of the budget.
_SHARE_BEFORE_TOGETHER = 0.9


@dataclass(frozen=True, kw_only=True)
class TricksRequest:
    """The tricks to try, by themselves or on the loop ``target``, and at which sizes."""

    only: tuple[str, ...]
    sizes: tuple[int, ...]
    sweep: bool
    target: str | None = None
    arguments: Mapping[str, Level] = field(default_factory=dict)
    by_themselves: bool = True
    margin: float | None
    alpha: float | None
    budget_s: float
    ledger: Path
    seed: int
    wait_s: float | None = None


def run_tricks(request: TricksRequest, *, project: Project, progress: ComparisonProgress) -> TricksReport:
    """Check both sides of each trick against one another, measure, count, and file what came out."""
    # Torch is imported for them.
    progress.info("reading the tricks")
    run = _Run(request, project, progress)
    Ledger(request.ledger).check_writable()
    with measuring(progress.info, wait_s=request.wait_s) as waited_s, temporary_folder() as folder:
        return replace(run.run(folder), waited_s=waited_s)


def recorded_tricks(run: str | None, *, ledger: Path) -> TricksReport:
    """Return a report from its rows in the ledger, the last one where no run is named."""
    rows = [row for row in Ledger(ledger).rows() if row.source == _SOURCE and not row.partial]
    if run is None:
        run = rows[-1].run_id if rows else ""
    mine = [row for row in rows if run and (row.run_id.startswith(run) or row.run_id.endswith(run))]
    if len({row.run_id for row in mine}) != 1:
        raise LedgerError(f'{ledger} has no run of tricks "{run}"; make one with "perfkit tricks"')
    return report_of(mine)


def write_document(report: TricksReport, file: Path) -> None:
    """Write a report as a document with what the catalogue knows, and its sizes as a picture beside it."""
    names = [*(name for one in report.results for name in one.case.tricks), *report.left_out]
    descriptions = {name: trick_named(name) for name in dict.fromkeys(names) if TOGETHER not in name}
    picture, beside = sizes_chart(report), file.with_suffix(".svg")
    text = tricks_document(report, descriptions, picture=None if picture is None else beside.name)
    texts = {file: text} if picture is None else {file: text, beside: picture}
    replace_reports(texts, option="--markdown", makes_folder=True)


def codes(report: TricksReport) -> dict[str, str]:
    """Return how each trick of a report is written."""
    return {name: trick_named(name).code for one in report.results for name in one.case.tricks}


class _Run:
    """One run: the chosen cases, then the two best on the loop together."""

    def __init__(self, request: TricksRequest, project: Project, progress: ComparisonProgress) -> None:
        self._request, self._progress = request, progress
        self._loop = _loop(request, project)
        # On a loop the question is which tricks to write into the code, and not whether a commit fails.
        usual = (project.config.margin_share, project.config.gate.alpha)
        margin, alpha = usual if self._loop is None else (_LOOP_MARGIN, _LOOP_ALPHA)
        self._margin, self._alpha = request.margin or margin, request.alpha or alpha
        self._launches: LoopLaunches | None = None
        self._family = 0
        self._choice = _choice(request, self._loop)
        self._left_out = dict(self._choice.left_out)
        self._commit = read_commit(project.root, ignored=(*project.output_paths, request.ledger))
        self._run_id, self._recorded_at = new_run_id(), utc_now()
        self._described: RunContext | None = None
        self._judged: dict[str, Comparison] = {}

    def run(self, folder: Path) -> TricksReport:
        """Measure in the folder, file the rows, and return their report."""
        if self._loop is None:
            return self._run(folder)
        with LoopLaunches(self._loop, seed=self._request.seed) as self._launches:
            return self._run(folder)

    def _run(self, folder: Path) -> TricksReport:
        begun = time.monotonic()
        deadline = begun + self._request.budget_s
        self._progress.begin(counted(len(self._choice.cases), "trick"))
        plan = self._checked(self._choice.cases)
        if not plan.cases:
            raise UsageError(_nothing(self._left_out))
        first = deadline if self._loop is None else begun + _SHARE_BEFORE_TOGETHER * self._request.budget_s
        with recorded(
            Ledger(self._request.ledger), source=_SOURCE, run_id=self._run_id, recorded_at=self._recorded_at
        ) as run:
            best = best_pair(self._measure(plan, folder / "first", run, deadline=first))
            if best is not None:
                plan = self._checked([together(best)])
                self._measure(plan, folder / "together", run, deadline=deadline)
            facts = TricksRun(
                arguments=self._request.arguments, left_out=dict(self._left_out), patches=self._patches()
            )
            wall_s = time.monotonic() - begun
            finished = (finished_row(row, self._judged, wall_s=wall_s) for row in run.rows)
            rows = [replace(row, policy=replace(_policy(row), run=facts)) for row in finished]
            unrecorded = None
            try:
                run.publish(instead=rows)
            except RecordingError as error:
                # All is measured and judged: the caller shows that before the error.
                run.leave()
                unrecorded = str(error)
            return replace(report_of(rows), unrecorded=unrecorded)

    def _patches(self) -> dict[str, tuple[str, ...]]:
        """Return the lines of the loop's source that the wanted tricks are written into."""
        if self._loop is None:
            return {}
        place = self._loop.place.partition(":")[0]
        file = place if place.endswith(".py") else f"{place.replace('.', '/')}.py"
        places = map(Path(self._loop.root).joinpath, (file, f"src/{file}"))
        path = next((one for one in places if one.is_file()), None)
        source = "" if path is None else path.read_text(encoding="utf-8", errors="replace")
        names = map(trick_named, self._request.only or every_name())
        found = {one.name: patch_of(one, source, Path(file).name) for one in names}
        return {name: patch for name, patch in found.items() if patch and name not in self._left_out}

    def _measure(self, plan: _Plan, folder: Path, run: Run, *, deadline: float) -> list[TrickCase]:
        """Measure a plan, record each launch at once, and return the cases on the loop that help."""
        # Times of sides that do not do the same cannot be compared.
        equal = [case for case in plan.cases if plan.equivalences[case.name].equal]
        alone, on_loop = ([case for case in equal if bool(case.loop) == on] for on in (False, True))
        found: list[Comparison] = []
        if alone:
            folder.mkdir()
            with staged_launcher(
                SUITE,
                folder,
                environment=os.environ,
                seed=self._request.seed,
                beside=instruction_files(alone),
                launches_per_fork_server=_LAUNCHES_PER_FORK_SERVER,
            ) as launcher:
                self._progress.info("setting up")
                listed = list_benchmarks(launcher.start("head", nodes=None))
                launcher.warm_up(listed.report.libraries)
                found += self._timed(
                    plan,
                    alone,
                    LockstepLaunches(launcher, limit_s=lambda _: _LIMIT_S),
                    lambda compared: count_compared(
                        [*compared.values()], launcher, log=lambda _: None, decide=False
                    ),
                    run,
                    deadline=deadline,
                    context=self._context(plan, listed.report.torch),
                )
        if self._launches is not None:
            in_steps, whole = ([case for case in on_loop if is_whole(case) == on] for on in (False, True))
            now = time.monotonic()
            until = now + (_SHARE_IN_STEPS if whole else 1.0) * (deadline - now)
            rules = replace(plan.policy, looks=TURNS, shared_variance=_SHARED_VARIANCE)
            for some, policy, end in ((in_steps, rules, until), (whole, plan.policy, deadline)):
                part, launches = replace(plan, policy=policy), self._launches
                context = self._context(part, launches.torch)
                found += self._timed(
                    part, some, launches, launches.counted, run, deadline=end, context=context
                )
        timed = {row.outcome.benchmark.name for row in run.rows}
        findings = [
            finding_row(one, self._context(plan, {}))
            for one in (*found, *plan.unequal(self._margin))
            if one.estimate is None or one.benchmark.name not in timed
        ]
        run.add(plan.labelled(findings))
        cases = {node_of(case): case for case in plan.cases}
        return helping((cases[one.benchmark.name], one) for one in found)

    def _timed(
        self,
        plan: _Plan,
        cases: Sequence[TrickCase],
        launches: Launches,
        count: Callable[[Mapping[str, ComparedBenchmark]], CountResult],
        run: Run,
        *,
        deadline: float,
        context: RunContext,
    ) -> list[Comparison]:
        """Measure cases until they are decided or the time is over, count them, and return the verdicts."""
        compared = {
            node: ComparedBenchmark(
                benchmark=Benchmark(name=node, version=""), margin=self._margin, gating=True, limit_s=_LIMIT_S
            )
            for node in map(node_of, cases)
        }
        comparison = SequentialComparison.of(
            compared.values(), launches=launches, policy=plan.policy, deadline=deadline
        )
        comparison.keep = lambda found: run.add(plan.labelled(launch_rows(found, compared, context)))
        self._progress.info("measuring")
        comparison.run(schedule(seed=self._request.seed), self._progress)
        self._progress.info("counting")
        counts = count(compared)
        # Counters are compared as in a gate, but none of them gates.
        exact = counts.compared(CounterPolicy(gating=(), tolerance=0.05))
        run.add(plan.labelled(count_rows(counts.pairs, exact, context)))
        judged = [
            state.judge(plan.policy)
            if state.failure is None
            else finding_on_failure(state.compared, state.failure)
            for state in comparison.states.values()
        ]
        self._judged |= {one.benchmark.name: one for one in judged}
        return judged

    def _checked(self, cases: Sequence[TrickCase]) -> _Plan:
        """Check the cases, leave out those that change nothing in the loop, and plan the others."""
        self._progress.info("checking that both sides give the same")
        alone, on_loop = ([case for case in cases if bool(case.loop) == on] for on in (False, True))
        found = check(alone, environment=os.environ) if alone else {}
        if self._launches is not None:
            found |= self._launches.check(on_loop)
        unused = [case for case in cases if not found[case.name].used]
        for case in unused:
            seen = f" in its first {WHOLE_S:g} s" if is_whole(case) else ""
            self._left_out[case.trick] = f"{case.loop} has nothing that it changes{seen}"
        used = tuple(case for case in cases if case not in unused)
        # The two best tricks together will be one more comparison.
        self._family = self._family or len(used) + (self._loop is not None)
        return _Plan(
            cases=used,
            equivalences=found,
            policy=Policy(
                alpha=self._alpha,
                family=self._family,
                looks=LOOKS,
                trimmed_from=TRIMMED_FROM,
                fail_on="proven",
                noise_floor=NOISE_FLOOR,
            ),
        )

    def _context(self, plan: _Plan, torch: Mapping[str, str]) -> RunContext:
        if self._described is None:
            self._described = RunContext(
                source=_SOURCE,
                run_id=self._run_id,
                recorded_at=self._recorded_at,
                commits=dict.fromkeys(SIDES, self._commit),
                machine=read_machine(),
                environment=read_environment(
                    fixed_environment(os.environ, hash_seed=0), torch_settings=torch
                ),
                seed=self._request.seed,
                policy=plan.policy,
            )
        return replace(self._described, policy=plan.policy)


def _loop(request: TricksRequest, project: Project) -> Loop | None:
    if request.target is None:
        return None
    target = resolve_target(request.target, project, folder=Path.cwd())
    return Loop(
        name=target.name,
        place=target.place,
        arguments=request.arguments,
        root=str(project.root),
        folder=str(Path.cwd()),
    )


def _choice(request: TricksRequest, loop: Loop | None) -> Choice:
    """Return the cases by themselves and on the loop."""
    none = Choice(cases=(), left_out={})
    alone = choose(request.only, request.sizes, sweep=request.sweep) if request.by_themselves else none
    applied = choose_for_loop(request.only, loop.name) if loop is not None else none
    found = Choice(cases=(*alone.cases, *applied.cases), left_out={**applied.left_out, **alone.left_out})
    if not found.cases:
        raise UsageError(_nothing(found.left_out))
    return found


def _nothing(left_out: Mapping[str, str]) -> str:
    reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
    return f"none of these tricks can be tried here: {reasons}"
