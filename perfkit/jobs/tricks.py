"""``perfkit tricks``: each trick against the same work without it, in lockstep, and what came out."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec

from perfkit.config import Project
from perfkit.errors import LedgerError, RunInterruptedError, UsageError
from perfkit.experiments.sequential import Contender, SequentialComparison, Trial
from perfkit.experiments.staging import staged_crew
from perfkit.experiments.tricks.choosing import Choice, choose, trick_named
from perfkit.experiments.tricks.equivalence import check_equivalence
from perfkit.experiments.tricks.suite import SUITE, node_of, said_to_sides
from perfkit.identity import new_run_id
from perfkit.jobs.gate import LOOKS
from perfkit.jobs.gates.counting import Tally, count_contenders
from perfkit.jobs.gates.field import finding_on_failure
from perfkit.jobs.gates.rows import Occasion, count_rows, finding_row, launch_rows
from perfkit.ledger.store import Ledger
from perfkit.machine.environment import read_environment
from perfkit.machine.facts import read_machine
from perfkit.measure.clock import utc_now
from perfkit.measure.environment import fixed_environment
from perfkit.measure.lock import machine_lock
from perfkit.measure.lockstep.crew import Crew
from perfkit.measure.lockstep.schedule import schedule
from perfkit.measure.lockstep.scout import Scouted, scout
from perfkit.records import SIDES, Benchmark, Row
from perfkit.records.tricks import Equivalence, TrickCase
from perfkit.repo.commits import read_commit
from perfkit.verdict.exact import ExactPolicy
from perfkit.verdict.from_rows import comparison_of, exact_comparisons_of, is_count, policy_of
from perfkit.verdict.model import Comparison, Policy
from perfkit.verdict.tricks import TrickResult, TricksReport
from perfkit.views.tricks.markdown import tricks_document

# Setting up a few of them takes seconds.
_LIMIT_S = 120.0
# Entries of a row's policy.
_CASE = "case"
_EQUIVALENCE = "equivalence"
_LEFT_OUT = "left_out"
_WALL = "wall_s"


@dataclass(frozen=True, kw_only=True)
class TricksRequest:
    """Which tricks to try: ``only`` these, all without any; at ``sizes``, at all of their own, or at one.

    ``budget_s`` is for all of them together.
    """

    only: tuple[str, ...]
    sizes: tuple[int, ...]
    sweep: bool
    margin: float | None
    alpha: float | None
    budget_s: float
    ledger: Path
    seed: int


class Listener(Protocol):
    """Is told what happens, and how the tricks stand."""

    def begin(self, title: str) -> None:
        """Say what is compared."""

    def say(self, text: str) -> None:
        """Say which stage begins."""

    def update(self, states: Sequence[Comparison], elapsed_s: float, left_s: float | None) -> None:
        """Say how they stand."""


def run_tricks(request: TricksRequest, *, project: Project, listener: Listener) -> TricksReport:
    """Check both sides of each trick against one another, measure, count, and file what came out.

    Raises:
        UsageError: there is no such trick, or none that can be tried here.
        RepositoryError: there is no commit to record under.
        LedgerError: the ledger cannot be written.
        RunInterruptedError: the person stopped it; nothing of it is kept.
    """
    choice = choose(request.only, request.sizes, sweep=request.sweep)
    if not choice.cases:
        said = "; ".join(f"{name} {why}" for name, why in choice.left_out.items())
        raise UsageError(f"none of these tricks can be tried here: {said}")
    Ledger(request.ledger).check_writable()
    listener.begin(f"{len(choice.cases)} tricks")
    with machine_lock(on_wait=lambda: listener.say("waiting: another perfkit measures on this machine")):
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="perfkit-tricks-") as name:
            folder = Path(name)
            listener.say("checking that both sides give the same")
            equivalences = check_equivalence(choice.cases, folder, environment=os.environ)
            sides = said_to_sides(choice.cases)
            with staged_crew(SUITE, folder, environment=os.environ, seed=request.seed, beside=sides) as crew:
                run = _Run(request, project, choice, crew, equivalences)
                try:
                    return run.run(listener, begun)
                except KeyboardInterrupt:
                    raise RunInterruptedError("interrupted; no trick was recorded") from None


def recorded_tricks(run: str | None, *, ledger: Path) -> TricksReport:
    """Return a report from its rows in the ledger, the last one where no run is named.

    Raises:
        LedgerError: there is none.
    """
    rows = [row for row in Ledger(ledger).rows() if row.source == "tricks"]
    if run is None:
        run = rows[-1].run_id if rows else ""
    mine = [row for row in rows if run and (row.run_id.startswith(run) or row.run_id.endswith(run))]
    if len({row.run_id for row in mine}) != 1:
        raise LedgerError(f'{ledger} has no run of tricks "{run}"; make one with "perfkit tricks"')
    return _report_of(mine)


def document(report: TricksReport) -> str:
    """Return a report as a document, with what the catalogue knows of each trick."""
    names = [*(one.case.trick for one in report.results), *report.left_out]
    return tricks_document(report, {name: trick_named(name) for name in names})


class _Run:
    """One run over all cases."""

    def __init__(
        self,
        request: TricksRequest,
        project: Project,
        choice: Choice,
        crew: Crew,
        equivalences: Mapping[str, Equivalence],
    ) -> None:
        self._request, self._choice, self._crew = request, choice, crew
        self._equivalences = equivalences
        self._margin = request.margin or project.config.margin_share
        self._commit = read_commit(project.root, ignored=(*project.output_paths, request.ledger))
        alpha = request.alpha or project.config.gate.alpha
        self._policy = Policy(alpha=alpha, family=len(choice.cases), looks=LOOKS)

    def run(self, listener: Listener, begun: float) -> TricksReport:
        listener.say("setting up")
        found = scout(self._crew.start("head", nodes=None))
        self._crew.warm_up(found.report.libraries)
        contenders = self._contenders(found)
        comparison = SequentialComparison(
            crew=self._crew,
            trials={node: Trial(contender) for node, contender in contenders.items()},
            policy=self._policy,
            deadline=begun + self._request.budget_s,
        )
        listener.say("measuring")
        comparison.run(schedule(seed=self._request.seed), listener)
        judged = [_judged(trial, self._policy) for trial in comparison.trials.values()]
        tally = count_contenders(
            tuple(contenders.values()),
            self._crew,
            say=lambda node: listener.say(f"counting {node}"),
            decide=False,
        )
        occasion = self._occasion(found, time.monotonic() - begun)
        rows = self._rows(comparison, contenders, judged, tally, occasion)
        Ledger(self._request.ledger).append(rows)
        return _report_of(rows)

    def _contenders(self, found: Scouted) -> dict[str, Contender]:
        """Return those whose sides do the same: of the others no time means anything."""
        return {
            node_of(case): Contender(
                benchmark=found.found[node_of(case)].benchmark,
                margin=self._margin,
                gating=True,
                limit_s=_LIMIT_S,
            )
            for case in self._choice.cases
            if self._equivalences[case.name].equal
        }

    def _occasion(self, found: Scouted, wall_s: float) -> Occasion:
        return Occasion(
            source="tricks",
            run_id=new_run_id(),
            recorded_at=utc_now(),
            commits=dict.fromkeys(SIDES, self._commit),
            machine=read_machine(),
            environment=read_environment(
                fixed_environment(os.environ, hash_seed=0), torch_settings=found.report.torch
            ),
            seed=self._request.seed,
            policy=self._policy,
            common={_LEFT_OUT: json.dumps(dict(self._choice.left_out)), _WALL: f"{wall_s:.1f}"},
        )

    def _rows(
        self,
        comparison: SequentialComparison,
        contenders: Mapping[str, Contender],
        judged: Sequence[Comparison],
        tally: Tally,
        occasion: Occasion,
    ) -> list[Row]:
        verdicts = {one.benchmark.name: one.verdict for one in judged}
        rows = list(launch_rows(comparison.measured, contenders, verdicts, occasion))
        timed = {row.outcome.benchmark.name for row in rows}
        rows += [
            finding_row(one, occasion)
            for one in (*judged, *self._unequal())
            if one.estimate is None or one.benchmark.name not in timed
        ]
        # Both the tolerance and what decides are a gate's: here nothing gates, it is told.
        rows += count_rows(tally.pairs, tally.compared(ExactPolicy(gating=(), tolerance=0.05)), occasion)
        return [self._labelled(row) for row in rows]

    def _unequal(self) -> list[Comparison]:
        """Return a finding for each case that was not measured."""
        return [
            Comparison(
                benchmark=Benchmark(name=node_of(case), version=""),
                verdict="FAILED",
                margin=self._margin,
                message=self._equivalences[case.name].problem or "its two sides do not give the same",
            )
            for case in self._choice.cases
            if not self._equivalences[case.name].equal
        ]

    def _labelled(self, row: Row) -> Row:
        case = next(case for case in self._choice.cases if node_of(case) == row.outcome.benchmark.name)
        label = {
            _CASE: msgspec.json.encode(case).decode(),
            _EQUIVALENCE: msgspec.json.encode(self._equivalences[case.name]).decode(),
        }
        return replace(row, policy={**row.policy, **label})


def _judged(trial: Trial, policy: Policy) -> Comparison:
    if trial.failure is None:
        return trial.judge(policy)
    return finding_on_failure(trial.contender, trial.failure)


def _report_of(rows: Sequence[Row]) -> TricksReport:
    """Return what the rows of one run say: they are all that there is of it."""
    by_case: dict[str, list[Row]] = {}
    for row in rows:
        by_case.setdefault(row.policy[_CASE], []).append(row)
    first = rows[0]
    return TricksReport(
        run_id=first.run_id,
        recorded_at=first.recorded_at,
        commit=first.commit,
        machine=first.machine,
        environment=first.environment,
        policy=policy_of(rows),
        wall_s=float(first.policy[_WALL]),
        results=tuple(_result(found) for found in by_case.values()),
        left_out=json.loads(first.policy[_LEFT_OUT]),
    )


def _result(rows: Sequence[Row]) -> TrickResult:
    entries = rows[0].policy
    return TrickResult(
        case=msgspec.json.decode(entries[_CASE], type=TrickCase),
        comparison=comparison_of([row for row in rows if not is_count(row)]),
        equivalence=msgspec.json.decode(entries[_EQUIVALENCE], type=Equivalence),
        exact=tuple(exact_comparisons_of(rows)),
    )
