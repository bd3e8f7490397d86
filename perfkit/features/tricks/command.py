"""``perfkit tricks``: each trick against the same work without it, in lockstep, and what came out."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfkit.commands.measuring import measuring
from perfkit.commands.text_files import replace_texts
from perfkit.config import Project
from perfkit.errors import LedgerError, RecordingError, UsageError
from perfkit.features.experiments.records import Level
from perfkit.features.tricks.equivalence import Checks, check
from perfkit.features.tricks.measuring import (
    Plan,
    TrickMeasurements,
    measure,
    other_rows,
    report_of,
    settled_trick,
    timed_rows,
)
from perfkit.features.tricks.policy import TricksRun
from perfkit.features.tricks.records import TOGETHER, Loop, TrickCase
from perfkit.features.tricks.report import sizes_chart, tricks_document
from perfkit.features.tricks.trick import Choice, best_pair, choose, choose_for_loop, together, trick_named
from perfkit.features.tricks.verdict import TricksReport, helping
from perfkit.gating.compare import recorded
from perfkit.gating.rows import RunContext
from perfkit.gating.rules import ComparedBenchmark
from perfkit.gating.run import MeasuredLaunch
from perfkit.identity import new_run_id, utc_now
from perfkit.ledger.recording import Run
from perfkit.ledger.store import Ledger
from perfkit.model import SIDES, Source
from perfkit.model.comparisons import Policy, Verdict
from perfkit.model.progress import ComparisonProgress
from perfkit.profiling.passes.targets import resolve_target
from perfkit.repo.commits import read_commit
from perfkit.runner.commands import fixed_environment
from perfkit.runner.lockstep.launch import SideReport
from perfkit.runner.machine.facts import read_environment, read_machine
from perfkit.stats.interval import TRIMMED_FROM
from perfkit.temporary import temporary_folder
from perfkit.units import counted

_SOURCE: Source = "tricks"
# Most tricks have large effects, which six launches can show.
LOOKS = (6, 10, 15, 22, 33, 50)
# The two best tricks on a loop are tried together in the rest of the budget.
_SHARE_BEFORE_TOGETHER = 0.8


@dataclass(frozen=True, kw_only=True)
class TricksRequest:
    """Which tricks to try: ``only`` these, all without any; at ``sizes``, at all of their own, or at one.

    They are applied to the loop ``target`` with ``arguments``, and tried without a loop where they are to be
    tried ``by_themselves``. ``wait_s`` is how long to wait for another perfkit, None for as long as it takes.
    """

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
    replace_texts(texts, option="--markdown", makes_folder=True)


def codes(report: TricksReport) -> dict[str, str]:
    """Return how each trick of a report is written."""
    return {name: trick_named(name).code for one in report.results for name in one.case.tricks}


class _Run:
    """One run: the chosen cases, then the two best on the loop together."""

    def __init__(self, request: TricksRequest, project: Project, progress: ComparisonProgress) -> None:
        self._request, self._progress = request, progress
        self._margin = request.margin or project.config.margin_share
        self._alpha = request.alpha or project.config.gate.alpha
        self._loop = _loop(request, project)
        self._choice = _choice(request, self._loop)
        self._left_out = dict(self._choice.left_out)
        self._commit = read_commit(project.root, ignored=(*project.output_paths, request.ledger))
        self._run_id, self._recorded_at = new_run_id(), utc_now()
        self._described: RunContext | None = None
        self._verdicts: dict[str, Verdict] = {}

    def run(self, folder: Path) -> TricksReport:
        """Measure in the folder, file the rows, and return their report."""
        begun = time.monotonic()
        deadline = begun + self._request.budget_s
        self._progress.begin(counted(len(self._choice.cases), "trick"))
        plan = self._checked(self._choice.cases, folder)
        if not plan.cases:
            raise UsageError(_nothing(self._left_out))
        first = deadline if self._loop is None else begun + _SHARE_BEFORE_TOGETHER * self._request.budget_s
        with recorded(
            Ledger(self._request.ledger), source=_SOURCE, run_id=self._run_id, recorded_at=self._recorded_at
        ) as run:
            self._measure(plan, folder, run, first=first, last=deadline)
            facts = TricksRun(arguments=self._request.arguments, left_out=dict(self._left_out))
            wall_s = time.monotonic() - begun
            rows = [settled_trick(row, self._verdicts, facts, wall_s=wall_s) for row in run.rows]
            unrecorded = None
            try:
                run.publish(instead=rows)
            except RecordingError as error:
                # All is measured and judged: the caller shows that before the error.
                run.leave()
                unrecorded = str(error)
            return replace(report_of(rows), unrecorded=unrecorded)

    def _measure(self, plan: Plan, folder: Path, run: Run, *, first: float, last: float) -> None:
        """Measure the plan, then the two best on the loop together; each launch is recorded at once."""

        def take(plan: Plan, name: str, deadline: float) -> TrickMeasurements:
            def keep(
                report: SideReport,
                compared: Mapping[str, ComparedBenchmark],
                measured: Sequence[MeasuredLaunch],
            ) -> None:
                run.add(list(timed_rows(plan, compared, measured, self._context(plan, report))))

            found = measure(plan, folder / name, keep=keep, progress=self._progress, deadline=deadline)
            self._verdicts |= {one.benchmark.name: one.verdict for one in found.judged}
            run.add(list(other_rows(found, run.rows, self._context(plan, found.report))))
            return found

        best = best_pair(helping(take(plan, "first", first).by_case))
        if best is not None:
            take(self._checked([together(best)], folder), "together", last)

    def _checked(self, cases: Sequence[TrickCase], folder: Path) -> Plan:
        """Check the cases, leave out those that change nothing in the loop, and plan the others."""
        self._progress.info("checking that both sides give the same")
        found = check(Checks(cases=tuple(cases), loop=self._loop), folder, environment=os.environ)
        unused = [case for case in cases if not found.equivalences[case.name].used]
        self._left_out |= {case.trick: f"{case.loop} has nothing that it changes" for case in unused}
        # The two best tricks together will be one more comparison.
        family = len(self._choice.cases) + (self._loop is not None)
        return Plan(
            cases=tuple(case for case in cases if case not in unused),
            loop=self._loop,
            equivalences=found.equivalences,
            policy=Policy(alpha=self._alpha, family=family, looks=LOOKS, trimmed_from=TRIMMED_FROM),
            margin=self._margin,
            seed=self._request.seed,
        )

    def _context(self, plan: Plan, report: SideReport) -> RunContext:
        if self._described is None:
            self._described = RunContext(
                source=_SOURCE,
                run_id=self._run_id,
                recorded_at=self._recorded_at,
                commits=dict.fromkeys(SIDES, self._commit),
                machine=read_machine(),
                environment=read_environment(
                    fixed_environment(os.environ, hash_seed=0), torch_settings=report.torch
                ),
                seed=self._request.seed,
                policy=plan.policy,
            )
        return self._described


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
