"""``perfkit gate``: compare two sides, and head with a release, or plan to; judge, record and report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from perfkit.choices import RulesOf, Uncovered
from perfkit.commands.past import with_past
from perfkit.config import Project
from perfkit.errors import EXIT_INTERRUPTED, PerfkitError, RepositoryError, RunInterruptedError
from perfkit.gating.accept import accept, check_acceptances
from perfkit.gating.compare import Record, compare_sides, describe
from perfkit.gating.counters import check_valgrind, targets_to_count
from perfkit.gating.coverage import Covered, cover, expect_tracing, noticing
from perfkit.gating.design import Terms, choose_method
from perfkit.gating.explain import explain_benchmarks, notes_on
from perfkit.gating.measuring import with_measuring_edits
from perfkit.gating.plan import experience_from, foresee
from perfkit.gating.rows import continued_seed, earlier_rows, find_prior, recompute_gate
from perfkit.gating.rules import Rules, finding_on, under_rules, with_rules_of_base, with_rules_of_head
from perfkit.gating.sides import OpenSides, Scope, TargetBenchmark, check_selection, open_sides
from perfkit.gating.survey import Survey, take_survey
from perfkit.invocation import follow_up
from perfkit.ledger.store import Ledger
from perfkit.model import Benchmark, Side, Source
from perfkit.model.comparisons import ComparisonProgress, GatePlan, GateReport, exit_code, worst
from perfkit.repo.commits import open_repository, releases, resolve
from perfkit.repo.environments import check_wanted, side_environments
from perfkit.repo.sides import WORKTREE, SidePair, is_same_code, named_side, resolve_same, resolve_sides
from perfkit.repo.sides import Side as NamedSide
from perfkit.report.gate.decision import decision_word, reproducing_command
from perfkit.report.history import short_sha
from perfkit.runner.lock import measuring
from perfkit.runner.lockstep.collection import ignore_log


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    """What to compare, and how; what is None follows from the configuration.

    ``changed_rules`` are those that head changes without effect on this gate, ``dropped_targets`` the targets
    that base counts and head lacks or defines otherwise. With
    ``time_all`` benchmarks that run no changed code are timed as well. ``uncovered`` decides on a gate of
    which changed functions are not measured, ``strict`` on one of a change that edits how it is measured.
    """

    base: str | None
    head: str | None
    benchmarks: str | None
    select: str | None
    terms: Terms
    ledger: Path
    seed: int
    exact_only: bool = False
    instructions: bool = False
    wait_s: float | None = None
    environments: Mapping[Side, Sequence[str]] = field(default_factory=dict)
    target: TargetBenchmark | None = None
    rules: RulesOf = "base"
    changed_rules: tuple[str, ...] = ()
    dropped_targets: tuple[str, ...] = ()
    time_all: bool = False
    uncovered: Uncovered = "note"
    strict: bool = False

    @property
    def of_environments(self) -> bool:
        """Whether a side is measured in another environment than the present one."""
        return any(self.environments.values())


@dataclass(frozen=True, kw_only=True)
class Gated:
    """A gate's report, the exit code with that against a release, and what kept that from its end."""

    report: GateReport
    exit_code: int
    failure: PerfkitError | None = None

    @property
    def unrecorded(self) -> str | None:
        """What kept the end of a gate's record from the ledger, None where both are whole."""
        other = self.report.against
        return self.report.unrecorded or (other.unrecorded if other else None)


@dataclass(frozen=True, kw_only=True)
class SurveyedSides:
    """Both sides, what was found on them, and when (monotonic clock) the budget ``began``."""

    sides: OpenSides
    survey: Survey
    began: float
    waited_s: float


def run_gates(
    request: GateRequest, against: str | None, *, project: Project, progress: ComparisonProgress
) -> Gated:
    """Gate head against its base, then against a release: that of ``against``, or the configured one."""
    request, project, pair = _with_deciding_rules(request, project)
    # The code of a gate of environments is mostly one, which a release does not concern.
    release = None if request.of_environments else _release(request, against, project)
    if release is None or release.is_base:
        report = run_gate(request, project=project, progress=progress, pair=pair)
        report = replace(report, notes=(*_notes(release), *report.notes))
        return Gated(report=report, exit_code=report.exit_code)
    # Nobody else measures in between.
    with measuring(progress.info, wait_s=request.wait_s) as waited_s:
        report = replace(run_gate(request, project=project, progress=progress), waited_s=waited_s)
        progress.info(f"{decision_word(report)} against its base; now against {release.name}")
        try:
            other = run_gate(
                release.request_for(request, report.head.sha), project=project, progress=progress
            )
        except (PerfkitError, KeyboardInterrupt) as stop:
            interrupted = RunInterruptedError("interrupted before anything was measured")
            error = stop if isinstance(stop, PerfkitError) else interrupted
            return Gated(report=report, exit_code=error.exit_code, failure=release.failure(error, report))
    return Gated(
        report=replace(report, against=replace(other, release=release.name)),
        exit_code=worst((report.exit_code, other.exit_code)),
    )


def run_gate(
    request: GateRequest, *, project: Project, progress: ComparisonProgress, pair: SidePair | None = None
) -> GateReport:
    """Compare the sides and return the verdicts; every launch is recorded, interrupted or not.

    ``pair`` are the sides of the request where they have just been resolved.
    """
    ledger = Ledger(request.ledger)
    if request.instructions:
        check_valgrind()
    pair = pair or resolve_request(request, project)
    ledger.check_writable()
    check_acceptances(pair, ledger=request.ledger, outputs=project.output_paths)
    targets = targets_to_count(project)
    source: Source = "environments" if request.of_environments else "gate"
    earlier = earlier_rows(ledger, pair, source=source)
    seed = continued_seed(request.seed, earlier)
    traced = _is_traced(request, project)
    with requested_sides(request, pair, project, seed=seed, progress=progress, traced=traced) as opened:
        sides = opened.sides
        covered = _covered(request, opened, project, progress)
        surveyed = with_measuring_edits(
            sides,
            covered.survey,
            ledger=request.ledger,
            of_head=request.rules == "head",
            strict=request.strict,
            functions=covered.coverage.functions if covered.coverage else (),
        )
        method = choose_method(
            project,
            surveyed,
            request.terms,
            seed=seed,
            timed=not request.exact_only,
            counted=project.config.exact.count or request.exact_only,
            targets=targets,
            instructions=request.instructions,
            of_environments=request.of_environments,
        )
        record = Record(ledger=ledger, source=source, earlier=earlier)
        found = compare_sides(sides, surveyed, method, record=record, began=opened.began, progress=progress)
        explanations, unprofiled = explain_benchmarks(
            found.comparisons, found.exact, surveyed, sides, progress, budget_s=method.budget_s
        )
        loaded = None if found.loaded is None else found.loaded | covered.loaded
        notes = (*covered.notes, *notes_on(sides, surveyed, prior=found.prior, loaded=loaded))
    accepted = accept(
        found.comparisons, found.exact, pair, ledger=request.ledger, outputs=project.output_paths
    )
    report = GateReport(
        run_id=found.context.run_id,
        recorded_at=found.context.recorded_at,
        base=pair.base.commit,
        head=pair.head.commit,
        machine=found.context.machine,
        environment=found.context.environment,
        policy=method.policy,
        budget_s=method.budget_s,
        wall_s=time.monotonic() - opened.began,
        waited_s=opened.waited_s,
        timed_s=found.timed_s,
        counted_s=found.counted_s,
        left_s=found.left_s,
        comparisons=accepted.comparisons,
        exit_code=exit_code(
            (*accepted.comparisons, *accepted.exact),
            recorded=found.unrecorded is None,
            covered=request.uncovered == "note" or not (covered.coverage and covered.coverage.uncovered),
        ),
        notes=(*notes, *found.notes, *accepted.notes, *unprofiled),
        explanations=explanations,
        exact=accepted.exact,
        unrecorded=None if found.unrecorded is None else str(found.unrecorded),
        base_environment=found.context.base_environment,
        wanted={side: tuple(wanted) for side, wanted in request.environments.items()},
        changed_rules=(
            *request.changed_rules,
            *(f"the marker of {name}" for name in surveyed.markers if request.rules == "base"),
        ),
        coverage=covered.coverage,
        measuring=found.measuring,
    )
    return with_past(report, ledger=request.ledger, root=project.root)


def _covered(
    request: GateRequest, opened: SurveyedSides, project: Project, progress: ComparisonProgress
) -> Covered:
    """Trace what the benchmarks run of a change, unless the configuration switches that off."""
    if not _is_traced(request, project):
        return Covered(survey=noticing(opened.sides, opened.survey))
    return cover(
        opened.sides,
        opened.survey,
        time_all=request.time_all or not project.config.gate.same_code,
        always=request.time_all or request.uncovered == "fail",
        log=progress.info,
        budget_s=request.terms.budget_s,
        spent_s=time.monotonic() - opened.began,
        outputs=(request.ledger,),
    )


def _is_traced(request: GateRequest, project: Project) -> bool:
    return project.config.gate.same_code or request.time_all or request.uncovered == "fail"


@contextmanager
def surveyed_sides(
    pair: SidePair,
    project: Project,
    scope: Scope,
    *,
    margin: float | None,
    wait_s: float | None,
    log: Callable[[str], None],
    stage: Callable[[str], None] = ignore_log,
    environments: Mapping[Side, Sequence[str]] = MappingProxyType({}),
    rules: RulesOf = "base",
    traced: bool = False,
) -> Iterator[SurveyedSides]:
    """Hold the machine, lay out both sides, and collect their benchmarks, which may be ``traced`` next."""
    with measuring(log, wait_s=wait_s) as waited_s:
        built = side_environments(environments, log=stage)
        # Building an environment may take minutes, which are no part of the budget.
        began = time.monotonic()
        stage("checking out both sides")
        with open_sides(pair, project, scope, environments=built) as sides:
            stage("collecting benchmarks")
            if traced:
                expect_tracing(sides)
            survey = take_survey(sides, margin=margin, rules=rules, log=stage)
            yield SurveyedSides(sides=sides, survey=survey, began=began, waited_s=waited_s)


def resolve_request(request: GateRequest, project: Project) -> SidePair:
    """Return the sides that are asked for, once the selection is known to be valid."""
    check_selection(request.select, project)
    check_wanted(request.environments)
    ignored = (*project.output_paths, request.ledger)
    resolve = resolve_same if request.of_environments else resolve_sides
    return resolve(project.root, base=request.base, head=request.head, ignored=ignored)


@contextmanager
def requested_sides(
    request: GateRequest,
    pair: SidePair,
    project: Project,
    *,
    seed: int,
    progress: ComparisonProgress,
    traced: bool = False,
) -> Iterator[SurveyedSides]:
    """Log which sides are compared, and open them as they are asked for."""
    scope = Scope(
        benchmarks=request.benchmarks,
        select=request.select,
        seed=seed,
        target=request.target,
        overruled=frozenset(one.partition(" ")[0] for one in request.changed_rules),
    )
    progress.begin("\n".join((*pair.remarks, pair.title)))
    with surveyed_sides(
        pair,
        project,
        scope,
        margin=request.terms.margin,
        wait_s=request.wait_s,
        log=progress.info,
        stage=progress.info,
        environments=request.environments,
        rules=request.rules,
        traced=traced,
    ) as opened:
        rules = Rules.of(project.config, margin=request.terms.margin)
        dropped = (
            finding_on(
                under_rules(Benchmark(name=name, version=""), rules),
                "MISSING",
                "head has no such target in tool.perfkit.targets, or defines it otherwise",
            )
            for name in request.dropped_targets
        )
        survey = replace(opened.survey, findings=(*opened.survey.findings, *dropped))
        yield replace(opened, survey=survey)


def plan_gates(
    request: GateRequest, against: str | None, *, project: Project, progress: ComparisonProgress
) -> GatePlan:
    """Plan the gates that ``run_gates`` would make."""
    request, project, pair = _with_deciding_rules(request, project)
    release = _release(request, against, project)
    plan = plan_gate(request, project=project, progress=progress, pair=pair)
    if release is None or release.is_base:
        return replace(plan, notes=(*_notes(release), *plan.notes))
    other = plan_gate(release.request_for(request, plan.head.sha), project=project, progress=progress)
    return replace(plan, against=replace(other, release=release.name))


def plan_gate(
    request: GateRequest, *, project: Project, progress: ComparisonProgress, pair: SidePair | None = None
) -> GatePlan:
    """Collect the benchmarks of both sides and return what a gate of them would find; nothing is recorded."""
    pair = pair or resolve_request(request, project)
    ledger = Ledger(request.ledger)
    # Collecting would disturb other measurements, so the machine is held for it.
    with requested_sides(request, pair, project, seed=request.seed, progress=progress) as opened:
        sides = opened.sides
        surveyed = with_measuring_edits(
            sides, opened.survey, ledger=request.ledger, of_head=request.rules == "head", strict=False
        )
        set_up_s = time.monotonic() - opened.began
        method = choose_method(
            project, surveyed, request.terms, seed=request.seed, counted=project.config.exact.count
        )
        context = describe(sides, surveyed, method, Record(ledger=ledger, source="gate"))
        prior = find_prior(earlier_rows(ledger, pair), context)
        notes = tuple(notes_on(sides, surveyed, prior=prior, loaded=None))
    known = experience_from(ledger.rows_from("gate"), context.machine.machine_id)
    found = foresee(prior.continued(surveyed.compared), known, method, set_up_s=set_up_s)
    return GatePlan(
        base=pair.base.commit,
        head=pair.head.commit,
        machine=context.machine,
        policy=method.policy,
        budget_s=method.budget_s,
        set_up_s=set_up_s,
        unchanged_s=found.unchanged_s,
        enough_s=found.enough_s,
        benchmarks=found.benchmarks,
        findings=surveyed.findings,
        notes=notes,
        measuring=surveyed.measuring,
    )


def judge_run(run: str, *, ledger: Path, project: Project) -> Gated:
    """Judge the kept launches of a gate anew; ``run`` begins or ends its id."""
    report = with_past(recompute_gate(run, ledger=ledger, project=project), ledger=ledger, root=project.root)
    if any(one.verdict == "REGRESSED" and one.accepted is None for one in report.comparisons):
        command = reproducing_command(report, named=short_sha)
        again = "the same gate" if command is None else f"`{follow_up(command)}`"
        report = replace(
            report, notes=(*report.notes, f"profiles are not kept: {again} names the lines again")
        )
    return Gated(report=report, exit_code=report.exit_code)


def last_release(project: Project) -> str:
    """Return the newest tag that HEAD comes from and is not at itself."""
    head = resolve(open_repository(project.root), "HEAD").sha
    before = [name for name, sha in releases(project.root).items() if sha != head]
    if not before:
        raise RepositoryError(
            "--against-release: HEAD comes from no tag; fetch them with `git fetch --tags --unshallow`,"
            " or name a commit: --against REF"
        )
    return before[-1]


def _with_deciding_rules(request: GateRequest, project: Project) -> tuple[GateRequest, Project, SidePair]:
    """Return the request and the project by the rules that decide, and the sides by these rules."""
    pair = resolve_request(request, project)
    ruled = (with_rules_of_base if request.rules == "base" else with_rules_of_head)(project, pair)
    strict = request.strict or ruled.project.config.gate.strict
    ruling = replace(request, changed_rules=ruled.changed, dropped_targets=ruled.dropped, strict=strict)
    if ruled.project.config != project.config:
        pair = resolve_request(ruling, ruled.project)
    return ruling, ruled.project, pair


@dataclass(frozen=True, kw_only=True)
class _Release:
    """A release that head is compared with, besides the ``pair`` of head and its base."""

    name: str
    side: NamedSide
    pair: SidePair

    @property
    def is_base(self) -> bool:
        return is_same_code(self.side, self.pair.base)

    def request_for(self, request: GateRequest, head: str) -> GateRequest:
        """Return the request of its gate; a name may move, so ``head`` is the commit just compared."""
        source, kind = self.side, self.pair.head.kind
        named = {"commit": head, "worktree": WORKTREE, "directory": str(self.pair.head.source)}[kind]
        base = source.commit.sha if source.kind == "commit" else str(source.source)
        # What was edited since a release has been accepted one by one.
        return replace(request, base=base, head=named, strict=False)

    def failure(self, error: PerfkitError, report: GateReport) -> PerfkitError:
        """Return an error that names this comparison, and does not hide what the first one decided."""
        failure = PerfkitError(f"against {self.name}: {error}")
        interrupted = error.exit_code == EXIT_INTERRUPTED
        failure.exit_code = error.exit_code if interrupted else worst((report.exit_code, error.exit_code))
        for note in getattr(error, "__notes__", ()):
            failure.add_note(note)
        return failure


def _release(request: GateRequest, against: str | None, project: Project) -> _Release | None:
    """Return the release that was named, or else is configured; None where there is none."""
    name = project.config.gate.against if against is None else against
    if not name:
        return None
    place = f"--against {name}" if against else f'[tool.perfkit.gate] against = "{name}"'
    ignored = (*project.output_paths, request.ledger)
    pair = resolve_sides(project.root, base=request.base, head=request.head, ignored=ignored)
    try:
        side = named_side(project.root, name)
    except RepositoryError as error:
        raise RepositoryError(f"{place}: {error}") from error
    if is_same_code(side, pair.head):
        raise RepositoryError(
            f"{place} is head itself, so there is nothing to compare; name an earlier release,"
            " or none: --against ''"
        )
    return _Release(name=name, side=side, pair=pair)


def _notes(release: _Release | None) -> tuple[str, ...]:
    return (f"{release.name} is base itself, so head is compared once",) if release else ()
