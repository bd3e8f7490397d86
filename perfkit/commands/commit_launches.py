"""Launches of commits, gathered as the rows of a run: of one commit alone, or of several in alternation."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from perfkit.commands.tasks import Doing, run_of
from perfkit.config import Project, load_project
from perfkit.errors import ConfigError, NotMeasuredError, PerfkitError, RecordingError, RepositoryError
from perfkit.gating.coverage import cover
from perfkit.gating.sides import Scope, open_sides
from perfkit.gating.survey import take_survey
from perfkit.identity import utc_now
from perfkit.ledger.recording import Run, RunFacts, recover
from perfkit.ledger.store import Ledger
from perfkit.model import SIDES, Benchmark, Commit, Outcome, Placement, Row
from perfkit.model.policies import PytestPolicy
from perfkit.repo.checkout import Generated, add_worktree, lay_out_commit, worktree_folder
from perfkit.repo.commits import open_repository, resolve
from perfkit.repo.files import overlay
from perfkit.repo.git import list_with_git
from perfkit.repo.sides import SidePair, named_side
from perfkit.runner.launches import LaunchResult, SessionSlot, launch_environment, plan_launches, run_session
from perfkit.runner.lockstep.collection import ignore_log
from perfkit.runner.machine.facts import read_environment, read_machine
from perfkit.temporary import temporary_folder

_DEFAULT_LIMIT_S = 900.0


@dataclass(frozen=True, kw_only=True)
class LaunchTerms:
    """What each launch runs; ``keeps_going`` has pytest go on after a file that does not import.

    What begins like an id that is ``left_out`` does not run.
    """

    benchmarks: str
    select: str | None
    limit_s: float
    keeps_going: bool = False
    left_out: tuple[str, ...] = ()


class Collected:
    """The rows of one run; benchmark files of an ``overlay`` make a checkout not dirty.

    ``same`` are what benchmarks, by name, were traced to run.
    """

    def __init__(self, run: Run, *, commits: Sequence[Commit], seed: int, overlay: str | None = None) -> None:
        self._run, self._seed, self._overlay = run, seed, overlay
        self.same: Mapping[str, Outcome] = {}
        self._commits = {commit.sha: commit for commit in commits}
        comparison = len(commits) == len(SIDES)
        self._sides = dict(zip(self._commits, SIDES, strict=True)) if comparison else {}
        self._failed: list[tuple[SessionSlot, LaunchResult]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Add a row for each benchmark that a failed launch did not measure: a failure is a row too."""
        if isinstance(error, RecordingError):
            return
        measured = {
            (row.commit.sha, row.placement.launch, row.outcome.benchmark.name) for row in self._run.rows
        }
        self._run.add(
            [
                self._place(_fail(row, result), slot)
                for slot, result in self._failed
                for row in self._owed(slot.sha)
                if (slot.sha, slot.launch, row.outcome.benchmark.name) not in measured
            ]
        )

    def measure(self, slot: SessionSlot, root: Path, terms: LaunchTerms) -> None:
        """Run one launch and keep its rows, also where it is interrupted."""
        with temporary_folder() as ledger:
            try:
                result = run_session(
                    slot,
                    root=root,
                    benchmarks=terms.benchmarks,
                    select=terms.select,
                    ledger=ledger,
                    environment=os.environ,
                    limit_s=terms.limit_s,
                    keeps_going=terms.keeps_going,
                    left_out=terms.left_out,
                )
            except BaseException:
                self._keep(slot, _rows_of(ledger))
                raise
            self._add(slot, result, _rows_of(ledger))

    def owe(self, benchmark: Benchmark, slot: SessionSlot, reason: str) -> None:
        """Add a row with the reason why something was not measured."""
        self.add(Outcome(benchmark=benchmark, status="error", message=reason), slot)

    def add(
        self, outcome: Outcome, slot: SessionSlot, torch_settings: Mapping[str, str] | None = None
    ) -> None:
        """Add a row of an outcome that no launch measured."""
        variables = launch_environment(os.environ, root=Path(), hash_seed=0)
        facts = RunFacts(
            run_id=self._run.run_id,
            recorded_at=utc_now(),
            source="backfill",
            commit=self._commits[slot.sha],
            machine=read_machine(),
            environment=read_environment(variables, torch_settings=torch_settings),
        )
        self._run.add([self._place(facts.row(outcome), slot)])

    @property
    def failures(self) -> tuple[str, ...]:
        """A line for each launch that failed, and for each benchmark that raised in another one."""
        launches = (
            f"launch {slot.launch} of {slot.sha[:10]} failed: {one.tail}" for slot, one in self._failed
        )
        slots = self._failed_slots()
        benchmarks = {
            (row.outcome.benchmark.name, row.commit.sha): row.outcome.message
            for row in self._run.rows
            if row.outcome.status not in ("ok", "skipped")
            and (row.commit.sha, row.placement.launch) not in slots
        }
        lines = (f"{name} failed at {sha[:10]}: {why}" for (name, sha), why in benchmarks.items())
        return (*launches, *lines)

    @property
    def failed_launches(self) -> tuple[tuple[SessionSlot, LaunchResult], ...]:
        """The launches that failed."""
        return tuple(self._failed)

    def _add(self, slot: SessionSlot, result: LaunchResult, rows: Sequence[Row]) -> None:
        if result.status != "ok":
            self._failed.append((slot, result))
        elif not rows and not result.uncollected:
            self._failed.append((slot, LaunchResult(status="error", tail="no benchmark was measured")))
        self._keep(slot, rows)
        for file, reason in result.uncollected.items():
            self.owe(Benchmark(name=file, version=""), slot, reason)

    def _keep(self, slot: SessionSlot, rows: Sequence[Row]) -> None:
        self._run.add([self._place(row, slot) for row in rows])

    def _place(self, row: Row, slot: SessionSlot) -> Row:
        """Give a launch's row its place in this run."""
        dirty = row.commit.dirty and self._overlay is None
        outcome, same = row.outcome, self.same.get(row.outcome.benchmark.name)
        if same is not None and outcome.is_measured and outcome.benchmark.version == same.benchmark.version:
            outcome = dataclasses.replace(outcome, same_as=same.same_as, ran=same.ran)
        policy = PytestPolicy(mode="traced") if outcome.is_untimed else row.policy
        if isinstance(policy, PytestPolicy):
            policy = dataclasses.replace(policy, overlay=self._overlay)
        return dataclasses.replace(
            row,
            outcome=outcome,
            policy=policy,
            run_id=self._run.run_id,
            source="backfill",
            commit=dataclasses.replace(self._commits[slot.sha], dirty=dirty),
            placement=Placement(
                side=self._sides.get(slot.sha),
                launch=slot.launch,
                block=slot.block,
                order=slot.order,
                seed=self._seed,
            ),
        )

    def _owed(self, sha: str) -> list[Row]:
        """Return what a commit's complete launches measured, or else what any of its launches did."""
        rows = [row for row in self._run.rows if not row.outcome.is_untimed]
        failed = self._failed_slots()
        own = [row for row in rows if row.commit.sha == sha and (sha, row.placement.launch) not in failed]
        return list({row.outcome.benchmark.name: row for row in own or rows}.values())

    def _failed_slots(self) -> set[tuple[str, int]]:
        return {(slot.sha, slot.launch) for slot, _ in self._failed}


def measure_commit(doing: Doing) -> None:
    """Measure the commit of a task in fresh processes, and record its launches; a failure is a row too."""
    task = doing.task
    (sha,) = task.commits
    top = open_repository(doing.project)
    commit = resolve(top, sha)
    slots = plan_launches([sha], task.launches, seed=task.seed)
    run = Ledger(doing.ledger).run(source="backfill", run_id=run_of(task), recorded_at=utc_now())
    terms = LaunchTerms(
        benchmarks=task.benchmarks,
        select=task.select,
        limit_s=float(task.settings.get("limit", _DEFAULT_LIMIT_S)),
        keeps_going=True,
    )
    collected = Collected(run, commits=[commit], seed=task.seed, overlay=task.code.overlay)
    with run, worktree_folder([top]) as folder:
        with collected:
            try:
                if task.code.overlay is not None:
                    add_worktree(top, task.code.overlay, folder / "today")
                same = _same_code(doing, commit, folder / "today" / task.code.folder)
                collected.same = same.outcomes
                for name in same.untimed:
                    collected.add(same.outcomes[name], slots[0], same.torch_settings)
                if same.is_all:
                    return
                root = _laid_out(doing, commit, top, folder)
            except (RepositoryError, NotMeasuredError, ConfigError) as error:
                collected.owe(Benchmark(name=task.benchmarks, version=""), slots[0], str(error))
                return
            terms = dataclasses.replace(terms, left_out=same.left_out)
            for slot in slots:
                doing.log(f"launch {slot.launch + 1} of {len(slots)} of {sha[:10]}")
                collected.measure(slot, root, terms)
        if all(row.outcome.is_untimed for row in run.rows):
            for slot, result in collected.failed_launches:
                collected.owe(Benchmark(name=task.benchmarks, version=""), slot, result.tail)


def _laid_out(doing: Doing, commit: Commit, top: Path, folder: Path) -> Path:
    """Check a commit out, make it ready, lay the benchmarks over it, and return its project folder."""
    task, tree, today = doing.task, folder / commit.sha[:12], folder / "today"
    for sentence in lay_out_commit(top, commit, tree, Generated.of(_project(doing))):
        doing.log(f"{commit.sha[:10]}: {sentence}")
    if task.code.overlay is not None:
        overlay(list_with_git(today, "ls-files", "-z"), source=today, target=tree)
    return tree / task.code.folder


def _project(doing: Doing) -> Project:
    """Return the project of a task, with the task's own settings on what a checkout lacks."""
    project, settings = load_project(doing.project), doing.task.settings
    copy, link = (tuple(filter(None, settings.get(key, "").split("\n"))) for key in ("copy", "link"))
    config = msgspec.structs.replace(project.config, copy=copy, link=link, prepare=settings.get("prepare"))
    return msgspec.structs.replace(project, config=config)


@dataclass(frozen=True, kw_only=True)
class _SameCode:
    """The benchmarks of a commit that run the same code as at a known one; ``is_all``: none is to be timed.

    Those ``untimed`` have enough measured commits. Launches leave out what begins like an id in ``left_out``.
    """

    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    untimed: tuple[str, ...] = ()
    is_all: bool = False
    left_out: tuple[str, ...] = ()
    torch_settings: Mapping[str, str] | None = None


def _same_code(doing: Doing, commit: Commit, today: Path) -> _SameCode:
    """Trace a commit beside the known ones that its task names, until all benchmarks run the same code.

    The benchmark files of ``today``, if there are any, are laid over both.
    """
    task, project, short = doing.task, _project(doing), commit.sha[:10]
    scope = Scope(
        benchmarks=task.benchmarks,
        select=task.select or "",
        seed=task.seed,
        files=tuple(list_with_git(today, "ls-files", "-z") if task.code.overlay else ()),
        files_from=today,
    )
    same: dict[str, Outcome] = {}
    untimed: dict[str, None] = {}
    found = _SameCode()
    for sha, known in task.beside.items():
        doing.log(f"tracing what runs at {sha[:10]} and {short}")
        pair = SidePair(base=named_side(project.root, sha), head=named_side(project.root, commit.sha))
        try:
            with open_sides(pair, project, scope) as sides:
                taken = take_survey(sides, margin=None)
                surveyed = cover(sides, taken, time_all=True, always=False, log=ignore_log).survey
        except PerfkitError as error:
            doing.log(f"{short} and {sha[:10]} cannot be traced: {error}")
            continue
        same = {
            one.benchmark.name: Outcome(
                benchmark=one.benchmark,
                message=f"same code as {sha[:10]}",
                same_as=sha,
                ran=surveyed.same[one.benchmark.name] or None,
            )
            for one in surveyed.compared
            if one.benchmark.name in surveyed.same
            and known.get(one.benchmark.name, ("",))[0] == one.benchmark.version
        } | same
        untimed |= {name: None for name, one in same.items() if one.same_as == sha and known[name][1]}
        there = [one.benchmark.name for one in (*surveyed.compared, *surveyed.numbers)]
        there += [
            one.benchmark.name for one in surveyed.findings if one.verdict not in ("MISSING", "SKIPPED")
        ]
        timed = set(there) - untimed.keys()
        found = _SameCode(
            outcomes=dict(same),
            untimed=tuple(untimed),
            is_all=not timed,
            left_out=tuple(name for name in untimed if not any(other.startswith(name) for other in timed)),
            torch_settings=surveyed.torch,
        )
        if same.keys() >= set(there):
            break
    return found


def _fail(row: Row, result: LaunchResult) -> Row:
    outcome = Outcome(benchmark=row.outcome.benchmark, status=result.status, message=result.tail)
    return dataclasses.replace(row, outcome=outcome)


def _rows_of(launch: Path) -> list[Row]:
    """Return what a launch measured, up to where it was ended."""
    recover(launch)
    return Ledger(launch).rows()
