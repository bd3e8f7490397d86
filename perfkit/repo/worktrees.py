"""Worktrees: several commits of one repository checked out side by side, for as long as they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import git

from perfkit.repo.commands import run_git_checkout
from perfkit.repo.leftovers import end_residents, forget_lost
from perfkit.temporary import temporary_folder

_NAME_DIGITS = 12


@contextmanager
def worktrees(repository: git.Repo, shas: Sequence[str]) -> Iterator[dict[str, Path]]:
    """Check out each commit on a path of its own, all of equal length, and remove them afterwards.

    Raises:
        RepositoryError: git cannot make one of them.
    """
    place = Path(repository.working_tree_dir or repository.git_dir)
    with worktree_folder([place]) as folder:
        paths = {sha: folder / sha[:_NAME_DIGITS] for sha in shas}
        for sha, path in paths.items():
            add_worktree(place, sha, path)
        yield paths


@contextmanager
def worktree_folder(repositories: Sequence[Path]) -> Iterator[Path]:
    """Yield the real path of a fresh folder for worktrees of the repositories; all go away together."""
    try:
        with temporary_folder(repositories=repositories) as folder:
            try:
                yield folder
            finally:
                # What was measured may have left a process that belongs to nobody any more.
                end_residents(folder)
    finally:
        for repository in repositories:
            forget_lost(repository)


def add_worktree(repository: Path, sha: str, path: Path) -> None:
    """Check out a commit as it was committed: no hook, filter or setting of the user's changes it.

    Raises:
        RepositoryError: git cannot check it out.
    """
    run_git_checkout(repository, "worktree", "add", "--quiet", "--detach", str(path), sha)
