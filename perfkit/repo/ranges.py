"""Ranges of commits: which commits lie between two, what each of them changed, and where a benchmark is.

Both ends belong to a range that a person writes, such as "v1.0..HEAD".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import git

from perfkit.errors import RepositoryError, UsageError
from perfkit.model import Commit
from perfkit.repo.changed_code import ChangedCode, changed_functions
from perfkit.repo.commands import list_with_git, protected, run_git, try_git
from perfkit.repo.commits import open_repository, resolve
from perfkit.repo.sides import is_shallow
from perfkit.repo.working_tree import is_code

_CONFTEST = "conftest.py"
_SHOWN_DIGITS = 10
_ABSENT = "0" * 40
_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_NAMED = 3
_DOTS = ".."


@dataclass(frozen=True, kw_only=True)
class CommitRange:
    """Commits in their order, each with a place: 0 is the good one before the range, the last the bad."""

    root: Path
    commits: tuple[Commit, ...]

    @property
    def last(self) -> int:
        """The place of the bad commit."""
        return len(self.commits) - 1

    def sha(self, place: int) -> str:
        """Return the hash of the commit at a place."""
        return self.commits[place].sha

    def places(self) -> dict[str, int]:
        """Return the place of each hash."""
        return {commit.sha: place for place, commit in enumerate(self.commits)}


@dataclass(frozen=True, kw_only=True)
class CommitChange:
    """What differs between a place of a range and the one before: whether any code does, and which functions.

    ``code`` names functions by file, relative to the project's root, of those files that were read.
    """

    touches_code: bool
    code: ChangedCode


@dataclass(frozen=True, kw_only=True)
class DiffStat:
    """How many files a commit changed, and how many lines it added and removed."""

    files: int
    added: int
    removed: int


@dataclass(frozen=True, kw_only=True)
class BenchmarkSource:
    """Where the file of a benchmark is taken from: a commit, or the working tree where ``sha`` is None."""

    sha: str | None
    file: str
    kind: Literal["bad", "working tree", "good"]


def commit_range(start: Path, good: str, bad: str, *, all_parents: bool = False) -> CommitRange:
    """Return the commits from ``good`` to ``bad``: by first parents, so that a merge has one place, or all.

    Raises:
        RepositoryError: git does not know one of them.
        UsageError: they are one commit, or bad does not follow from good.
    """
    repository = open_repository(start)
    first, last = (_resolve(repository, start, ref) for ref in (good, bad))
    if first.sha == last.sha:
        raise UsageError(f"GOOD and BAD are one commit, {_told(first)}: name two, such as v1.2 HEAD")
    if not _is_ancestor(start, first.sha, last.sha):
        raise UsageError(_not_descendant(start, first, last))
    kind = ("--topo-order",) if all_parents else ("--first-parent",)
    between = repository.git.rev_list(*kind, "--reverse", f"{first.sha}..{last.sha}").split()
    return CommitRange(root=start, commits=(first, *(resolve(repository, sha) for sha in between[:-1]), last))


def _resolve(repository: git.Repo, start: Path, ref: str) -> Commit:
    try:
        return resolve(repository, ref)
    except RepositoryError as error:
        if is_shallow(start) and not ref.startswith("-"):
            raise RepositoryError(
                f'unknown commit "{ref}" in this shallow clone; run `git fetch --unshallow`'
            ) from error
        raise


def _is_ancestor(start: Path, first: str, last: str) -> bool:
    return try_git(start, "merge-base", "--is-ancestor", first, last) is not None


def _not_descendant(start: Path, good: Commit, bad: Commit) -> str:
    said = f"BAD ({_told(bad)}) does not come after GOOD ({_told(good)})"
    if _is_ancestor(start, bad.sha, good.sha):
        return f"{said}, but before it: name the older commit first"
    if is_shallow(start):
        return f"{said} in this shallow clone; run `git fetch --unshallow`"
    fork = try_git(start, "merge-base", good.sha, bad.sha)
    named = f"their last common commit, {fork[:_SHOWN_DIGITS]}, may be the GOOD to name" if fork else ""
    return f"{said}; {named or 'they have no commit in common'}"


def _told(commit: Commit) -> str:
    return f'{commit.sha[:_SHOWN_DIGITS]} "{commit.subject}"'


def changes_of(commits: CommitRange, *, read: Collection[str]) -> list[CommitChange]:
    """Return what each place of a range changed, beginning with place 1.

    Git's objects of the files to ``read`` are read, relative to the project's root; functions of others are
    left out.
    """
    top = Path(str(open_repository(commits.root).working_tree_dir)).resolve()
    folder = commits.root.resolve().relative_to(top)
    repository = protected(git.Repo(top, expand_vars=False))
    blobs: dict[str, bytes] = {}

    def text(blob: str) -> bytes:
        if blob not in blobs:
            blobs[blob] = b"" if blob == _ABSENT else repository.odb.stream(bytes.fromhex(blob)).read()
        return blobs[blob]

    found = []
    for place in range(1, len(commits.commits)):
        files = list(_changed_blobs(top, commits.sha(place - 1), commits.sha(place)))
        code: dict[str, tuple[str, ...] | None] = {}
        for name, old, new in files:
            path = PurePosixPath(name)
            own = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else ""
            if own in read:
                functions = changed_functions(text(old), text(new))
                if functions != ():
                    code[own] = functions
        found.append(CommitChange(touches_code=any(is_code(name) for name, _, _ in files), code=code))
    return found


def _changed_blobs(top: Path, first: str, last: str) -> Iterator[tuple[str, str, str]]:
    """Yield each file that differs between two commits, with its blobs; a submodule has none to read."""
    entries = iter(
        list_with_git(top, "diff-tree", "-r", "--raw", "-z", "--no-abbrev", "--no-renames", first, last)
    )
    for entry, name in zip(entries, entries, strict=True):
        old_mode, new_mode, old, new, _ = entry.removeprefix(":").split(" ")
        linked = "160000" in (old_mode, new_mode)
        yield name, *((_ABSENT, _ABSENT) if linked else (old, new))


def diff_stat(start: Path, first: str, last: str) -> DiffStat:
    """Return how much differs between two commits; files that are not text count without lines.

    Raises:
        RepositoryError: git does not know one of them.
    """
    entries = list_with_git(start, "diff", "--numstat", "--no-renames", "-z", first, last)
    lines = [entry.split("\t")[:2] for entry in entries]
    added, removed = (sum(int(line[side]) for line in lines if line[side].isdigit()) for side in (0, 1))
    return DiffStat(files=len(lines), added=added, removed=removed)


def author_of(start: Path, sha: str) -> str | None:
    """Return who wrote a commit, None where git does not know it."""
    return try_git(start, "log", "-1", "--format=%an", sha)


def find_benchmark(commits: CommitRange, benchmark: str, *, preferred: str) -> BenchmarkSource:
    """Return the file that holds a benchmark: at the bad commit, else in the working tree, else at the good.

    ``benchmark`` is a node id or the end of one; of several files those below ``preferred`` are meant.

    Raises:
        UsageError: no such file has it, or several have.
    """
    first, _, inner = benchmark.partition("[")[0].partition("::")
    file = first if first.endswith(".py") else ""
    function = (inner or first).rpartition("::")[2]
    ends: tuple[tuple[str | None, Literal["bad", "working tree", "good"]], ...] = (
        (commits.sha(commits.last), "bad"),
        (None, "working tree"),
        (commits.sha(0), "good"),
    )
    for sha, kind in ends if _FUNCTION.fullmatch(function) else ():
        found = _files_with(commits.root, sha, function)
        named = [name for name in found if not file or name == file or name.endswith(f"/{file}")]
        if not named and file and read_at(commits.root, sha, file) is not None:
            # A benchmark may be inherited, or made by a decorator.
            named = [file]
        named = [name for name in named if name.startswith(f"{preferred}/")] or named
        if len(named) > 1:
            listed = ", ".join(f"{name}::{function}" for name in named[:_MOST_NAMED])
            raise UsageError(f'--benchmark "{benchmark}" could mean {listed}; give more of it')
        if named:
            return BenchmarkSource(sha=sha, file=named[0], kind=kind)
    raise UsageError(
        f'there is no benchmark "{benchmark}" at GOOD, at BAD or in the working tree;'
        " `pytest --collect-only -q` lists their node ids"
    )


def _files_with(root: Path, sha: str | None, function: str) -> list[str]:
    """Return the Python files below a folder that define a function, at a commit or in the working tree."""
    where = (sha,) if sha else ()
    also = () if sha else ("--untracked",)
    pattern = f"def[[:space:]]+{function}[[:space:]]*[(]"
    found = try_git(root, "grep", *also, "-l", "-z", "-E", "-e", pattern, *where, "--", "*.py")
    names = [name for name in (found or "").split("\0") if name]
    return [name.removeprefix(f"{sha}:") for name in names] if sha else names


def read_at(root: Path, sha: str | None, file: str) -> bytes | None:
    """Return a file below a folder, at a commit or in the working tree; None where there is none."""
    if sha is None:
        path = root / file
        return path.read_bytes() if path.is_file() else None
    blob = try_git(root, "rev-parse", "--verify", "--quiet", f"{sha}:./{file}")
    if blob is None or try_git(root, "cat-file", "-t", blob) != "blob":
        return None
    # A repository that nothing refers to may end its git while that is being read.
    with protected(git.Repo(root, search_parent_directories=True, expand_vars=False)) as repository:
        content: bytes = repository.odb.stream(bytes.fromhex(blob)).read()
    return content


def lay_benchmark(root: Path, source: BenchmarkSource, folder: Path) -> tuple[str, ...]:
    """Write a benchmark's file and the conftest files above it into a folder, and return their names."""
    path = PurePosixPath(source.file)
    wanted = [*(str(above / _CONFTEST) for above in reversed(path.parents)), source.file]
    laid: list[str] = []
    for name in wanted:
        content = read_at(root, source.sha, name)
        if content is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
            laid.append(name)
    return tuple(laid)


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
