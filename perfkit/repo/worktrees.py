"""Worktrees: several commits of one repository checked out side by side, for as long as they are needed."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from perfkit.errors import RepositoryError
from perfkit.invocation import signals_put_off
from perfkit.repo.commands import run_git_checkout, try_git
from perfkit.repo.leftovers import end_residents, forget_lost
from perfkit.temporary import temporary_folder

_NAME_DIGITS = 12


@contextmanager
def worktree_folder(repositories: Sequence[Path]) -> Iterator[Path]:
    """Yield the real path of a fresh folder for worktrees of the repositories; all go away together."""
    try:
        with temporary_folder(repositories=repositories) as folder:
            try:
                yield folder
            finally:
                # What was measured may have left a process that belongs to nobody any more.
                with signals_put_off():
                    end_residents(folder)
    finally:
        with signals_put_off():
            for repository in repositories:
                forget_lost(repository)


def add_worktree(repository: Path, sha: str, path: Path) -> None:
    """Check out a commit as it was committed: no hook, filter or setting of the user's changes it.

    Raises:
        RepositoryError: git cannot check it out; where the repository takes no worktree, the line says so.
    """
    try:
        run_git_checkout(repository, "worktree", "add", "--quiet", "--detach", str(path), sha)
    except RepositoryError as error:
        problem = _kept_from_listing(repository)
        if problem is None:
            raise
        raise RepositoryError(
            f"cannot check out {sha[:_NAME_DIGITS]}: git must list the checkout in the repository, and"
            f" {problem}; make that writable, or run this in a clone of your own:"
            f" git clone {shlex.quote(str(repository))} FOLDER"
        ) from error


def _kept_from_listing(repository: Path) -> str | None:
    """Return what keeps git from noting a worktree in a repository, None where nothing does.

    It is tried out: what git says of it depends on the user's language.
    """
    common = try_git(repository, "rev-parse", "--path-format=absolute", "--git-common-dir")
    if common is None:
        return None
    listing = Path(common) / "worktrees"
    try:
        with tempfile.TemporaryDirectory(dir=listing if os.path.lexists(listing) else common):
            return None
    except OSError as error:
        return f"{listing} cannot be written ({error.strerror or error})"
