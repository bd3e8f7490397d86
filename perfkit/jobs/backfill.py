"""``perfkit backfill``: measure commits in alternation, each in fresh processes, and file the launches."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from perfkit.compare.sides import check_selection
from perfkit.config import Project
from perfkit.errors import NotMeasuredError, RecordingError, RepositoryError, RunInterruptedError, UsageError
from perfkit.identity import new_run_id
from perfkit.jobs.measuring import measuring
from perfkit.ledger.recording import Run, recover
from perfkit.ledger.store import Ledger
from perfkit.measure.clock import utc_now
from perfkit.measure.launches import LaunchResult, Slot, plan_launches, run_launch
from perfkit.records import SIDES, Commit, Outcome, Placement, Row
from perfkit.repo.commits import COMMIT_VARIABLE, history_order, open_repository, resolve
from perfkit.repo.worktrees import worktrees
from perfkit.temporary import temporary_folder


@dataclass(frozen=True, kw_only=True)
class BackfillRequest:
    """What to measure: commits, how many launches of each, and which benchmarks.

    ``wait_s`` is how long to wait for another perfkit, in seconds, None for as long as it takes.
    """

    commits: tuple[str, ...]
    launches: int
    benchmarks: str
    select: str | None
    ledger: Path
    seed: int
    wait_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class BackfillResult:
    """What was filed: the run, its file, its rows, and a line for each launch or benchmark that failed.

    ``waited_s`` is how long another perfkit kept it waiting, in seconds.
    """

    run_id: str
    file: Path
    rows: int
    failures: tuple[str, ...]
    waited_s: float = 0.0


def run_backfill(
    request: BackfillRequest,
    *,
    project: Project,
    progress: Callable[[int, int, Slot], None],
    say: Callable[[str], None] = lambda _: None,
) -> BackfillResult:
    """Measure and file the commits; interrupted, what was measured until then is kept.

    ``say`` hears for which other perfkit this one waits, and what was tidied up after killed ones.

    Raises:
        RepositoryError: a commit is not known.
        NotMeasuredError: no launch could be run.
        RecordingError: the ledger can no longer be written; what was added until then is kept.
        RunInterruptedError: the person stopped it.
    """
    if request.launches < 1:
        raise UsageError(f"--launches must be at least 1, found {request.launches}")
    if os.environ.get(COMMIT_VARIABLE):
        raise RepositoryError(f"unset {COMMIT_VARIABLE}: the commits to measure come from the repository")
    if request.select is not None:
        check_selection(request.select, project)
    repository = open_repository(project.root)
    commits = _in_history_order([resolve(repository, ref) for ref in request.commits], project.root)
    shas = [commit.sha for commit in commits]
    ledger = Ledger(request.ledger)
    ledger.check_writable()
    slots = plan_launches(shas, request.launches, seed=request.seed)
    with measuring(say, wait_s=request.wait_s) as waited_s, worktrees(repository, shas) as roots:
        run = ledger.run(source="backfill", run_id=new_run_id(), recorded_at=utc_now())
        collected = _Collected(run, commits=commits, seed=request.seed)
        try:
            with run, collected:
                for number, slot in enumerate(slots, start=1):
                    progress(number, len(slots), slot)
                    _measure(slot, roots[slot.sha], request, project.config.backfill.limit, collected)
        except KeyboardInterrupt:
            raise RunInterruptedError(f"interrupted; {run.kept}") from None
    return dataclasses.replace(collected.result(), waited_s=waited_s)


class _Collected:
    """The rows of one run, gathered launch by launch; at the end, failed launches get rows too."""

    def __init__(self, run: Run, *, commits: Sequence[Commit], seed: int) -> None:
        self._run, self._seed = run, seed
        self._commits = {commit.sha: commit for commit in commits}
        comparison = len(commits) == len(SIDES)
        self._sides = dict(zip(self._commits, SIDES, strict=True)) if comparison else {}
        self._failed: list[tuple[Slot, LaunchResult]] = []

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

    def add(self, slot: Slot, result: LaunchResult, rows: Sequence[Row]) -> None:
        if result.status != "ok":
            self._failed.append((slot, result))
        elif not rows:
            self._failed.append((slot, LaunchResult(status="error", tail="no benchmark was measured")))
        self.keep(slot, rows)

    def keep(self, slot: Slot, rows: Sequence[Row]) -> None:
        self._run.add([self._place(row, slot) for row in rows])

    def result(self) -> BackfillResult:
        failures = (*self._failed_launches(), *self._failed_benchmarks())
        if self._run.file is None:
            raise NotMeasuredError(f"no launch could be run; {failures[0]}")
        return BackfillResult(
            run_id=self._run.run_id, file=self._run.file, rows=len(self._run.rows), failures=failures
        )

    def _failed_launches(self) -> list[str]:
        return [
            f"launch {slot.launch} of {slot.sha[:10]} failed: {result.tail}" for slot, result in self._failed
        ]

    def _failed_benchmarks(self) -> list[str]:
        """Return a line for each benchmark that raised at a commit; a skipped one is no failure."""
        launches = self._failed_slots()
        failed = {
            (row.outcome.benchmark.name, row.commit.sha): row.outcome.message
            for row in self._run.rows
            if row.outcome.status not in ("ok", "skipped")
            and (row.commit.sha, row.placement.launch) not in launches
        }
        return [f"{name} failed at {sha[:10]}: {message}" for (name, sha), message in failed.items()]

    def _place(self, row: Row, slot: Slot) -> Row:
        """Give a launch's row its place in this run."""
        return dataclasses.replace(
            row,
            run_id=self._run.run_id,
            source="backfill",
            commit=dataclasses.replace(self._commits[slot.sha], dirty=row.commit.dirty),
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


def _fail(row: Row, result: LaunchResult) -> Row:
    outcome = Outcome(benchmark=row.outcome.benchmark, status=result.status, message=result.tail)
    return dataclasses.replace(row, outcome=outcome)


def _measure(slot: Slot, root: Path, request: BackfillRequest, limit_s: float, collected: _Collected) -> None:
    with temporary_folder() as ledger:
        try:
            result = run_launch(
                slot,
                root=root,
                benchmarks=request.benchmarks,
                select=request.select,
                ledger=ledger,
                environment=os.environ,
                limit_s=limit_s,
            )
        except BaseException:
            collected.keep(slot, _rows_of(ledger))
            raise
        collected.add(slot, result, _rows_of(ledger))


def _rows_of(launch: Path) -> list[Row]:
    """Return what a launch measured, up to where it was ended."""
    recover(launch)
    return Ledger(launch).rows()


def _in_history_order(commits: Sequence[Commit], start: Path) -> list[Commit]:
    unique = {commit.sha: commit for commit in commits}
    order = history_order(start, unique, also=unique)
    return sorted(unique.values(), key=lambda commit: order[commit.sha])
