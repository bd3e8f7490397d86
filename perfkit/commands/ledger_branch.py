"""``perfkit ledger pull`` and ``push``: a ledger that is kept on a branch of its own, as jobs of CI do."""

from __future__ import annotations

from pathlib import Path

from perfkit.config import Project
from perfkit.errors import RepositoryError
from perfkit.repo.commands import try_git
from perfkit.repo.kept_branch import files_to_keep, pull_branch, push_branch

_MESSAGE = "Add measurements"


def pull_ledger(project: Project, folder: Path, *, branch: str, remote: str) -> str:
    """Bring a ledger's files from a branch of a remote, and say what came.

    Raises:
        RepositoryError: there is no repository, or the remote cannot be reached.
    """
    came = pull_branch(_top(project), branch, folder, remote=remote)
    if came is None:
        return f"{remote} has no branch {branch} yet: the ledger begins with this run"
    return f"{came} files of {remote}/{branch} came into {folder}"


def push_ledger(project: Project, folder: Path, *, branch: str, remote: str) -> str:
    """Add a ledger's files to a branch of a remote, and say what became of it.

    Raises:
        RepositoryError: there is no repository, or the remote does not take it.
    """
    if next(files_to_keep(folder), None) is None:
        return f"there is no ledger in {folder}: nothing was measured"
    try:
        pushed = push_branch(_top(project), branch, folder, remote=remote, message=_MESSAGE)
    except RepositoryError as error:
        raise RepositoryError(f"{error}; a job of GitHub's needs `permissions: contents: write`") from error
    return (
        f"the ledger is on {remote}/{branch}"
        if pushed
        else f"{remote}/{branch} has all of the ledger already"
    )


def _top(project: Project) -> Path:
    top = try_git(project.root, "rev-parse", "--show-toplevel")
    if top is None:
        raise RepositoryError(f"{project.root} is in no git repository, so it has no branch for a ledger")
    return Path(top)
