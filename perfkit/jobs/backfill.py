"""``perfkit backfill``: measure commits in alternation, each in fresh processes, and file the launches."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.config import Project
from perfkit.errors import NotMeasuredError, RepositoryError, RunInterruptedError, UsageError
from perfkit.identity import new_run_id
from perfkit.jobs.measuring import measuring
from perfkit.ledger.store import Ledger
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
    """What was filed: the run, its file, and one line for each launch or benchmark that failed.

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
        RunInterruptedError: the person stopped it.
    """
    if request.launches < 1:
        raise UsageError(f"--launches must be at least 1, found {request.launches}")
    if os.environ.get(COMMIT_VARIABLE):
        raise RepositoryError(f"unset {COMMIT_VARIABLE}: the commits to measure come from the repository")
    repository = open_repository(project.root)
    commits = _in_history_order([resolve(repository, ref) for ref in request.commits], project.root)
    ledger = Ledger(request.ledger)
    ledger.check_writable()
    slots = plan_launches([commit.sha for commit in commits], request.launches, seed=request.seed)
    collected = _Collected(run_id=new_run_id(), commits=commits, seed=request.seed)
    try:
        with (
            measuring(say, wait_s=request.wait_s) as waited_s,
            worktrees(repository, [commit.sha for commit in commits]) as roots,
        ):
            for number, slot in enumerate(slots, start=1):
                progress(number, len(slots), slot)
                _measure(slot, roots[slot.sha], request, collected)
    except KeyboardInterrupt:
        file = collected.file(ledger)
        kept = f"its rows so far are in {file}" if file else "no launch was complete"
        raise RunInterruptedError(f"interrupted; {kept}") from None
    return dataclasses.replace(collected.file_or_raise(ledger), waited_s=waited_s)


class _Collected:
    """The rows of one run, gathered launch by launch."""

    def __init__(self, *, run_id: str, commits: Sequence[Commit], seed: int) -> None:
        self.run_id = run_id
        self._commits = {commit.sha: commit for commit in commits}
        comparison = len(commits) == len(SIDES)
        self._sides = dict(zip(self._commits, SIDES, strict=True)) if comparison else {}
        self._seed = seed
        self._rows: list[Row] = []
        self._failed: list[tuple[Slot, str]] = []

    def add(self, slot: Slot, result: LaunchResult, rows: Sequence[Row]) -> None:
        if not result.ran or not rows:
            self._failed.append((slot, result.tail or "no benchmark was measured"))
        self._rows += [self._place(row, slot) for row in rows]

    def file(self, ledger: Ledger) -> Path | None:
        rows = [*self._rows, *self._failure_rows()]
        return ledger.append(rows) if rows else None

    def file_or_raise(self, ledger: Ledger) -> BackfillResult:
        failures = (*self._failed_launches(), *self._failed_benchmarks())
        file = self.file(ledger)
        if file is None:
            raise NotMeasuredError(f"no launch could be run; {failures[0]}")
        return BackfillResult(run_id=self.run_id, file=file, rows=len(self._rows), failures=failures)

    def _failed_launches(self) -> list[str]:
        return [f"launch {slot.launch} of {slot.sha[:10]} failed: {cause}" for slot, cause in self._failed]

    def _failed_benchmarks(self) -> list[str]:
        """Return a line for each benchmark that raised at a commit; one that was skipped meant to be."""
        failed = {
            (row.outcome.benchmark.name, row.commit.sha): row.outcome.message
            for row in self._rows
            if row.outcome.status not in ("ok", "skipped")
        }
        return [f"{name} failed at {sha[:10]}: {message}" for (name, sha), message in failed.items()]

    def _place(self, row: Row, slot: Slot) -> Row:
        """Give a launch's row its place in this run."""
        return dataclasses.replace(
            row,
            run_id=self.run_id,
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

    def _failure_rows(self) -> list[Row]:
        """Return a row for each benchmark that a failed launch owes: a failure is a row too.

        What it owes is what the commit's other launches measured, or else what any launch did.
        """
        return [
            self._place(_fail(row, cause), slot)
            for slot, cause in self._failed
            for row in self._owed(slot.sha)
        ]

    def _owed(self, sha: str) -> list[Row]:
        own = [row for row in self._rows if row.commit.sha == sha] or self._rows
        return list({row.outcome.benchmark.name: row for row in own}.values())


def _fail(row: Row, cause: str) -> Row:
    outcome = Outcome(benchmark=row.outcome.benchmark, status="error", message=cause)
    return dataclasses.replace(row, outcome=outcome)


def _measure(slot: Slot, root: Path, request: BackfillRequest, collected: _Collected) -> None:
    with temporary_folder() as folder:
        result = run_launch(
            slot,
            root=root,
            benchmarks=request.benchmarks,
            select=request.select,
            ledger=folder,
            environment=os.environ,
        )
        collected.add(slot, result, Ledger(folder).rows())


def _in_history_order(commits: Sequence[Commit], start: Path) -> list[Commit]:
    unique = {commit.sha: commit for commit in commits}
    order = history_order(start, unique)
    return sorted(unique.values(), key=lambda commit: order[commit.sha])
