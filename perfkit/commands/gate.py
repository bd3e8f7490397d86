"""``perfkit gate``: compare two sides by lockstep launches, judge, record and tell."""

from __future__ import annotations

import time

from perfkit.commands.past import with_past
from perfkit.commands.surveying import GateRequest, requested_sides, resolve_request
from perfkit.config import Project
from perfkit.gating.accepting import accept, check_acceptances
from perfkit.gating.counts import check_valgrind, targets_to_count
from perfkit.gating.engine import Record, compare_sides, settle_method
from perfkit.gating.explaining import explain_benchmarks, notes_on
from perfkit.gating.prior import continued_seed, earlier_rows
from perfkit.ledger.store import Ledger
from perfkit.model import Source
from perfkit.model.comparisons import GateReport, exit_code
from perfkit.model.progress import ComparisonProgress
from perfkit.profiling.passes.targets import Target
from perfkit.repo.sides import SidePair


def run_gate(request: GateRequest, *, project: Project, progress: ComparisonProgress) -> GateReport:
    """Compare the sides and return the verdicts; every launch is recorded, interrupted or not.

    Raises:
        RepositoryError: a side cannot be found.
        UsageError: there is nothing to measure, or nothing to count instructions with.
        LedgerError: the ledger cannot be written, or an acceptance in it is damaged.
        NotMeasuredError: a side's benchmarks cannot be collected, or another code would be measured.
        RunInterruptedError: the person stopped it; its launches so far are kept.
    """
    ledger = Ledger(request.ledger)
    pair, targets = _check(request, project, ledger)
    source: Source = "environments" if request.of_environments else "gate"
    earlier = earlier_rows(ledger, pair, source=source)
    seed = continued_seed(request.seed, earlier)
    with requested_sides(request, pair, project, seed=seed, progress=progress) as opened:
        sides, surveyed = opened.sides, opened.survey
        method = settle_method(
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
        explanations = explain_benchmarks(found.comparisons, found.exact, surveyed.compared, sides, progress)
        notes = tuple(notes_on(sides, surveyed, prior=found.prior, loaded=found.loaded))
    told = accept(found.comparisons, found.exact, pair, ledger=request.ledger, outputs=project.output_paths)
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
        comparisons=told.comparisons,
        exit_code=exit_code((*told.comparisons, *told.exact), recorded=found.unrecorded is None),
        notes=(*notes, *found.notes, *told.notes),
        explanations=explanations,
        exact=told.exact,
        unrecorded=None if found.unrecorded is None else str(found.unrecorded),
        base_environment=found.context.base_environment,
        wanted={side: tuple(wanted) for side, wanted in request.environments.items()},
        changed_rules=(*request.changed_rules, *surveyed.changed_markers),
    )
    return with_past(report, ledger=request.ledger, root=project.root)


def _check(request: GateRequest, project: Project, ledger: Ledger) -> tuple[SidePair, tuple[Target, ...]]:
    """Refuse what can be refused before anything is measured; return the sides, and the targets to count."""
    if request.instructions:
        check_valgrind()
    pair = resolve_request(request, project)
    ledger.check_writable()
    check_acceptances(pair, ledger=request.ledger, outputs=project.output_paths)
    return pair, targets_to_count(project)
