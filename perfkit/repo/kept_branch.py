"""A folder kept on a branch that has no history in common with the code and is never checked out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from perfkit.errors import RepositoryError
from perfkit.repo.git import run_git, run_git_checkout, try_git
from perfkit.temporary import temporary_folder

_ATTEMPTS = 5
_MESSAGE = "Add measurements"
_SIGNATURE = {
    "GIT_AUTHOR_NAME": "perfkit",
    "GIT_AUTHOR_EMAIL": "perfkit@localhost",
    "GIT_COMMITTER_NAME": "perfkit",
    "GIT_COMMITTER_EMAIL": "perfkit@localhost",
}


def pull_branch(top: Path, branch: str, folder: Path, *, remote: str) -> int | None:
    """Bring the files of a remote's branch into a folder, whose own files stay; return how many came."""
    tip = _fetch(top, branch, remote)
    if tip is None:
        return None
    names = _names(top, tip)
    missing = [name for name in names if not _is_hidden(name) and not (folder / name).exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary_folder() as aside:
            index = {"GIT_INDEX_FILE": str(aside / "index")}
            _git(top, ("read-tree", tip), index)
            # Only what is missing is written: a file of a ledger never changes.
            given = "\0".join(missing).encode(errors="surrogateescape")
            prefix = f"--prefix={folder.resolve()}/"
            _git(top, ("checkout-index", "-q", "-z", "--stdin", prefix), index, given=given)
    return len(missing)


def push_branch(top: Path, branch: str, folder: Path, *, remote: str) -> bool:
    """Add the files of a folder to a remote's branch; return whether there was anything to add."""
    for attempt in range(_ATTEMPTS):
        tip = _fetch(top, branch, remote)
        commit = _commit(top, folder, tip)
        if commit is None:
            return False
        try:
            run_git(top, "push", "--quiet", remote, f"{commit}:refs/heads/{branch}")
        except RepositoryError:
            if attempt + 1 == _ATTEMPTS or _fetch(top, branch, remote) == tip:
                raise
        else:
            return True
    return False


def _fetch(top: Path, branch: str, remote: str) -> str | None:
    listed = run_git(top, "ls-remote", remote, f"refs/heads/{branch}")
    if not listed.strip():
        return None
    run_git(top, "fetch", "--quiet", "--no-tags", remote, f"+refs/heads/{branch}:refs/perfkit/{branch}")
    return try_git(top, "rev-parse", "--verify", f"refs/perfkit/{branch}")


def _commit(top: Path, folder: Path, tip: str | None) -> str | None:
    with temporary_folder() as aside:
        index = {"GIT_INDEX_FILE": str(aside / "index"), **_SIGNATURE}
        if tip is not None:
            _git(top, ("read-tree", tip), index)
        work_tree = {"GIT_WORK_TREE": str(folder.resolve()), "GIT_LITERAL_PATHSPECS": "1"}
        paths = "\0".join(_to_add(top, folder, tip)).encode(errors="surrogateescape")
        if paths:
            command = ("add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul")
            _git(top, command, {**index, **work_tree}, given=paths)
        tree = _git(top, ("write-tree",), index)
        if tip is not None and tree == try_git(top, "rev-parse", f"{tip}^{{tree}}"):
            return None
        parent = () if tip is None else ("-p", tip)
        return _git(top, ("commit-tree", tree, *parent, "-m", _MESSAGE), index)


def _to_add(top: Path, folder: Path, tip: str | None) -> Iterator[str]:
    """Yield the files of a folder that a branch lacks, hidden ones and those in hidden folders left out.

    No file of the branch is replaced: files of a ledger never change, and of two with one name the one here
    may be the part of a run that was recovered while the run went on elsewhere.
    """
    there = set(_names(top, tip)) if tip else set()
    yield from (name for name in files_to_keep(folder) if name not in there)


def files_to_keep(folder: Path) -> Iterator[str]:
    """Yield the names of the files that a branch keeps: all but hidden ones and those in hidden folders."""
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.is_file() and not _is_hidden(name):
            yield name


def _names(top: Path, tip: str) -> list[str]:
    return run_git(top, "ls-tree", "-r", "-z", "--name-only", tip).split("\0")[:-1]


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(name).parts)


def _git(top: Path, arguments: tuple[str, ...], variables: Mapping[str, str], *, given: bytes = b"") -> str:
    directory = run_git(top, "rev-parse", "--absolute-git-dir").strip()
    variables = {"GIT_DIR": directory, **variables}
    return run_git_checkout(top, *arguments, variables=variables, given=given).strip()
