"""Worktrees: several commits of one repository checked out side by side, for as long as they are needed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import git

from perfkit.errors import RepositoryError

_NAME_DIGITS = 12
# A hook or a filter of the user's would run code that is not the commit's.
_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "filter.lfs.smudge=", "-c", "filter.lfs.required=false")


@contextmanager
def worktrees(repository: git.Repo, shas: Sequence[str]) -> Iterator[dict[str, Path]]:
    """Check out each commit on a path of its own, all of equal length, and remove them afterwards.

    Raises:
        RepositoryError: git cannot make one of them.
    """
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        paths = {sha: Path(folder).resolve() / sha[:_NAME_DIGITS] for sha in shas}
        try:
            for sha, path in paths.items():
                _add(repository, sha, path)
            yield paths
        finally:
            for path in paths.values():
                _remove(repository, path)


def _add(repository: git.Repo, sha: str, path: Path) -> None:
    command = ["git", *_QUIET, "worktree", "add", "--quiet", "--detach", str(path), sha]
    try:
        repository.git.execute(command)
    except git.GitCommandError as error:
        raise RepositoryError(f"git cannot check out {sha[:10]}: {str(error.stderr).strip()}") from error


def _remove(repository: git.Repo, path: Path) -> None:
    if path.exists():
        repository.git.worktree("remove", "--force", str(path))
