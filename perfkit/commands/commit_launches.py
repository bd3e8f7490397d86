"""Launches of commits, gathered as the rows of a run: of one commit alone, or of several in alternation."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from perfkit.commands.tasks import Doing, run_of
from perfkit.errors import ConfigError, NotMeasuredError, RecordingError, RepositoryError
from perfkit.identity import utc_now
from perfkit.ledger.recording import Run, recover
from perfkit.ledger.rows import RunFacts
from perfkit.ledger.store import Ledger
from perfkit.model import SIDES, Benchmark, Commit, Outcome, Placement, Row
from perfkit.repo.checkout import Generated, add_worktree, lay_out_commit, worktree_folder
from perfkit.repo.commits import open_repository, resolve
from perfkit.repo.files import overlay
from perfkit.repo.git import list_with_git
from perfkit.runner.launches import LaunchResult, SessionSlot, launch_environment, plan_launches, run_session
from perfkit.runner.machine.facts import read_environment, read_machine
from perfkit.temporary import temporary_folder

_DEFAULT_LIMIT_S = 900.0


@dataclass(frozen=True, kw_only=True)
class LaunchTerms:
    """What each launch runs; ``keeps_going`` has pytest go on after a file that does not import."""

    benchmarks: str
    select: str | None
    limit_s: float
    keeps_going: bool = False


class Collected:
    """The rows of one run; ``overlaid`` benchmark files make a checkout not dirty."""

    def __init__(self, run: Run, *, commits: Sequence[Commit], seed: int, overlaid: bool = False) -> None:
        self._run, self._seed, self._overlaid = run, seed, overlaid
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
                )
            except BaseException:
                self._keep(slot, _rows_of(ledger))
                raise
            self._add(slot, result, _rows_of(ledger))

    def owe(self, benchmark: Benchmark, slot: SessionSlot, reason: str) -> None:
        """Add a row with the reason why something was not measured."""
        facts = RunFacts(
            run_id=self._run.run_id,
            recorded_at=utc_now(),
            source="backfill",
            commit=self._commits[slot.sha],
            machine=read_machine(),
            environment=read_environment(launch_environment(os.environ, root=Path(), hash_seed=0)),
        )
        row = facts.row(Outcome(benchmark=benchmark, status="error", message=reason))
        self._run.add([self._place(row, slot)])

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
        dirty = row.commit.dirty and not self._overlaid
        return dataclasses.replace(
            row,
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
        rows, failed = self._run.rows, self._failed_slots()
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
    collected = Collected(run, commits=[commit], seed=task.seed, overlaid=task.code.overlay is not None)
    with run, worktree_folder([top]) as folder:
        with collected:
            try:
                root = _laid_out(doing, commit, top, folder)
            except (RepositoryError, NotMeasuredError, ConfigError) as error:
                collected.owe(Benchmark(name=task.benchmarks, version=""), slots[0], str(error))
                return
            for slot in slots:
                doing.log(f"launch {slot.launch + 1} of {len(slots)} of {sha[:10]}")
                collected.measure(slot, root, terms)
        if not run.rows:
            for slot, result in collected.failed_launches:
                collected.owe(Benchmark(name=task.benchmarks, version=""), slot, result.tail)


def _laid_out(doing: Doing, commit: Commit, top: Path, folder: Path) -> Path:
    """Check a commit out, make it ready, lay the benchmarks over it, and return its project folder."""
    task, tree = doing.task, folder / commit.sha[:12]
    copy, link = (tuple(filter(None, task.settings.get(key, "").split("\n"))) for key in ("copy", "link"))
    generated = Generated(
        project=top / task.code.folder, copy=copy, link=link, prepare=task.settings.get("prepare")
    )
    for sentence in lay_out_commit(top, commit, tree, generated):
        doing.log(f"{commit.sha[:10]}: {sentence}")
    if task.code.overlay is not None:
        today = folder / "today"
        add_worktree(top, task.code.overlay, today)
        overlay(list_with_git(today, "ls-files", "-z"), source=today, target=tree)
    return tree / task.code.folder


def _fail(row: Row, result: LaunchResult) -> Row:
    outcome = Outcome(benchmark=row.outcome.benchmark, status=result.status, message=result.tail)
    return dataclasses.replace(row, outcome=outcome)


def _rows_of(launch: Path) -> list[Row]:
    """Return what a launch measured, up to where it was ended."""
    recover(launch)
    return Ledger(launch).rows()
