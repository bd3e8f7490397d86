"""Worktrees: several commits of one repository checked out side by side, for as long as they are needed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import git

from perfkit.repo.commands import run_git, run_git_checkout, try_git

_NAME_DIGITS = 12
_PREFIX = "perfkit-"


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
        # What a process still writes there must not keep git from forgetting the worktrees.
        with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as folder:
            yield Path(folder).resolve()
    finally:
        _forget_lost(repositories)


def add_worktree(repository: Path, sha: str, path: Path) -> None:
    """Check out a commit as it was committed: no hook, filter or setting of the user's has a say.

    Raises:
        RepositoryError: git cannot check it out.
    """
    run_git_checkout(repository, "worktree", "add", "--quiet", "--detach", str(path), sha)


def _forget_lost(repositories: Sequence[Path]) -> None:
    """Strike perfkit's worktrees off git's list whose folder is gone, those of killed runs too.

    ``git worktree prune`` would strike off the user's own on a disk that is not mounted now.
    """
    for repository in repositories:
        for line in run_git(repository, "worktree", "list", "--porcelain").splitlines():
            path = Path(line.removeprefix("worktree "))
            if path.parent.name.startswith(_PREFIX) and not path.parent.exists():
                try_git(repository, "worktree", "remove", "--force", "--force", str(path))
