"""Ranges of commits, as people write them: both ends belong to what is measured."""

from __future__ import annotations

from pathlib import Path

from perfkit.errors import RepositoryError
from perfkit.repo.commands import run_git
from perfkit.repo.commits import open_repository, resolve

_DOTS = ".."


def is_range(text: str) -> bool:
    """Tell whether a text names a range, and not a commit."""
    return _DOTS in text


def commits_in(start: Path, text: str) -> tuple[str, ...]:
    """Return the commits of "A..B" on the line of first parents that leads to B, oldest first, A included.

    Without B it ends at HEAD; without A it begins with the first commit.

    Raises:
        RepositoryError: either end is not known, or nothing lies between them.
    """
    begin, end = _ends(start, text)
    if begin is None:
        return tuple(run_git(start, "rev-list", "--first-parent", "--reverse", end).split())
    inside = run_git(start, "rev-list", "--first-parent", "--reverse", end, f"^{begin}").split()
    if not inside and begin != end:
        raise RepositoryError(f"no commit lies in {text}; write the older one first")
    return (begin, *inside)


def all_commits_in(start: Path, text: str) -> frozenset[str]:
    """Return all commits of "A..B", merged ones included, and A itself; "..B" is B with all before it.

    Raises:
        RepositoryError: either end is not known.
    """
    if not is_range(text):
        return frozenset({resolve(open_repository(start), text).sha})
    begin, end = _ends(start, text)
    without = [] if begin is None else [f"^{begin}"]
    return frozenset(run_git(start, "rev-list", end, *without).split()) | ({begin} if begin else set())


def tagged_commits(start: Path) -> frozenset[str]:
    """Return the commits that have a tag."""
    listed = run_git(start, "for-each-ref", "refs/tags", "--format=%(*objectname) %(objectname)")
    return frozenset(line.split()[0] for line in listed.splitlines())


def each_nth(commits: tuple[str, ...], step: int) -> tuple[str, ...]:
    """Return each n-th commit, and the last one always."""
    return tuple(dict.fromkeys((*commits[::step], *commits[-1:])))


def _ends(start: Path, text: str) -> tuple[str | None, str]:
    begin, _, end = text.partition(_DOTS)
    if end.startswith("."):
        raise RepositoryError(f'"{text}" has three dots; write {begin}..{end.lstrip(".")}')
    repository = open_repository(start)
    first = resolve(repository, begin).sha if begin else None
    return first, resolve(repository, end or "HEAD").sha
