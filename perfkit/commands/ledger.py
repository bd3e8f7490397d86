"""``perfkit ledger``: list, show, check, compact, merge and share recorded runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from perfkit.config import Project
from perfkit.errors import LedgerError, RepositoryError, UsageError
from perfkit.ledger import maintenance, soundness
from perfkit.ledger.files import STAGED_FOLDER
from perfkit.ledger.remote import files_to_keep, pull_branch, push_branch, upload_compacted
from perfkit.ledger.soundness import ANNOTATIONS
from perfkit.ledger.store import Ledger
from perfkit.model import Row, RunSummary
from perfkit.model.comparisons import Progress
from perfkit.model.surroundings import Surroundings, SurroundingsReport, surrounding_changes
from perfkit.model.upkeep import Compaction, Merge, Repair, Verification
from perfkit.repo.commits import open_repository, resolve
from perfkit.repo.git import reading_only, try_git

Result = TypeVar("Result")
Done = TypeVar("Done", Compaction, Merge, Repair)


def list_runs(ledger: Path) -> list[RunSummary]:
    """Return the ledger's runs, newest last."""
    return Ledger(ledger).runs()


def show_run(ledger: Path, run: str) -> list[Row]:
    """Return the rows of one run, named by the beginning or the end of its id."""
    return Ledger(ledger).rows_of(run)


def check_ledger(ledger: Path, *, progress: Progress) -> Verification:
    """Read every file of a ledger and change nothing."""
    found, _ = soundness.verify(ledger, log=progress.info, progress=progress.advance)
    return _printable(found)


def fix_ledger(ledger: Path, *, dry_run: bool, progress: Progress) -> Repair:
    """Fix what can be fixed in a ledger without losing a row."""
    in_git = _files_in_git(ledger)
    done = maintenance.repair(ledger, dry_run=dry_run, log=progress.info, progress=progress.advance)
    moved = (action.file for action in done.actions if action.kind == "quarantined")
    tracked = tuple(file for file in moved if file in in_git)
    return _stored(ledger, dataclasses.replace(done, in_git=bool(in_git), tracked=tracked))


def compact_ledger(ledger: Path, *, also_current: bool, dry_run: bool, progress: Progress) -> Compaction:
    """Merge the files of each past month, with ``also_current`` those of this month too."""
    progress.info(f"compacting {ledger}")
    before = None if also_current else f"{datetime.now(UTC):%Y-%m}"
    in_git = bool(_files_in_git(ledger))
    done = maintenance.compact(ledger, before=before, dry_run=dry_run, progress=progress.advance)
    return _stored(ledger, dataclasses.replace(done, in_git=in_git))


def merge_ledgers(ledger: Path, other: Path, *, dry_run: bool, progress: Progress) -> Merge:
    """Copy the runs and annotations of another ledger that this one lacks."""
    patterns = ("*.parquet", f"{STAGED_FOLDER}/*", *(f"{kind.folder}/*.json" for kind in ANNOTATIONS))
    if other.is_dir() and not any(any(other.glob(pattern)) for pattern in patterns):
        raise UsageError(f"there is no ledger at {other}; name the folder that holds its parquet files")
    progress.info(f"looking at the files of {other}")
    return _stored(ledger, maintenance.merge(ledger, other, dry_run=dry_run, progress=progress.advance))


def pull_ledger(project: Project, folder: Path, *, branch: str, remote: str) -> str:
    """Add the files of a remote's branch to a ledger and return one line about it."""
    came = pull_branch(_top(project), branch, folder, remote=remote)
    if came is None:
        return f"{remote} has no branch {branch} yet: the ledger begins with this run"
    return f"{came} files of {remote}/{branch} came into {folder}"


def push_ledger(project: Project, folder: Path, *, branch: str, remote: str) -> str:
    """Add a ledger's files to a remote's branch and return one line about it."""
    if next(files_to_keep(folder), None) is None:
        return f"there is no ledger in {folder}: nothing was measured"
    try:
        pushed = push_branch(_top(project), branch, folder, remote=remote)
    except RepositoryError as error:
        raise RepositoryError(f"{error}; a GitHub job needs `permissions: contents: write`") from error
    place = f"{remote}/{branch}"
    return f"the ledger is on {place}" if pushed else f"{place} has all of the ledger already"


def _top(project: Project) -> Path:
    top = try_git(project.root, "rev-parse", "--show-toplevel")
    if top is None:
        raise RepositoryError(f"{project.root} is in no git repository, so it has no branch for a ledger")
    return Path(top)


def _stored(ledger: Path, done: Done) -> Done:
    """Upload what was changed if the folder mirrors a store, and return the record, printable."""
    if not done.dry_run:
        upload_compacted(ledger)
    return _printable(done)


def _files_in_git(ledger: Path) -> frozenset[str]:
    """Return the files of the ledger that git tracks: its history keeps what is removed."""
    return frozenset(filter(None, (try_git(ledger, "ls-files", "-z", "--", ".") or "").split("\0")))


def _printable(value: Result) -> Result:
    """Escape what cannot be printed: a file's name may hold bytes that are no text."""
    return _escaped(value)  # type: ignore[no-any-return]


def _escaped(value: Any) -> Any:  # noqa: ANN401 (any member of a record)
    if isinstance(value, str):
        return "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode() for char in value
        )
    if isinstance(value, tuple):
        return tuple(map(_escaped, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        members = (field.name for field in dataclasses.fields(value))
        return dataclasses.replace(value, **{name: _escaped(getattr(value, name)) for name in members})
    return value


_FILE = ".parquet"
_LEAST_DIGITS = 4


@reading_only()
def show_surroundings(names: Sequence[str], *, ledger: Path, project: Project) -> SurroundingsReport:
    """Return where one or two runs measured, each named by its id, a commit, or its file in a ledger."""
    if not 1 <= len(names) <= 2:  # noqa: PLR2004 (one run is shown, two are compared)
        raise UsageError(f"show env takes one run or two, found {len(names)}: see `perfkit ledger list`")
    found = [tuple(_surroundings(_rows(name, ledger, project))) for name in names]
    shown = found[0] if len(found) == 1 else (found[0][-1], found[1][-1])
    changes = surrounding_changes(*shown) if len(shown) == 2 else ()  # noqa: PLR2004 (a pair)
    return SurroundingsReport(found=shown, changes=changes)


def _rows(name: str, ledger: Path, project: Project) -> Sequence[Row]:
    """Return the rows of the run that is meant."""
    file = Path(name)
    if file.suffix == _FILE:
        if not file.is_file():
            raise LedgerError(f"there is no file {file}; name one of a ledger, a run or a commit")
        runs = Ledger(file.parent).runs_in(file)
        if len(runs) != 1:
            raise LedgerError(f"{file} holds {len(runs)} runs; name one of them by its id")
        return Ledger(file.parent).rows_of(runs[0])
    kept = Ledger(ledger)
    known = kept.runs()
    if any(run.run_id.startswith(name) or run.run_id.endswith(name) for run in known):
        return kept.rows_of(name)
    sha = _sha(name, project)
    is_sha = len(sha) >= _LEAST_DIGITS
    of_commit = [run for run in known if is_sha and any(one.startswith(sha) for one in run.commits)]
    if not of_commit:
        raise LedgerError(
            f'no run "{name}" in {ledger}, and none of a commit of that name; see "perfkit ledger list"'
        )
    return kept.rows_of(of_commit[-1].run_id)


def _sha(name: str, project: Project) -> str:
    """Return the commit that git knows by a name, or the name itself, which may begin a commit's digits."""
    try:
        return resolve(open_repository(project.root), name).sha
    except RepositoryError:
        return name


def _surroundings(rows: Sequence[Row]) -> Iterator[Surroundings]:
    """Yield each machine and environment of a run once, base's first."""
    seen: dict[tuple[str, ...], Surroundings] = {}
    for row in sorted(rows, key=lambda row: row.placement.side or ""):
        side = row.placement.side if row.source == "environments" else None
        key = (side or "", row.machine.machine_id, row.environment.env_id)
        before = seen.get(key)
        commits = before.commits if before is not None else ()
        if before is not None and row.commit.sha in commits:
            continue
        seen[key] = replace(
            before
            or Surroundings(
                run_id=row.run_id,
                recorded_at=row.recorded_at,
                source=row.source,
                commits=(),
                side=side,
                machine=row.machine,
                environment=row.environment,
            ),
            commits=(*commits, row.commit.sha),
        )
    yield from seen.values()
