"""``perfkit gate --plan``: what a gate would find in its time, told before anything is timed."""

from __future__ import annotations

import time

from perfkit.commands.surveying import GateRequest, requested_sides, resolve_request
from perfkit.config import Project
from perfkit.gating.engine import Record, describe, settle_method
from perfkit.gating.explaining import notes_on
from perfkit.gating.plan import experience_from, foresee
from perfkit.gating.prior import earlier_rows, find_prior
from perfkit.ledger.store import Ledger
from perfkit.model.comparisons import GatePlan
from perfkit.model.progress import ComparisonProgress
from perfkit.report.gate.wording import told_changes


def plan_gate(request: GateRequest, *, project: Project, progress: ComparisonProgress) -> GatePlan:
    """Collect the benchmarks of both sides and return what a gate of them would find; nothing is recorded.

    Raises:
        RepositoryError: a side cannot be found.
        UsageError: there is nothing to measure, or the request times nothing.
        LedgerError: the ledger cannot be read.
        NotMeasuredError: a side's benchmarks cannot be collected, or another code would be measured.
    """
    pair = resolve_request(request, project)
    ledger = Ledger(request.ledger)
    # Collecting would disturb whoever measures, so that the machine is held for it.
    with requested_sides(request, pair, project, seed=request.seed, progress=progress) as opened:
        sides, surveyed = opened.sides, opened.survey
        set_up_s = time.monotonic() - opened.began
        method = settle_method(
            project, surveyed, request.terms, seed=request.seed, counted=project.config.exact.count
        )
        context = describe(sides, surveyed, method, Record(ledger=ledger, source="gate"))
        prior = find_prior(earlier_rows(ledger, pair), context)
        changed = told_changes((*request.changed_rules, *surveyed.changed_markers))
        notes = (*changed, *notes_on(sides, surveyed, prior=prior, loaded=None))
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
    )
