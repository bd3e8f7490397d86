"""``perfkit ledger``: list, show, check, compact, merge and share recorded runs."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from perfkit.config import Project
from perfkit.errors import RepositoryError, UsageError
from perfkit.ledger import maintenance, soundness
from perfkit.ledger.files import STAGED_FOLDER
from perfkit.ledger.remote import upload_compacted
from perfkit.ledger.soundness import ANNOTATIONS
from perfkit.ledger.store import Ledger
from perfkit.model import Row, RunSummary
from perfkit.model.progress import Progress
from perfkit.model.upkeep import Compaction, Merge, Repair, Verification
from perfkit.repo.git import try_git
from perfkit.repo.kept_branch import files_to_keep, pull_branch, push_branch

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
    in_git = _is_in_git(ledger)
    done = maintenance.repair(ledger, dry_run=dry_run, log=progress.info, progress=progress.advance)
    return _stored(ledger, dataclasses.replace(done, in_git=in_git))


def compact_ledger(ledger: Path, *, also_current: bool, dry_run: bool, progress: Progress) -> Compaction:
    """Merge the files of each past month, with ``also_current`` those of this month too."""
    progress.info(f"compacting {ledger}")
    before = None if also_current else f"{datetime.now(UTC):%Y-%m}"
    in_git = _is_in_git(ledger)
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


def _is_in_git(ledger: Path) -> bool:
    """Whether git tracks a file of the ledger, so that its history keeps what is removed."""
    return bool(try_git(ledger, "ls-files", "-z", "--", "."))


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
