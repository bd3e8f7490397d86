"""Commits: the one a result is filed under, the order of many, and ranges such as "v1.0..HEAD"."""

from __future__ import annotations

import functools
import hashlib
import heapq
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Literal

from perfkit.errors import RepositoryError, UsageError
from perfkit.model import Commit
from perfkit.model.history import CommitFacts
from perfkit.repo.code_units import changed_functions
from perfkit.repo.files import OUTPUTS, is_code
from perfkit.repo.filtered import unchanged_files
from perfkit.repo.git import git_error, is_shallow, list_with_git, printable, read_blobs, run_git, try_git

COMMIT_VARIABLE = "PERFKIT_COMMIT"
_SHA = re.compile(r"[0-9a-f]{40}")
_SHORT = re.compile(r"[0-9a-f]{4,40}")
_SHOWN_DIGITS = 10
_DESCRIBED = ("log", "--no-show-signature", "--encoding=UTF-8", "-z")
# A commit's own first line, which "%s" would join with the lines after it.
_FORMAT = "--format=%H%n%ct%n%B"
_ABSENT = "0" * 40
_CONFTEST = "conftest.py"
_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_NAMED = 3
_DOTS = ".."


def find_repository(start: Path) -> Path | None:
    """Return the top of the working tree around ``start``, or a bare repository; None outside of any."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if _is_git_folder(_git_folder(folder)) or _is_git_folder(folder):
            return folder
    return None


def _git_folder(tree: Path) -> Path:
    entry = tree / ".git"
    try:
        return tree / os.fsdecode(entry.read_bytes()).removeprefix("gitdir: ").strip()
    except OSError:
        return entry


def _is_git_folder(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and any((folder / name).exists() for name in ("commondir", "objects"))


def is_bare(place: Path) -> bool:
    """Return whether a repository has no files."""
    return not (place / ".git").exists()


def open_repository(start: Path) -> Path:
    """Return the top of the git repository around ``start``."""
    top = find_repository(start)
    if top is None:
        raise RepositoryError(f"{start} is in no git repository; run this inside one")
    _head(top)
    return top


def read_commit(start: Path, *, ignored: Sequence[Path] = ()) -> Commit:
    """Return the commit checked out at ``start``, and whether tracked files outside ``ignored`` differ."""
    claimed = os.environ.get(COMMIT_VARIABLE) or None
    if claimed and not _SHA.fullmatch(claimed):
        raise RepositoryError(f'{COMMIT_VARIABLE} must be 40 lower-case hex digits, found "{claimed}"')
    top = find_repository(start)
    if top is None:
        if claimed is None:
            raise RepositoryError(
                f"{start} is in no git repository, so results could not be filed under a commit; "
                f"run `git init` and commit, or set {COMMIT_VARIABLE} to the 40-digit commit"
            )
        return Commit(sha=claimed)
    head = _head(top)
    if is_bare(top):
        raise RepositoryError(
            f"{top} is a bare repository, which has no files to measure; "
            "run this in a clone or a worktree of it"
        )
    if claimed not in (None, head.sha):
        raise RepositoryError(
            f"{COMMIT_VARIABLE} is {claimed}, but HEAD of {top} is {head.sha}; "
            f"unset {COMMIT_VARIABLE} inside a repository"
        )
    diff = _tracked_changes(top, ignored)
    branch = try_git(top, "symbolic-ref", "--quiet", "HEAD")
    return replace(
        head,
        branch=branch.removeprefix("refs/heads/") if branch else None,
        dirty=bool(diff),
        diff_hash=hashlib.sha256(diff.encode("utf-8", "surrogateescape")).hexdigest()[:16] if diff else None,
    )


def check_not_nested(places: Iterable[Path], root: Path) -> None:
    """Refuse to file what is measured at ``places`` under the commit of ``root``, which is not theirs."""
    around = find_repository(root)
    # Thousands of tests may be named, which lie in few folders.
    for folder in {place if place.is_dir() else place.parent for place in places}:
        tree = find_repository(folder)
        if tree is None or tree == around or not tree.is_relative_to(root.resolve()) or is_bare(tree):
            continue
        common = around and try_git(around, "rev-parse", "--path-format=absolute", "--git-common-dir")
        if common and _git_folder(tree).resolve().is_relative_to(Path(common).resolve() / "modules"):
            continue
        raise RepositoryError(
            f"these tests are of the git repository {tree}, but pytest takes {root} as their root, which "
            "is outside of it, so that they would be filed under a commit that is not theirs; give that "
            f"repository a pytest configuration of its own, or pass --rootdir={tree}"
        )


def resolve(top: Path, ref: str) -> Commit:
    """Return the commit that ``ref`` names."""
    if ref.startswith("-"):
        raise RepositoryError(f'"{ref}" is not a commit; a ref cannot begin with a dash')
    sha = find_commit(top, ref)
    if sha is None:
        hint = " in this shallow clone; run `git fetch --unshallow`" if is_shallow(top) else ""
        raise RepositoryError(f'unknown commit "{ref}"{hint or "; see `git log --oneline`"}')
    return _read_commits(top, [sha])[sha]


def find_commit(place: Path, ref: str) -> str | None:
    """Return the hash of the commit that a ref names, None where git knows none."""
    if ref.startswith("-") or "\0" in ref:
        return None
    return try_git(place, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")


def describe_commits(start: Path, shas: Collection[str]) -> dict[str, Commit]:
    """Return the commits that git knows by these hashes, whole or cut short; the others are left out."""
    top, wanted = find_repository(start), [sha for sha in shas if _SHORT.fullmatch(sha)]
    if top is None or not wanted:
        return {}
    asked = "".join(f"{sha}^{{commit}}\n" for sha in wanted).encode()
    try:
        answers = run_git(top, "cat-file", "--batch-check", given=asked).splitlines()
    except RepositoryError:
        return {}
    # A branch or a tag may have the name of a hash. A hash that may mean several objects has more lines.
    known = {line.split()[0] for line in answers if line.split()[1:2] == ["commit"]}
    whole = {sha: [one for one in known if one.startswith(sha)] for sha in wanted}
    commits = _read_commits(top, known)
    return {sha: commits[found[0]] for sha, found in whole.items() if len(found) == 1}


def history_order(start: Path, shas: Iterable[str], *, also: Iterable[str] = ()) -> dict[str, int]:
    """Return the place of each known commit in topological order, oldest first; unknown ones are left out."""
    top, wanted = find_repository(start), set(shas)
    if top is None or try_git(top, "rev-parse", "--verify", "--quiet", "HEAD^{commit}") is None:
        return {}
    walked = run_git(top, "rev-list", "--topo-order", "--reverse", "--all", "HEAD", *also).split()
    return {sha: place for place, sha in enumerate(walked) if sha in wanted}


def _head(top: Path) -> Commit:
    try:
        commit = _describe(run_git(top, *_DESCRIBED, "-1", _FORMAT, "HEAD", "--").split("\0")[0])
    except RepositoryError as error:
        raise RepositoryError(_why_no_head(top)) from error
    if not _SHA.fullmatch(commit.sha):
        raise RepositoryError(_why_no_head(top))
    return commit


def _why_no_head(top: Path) -> str:
    # As in containers.
    if "dubious ownership" in git_error(top, "rev-parse", "--git-dir"):
        return (
            f"git does not trust {top}, since it belongs to another user; "
            f"run `git config --global --add safe.directory {top}`"
        )
    hashes = try_git(top, "rev-parse", "--show-object-format") or "sha1"
    if hashes != "sha1":
        return (
            f"{top} names its commits by {hashes.upper()}, and results are filed under the 40 digits "
            "of SHA-1; perfkit cannot measure in such a repository yet"
        )
    sha = try_git(top, "rev-parse", "--verify", "--quiet", "HEAD")
    if sha:
        return f"git has lost the commit {sha} that HEAD of {top} is; see `git fsck`"
    return f"{top} has no commit yet, so results could not be filed under one; run `git commit` first"


def _read_commits(top: Path, shas: Collection[str]) -> dict[str, Commit]:
    if not shas:
        return {}
    given = "".join(f"{sha}\n" for sha in shas).encode()
    found = run_git(top, *_DESCRIBED, "--no-walk=unsorted", "--stdin", _FORMAT, given=given)
    commits = map(_describe, found.split("\0")[:-1])
    return {commit.sha: commit for commit in commits}


def _describe(text: str) -> Commit:
    sha, time, message = printable(text).split("\n", 2)
    return Commit(sha=sha, time=datetime.fromtimestamp(int(time), tz=UTC), subject=message.partition("\n")[0])


def _tracked_changes(repository: Path, ignored: Sequence[Path]) -> str:
    top = repository.resolve()
    inside = [path.resolve() for path in ignored if path.resolve().is_relative_to(top)]
    exclusions = [f":(exclude,top){path.relative_to(top).as_posix()}" for path in inside if path != top]
    exclusions += [f":(exclude,top,glob)**/{name}/**" for name in sorted(OUTPUTS)]
    places = ("--", ":/", *exclusions)
    changed = list_with_git(top, "diff", "HEAD", "--name-only", "--no-renames", "-z", *places)
    if not changed:
        return ""
    same = [f":(exclude,top,literal){name}" for name in unchanged_files(top, "HEAD", changed)]
    return run_git(top, "diff", "HEAD", "--binary", *places, *same).removesuffix("\n")


class KnownCommits:
    """The commits that a repository's names lead to, listed once: each question takes git milliseconds."""

    def __init__(self, start: Path) -> None:
        self._start, self._top = start, find_repository(start)

    @functools.cached_property
    def _listed(self) -> dict[str, tuple[int, str]]:
        """The place of each commit in topological order, oldest first, and its line as git printed it."""
        top = self._top
        if top is None or try_git(top, "rev-parse", "--verify", "--quiet", "HEAD^{commit}") is None:
            return {}
        order = ("--topo-order", "--reverse", "--all", "HEAD")
        listed = list_with_git(top, *_DESCRIBED, *order, "--format=%H%n%P%n%ct%n%an%n%s")
        return {line[:40]: (place, line) for place, line in enumerate(listed)}

    def facts(self, shas: Iterable[str]) -> dict[str, CommitFacts]:
        """Return git's facts of commits, with their places in topological order, oldest first."""
        wanted = set(shas)
        # Nothing is listed for nothing.
        found = ((*self._listed[sha], sha) for sha in (wanted & self._listed.keys() if wanted else ()))
        facts: dict[str, CommitFacts] = {}
        for place, line, sha in sorted(found):
            _, _, seconds, author, subject = printable(line).split("\n", 4)
            time = datetime.fromtimestamp(int(seconds), tz=UTC)
            facts[sha] = CommitFacts(sha=sha, subject=subject, time=time, author=author, place=place)
        return facts

    def between(self, first: str, last: str) -> int | None:
        """Return how many commits ``last`` has that ``first`` has not; None where git lacks either."""
        if not {first, last} <= self._listed.keys():
            return commits_between(self._start, first, last)
        # From the newest on, since no commit is newer than one that has it.
        counts = {last: True, first: False}
        left = [(-self._listed[sha][0], sha) for sha in counts]
        heapq.heapify(left)
        counted, open_ends = 0, sum(counts.values())
        while open_ends:
            sha = heapq.heappop(left)[1]
            counted += counts[sha]
            open_ends -= counts[sha]
            for parent in self._listed[sha][1].split("\n", 2)[1].split():
                if parent not in self._listed:
                    continue
                if parent not in counts:
                    heapq.heappush(left, (-self._listed[parent][0], parent))
                    counts[parent] = False
                elif counts[sha] or not counts[parent]:
                    continue
                open_ends += counts[sha] - counts[parent]
                counts[parent] = counts[sha]
        return counted

    def changed_files(
        self, pairs: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], tuple[str, ...] | None]:
        """Return the files that differ between each pair of commits, None where git lacks one of them."""
        known = [pair for pair in pairs if self._listed.keys() >= {*pair}]
        found = {pair: changed_files(self._start, *pair) for pair in {*pairs}.difference(known)}
        if not known or self._top is None:
            return found
        given = "".join(f"{last} {first}\n" for first, last in known).encode()
        how = ("--stdin", "--always", "-r", "--raw", "--no-renames", "-z")
        parts = iter(run_git(self._top, "diff-tree", *how, given=given).split("\0")[:-1])
        names: list[list[str]] = []
        for part in parts:
            if part.startswith(":"):
                names[-1].append(next(parts))
            else:
                names.append([])
        return found | {pair: tuple(own) for pair, own in zip(known, names, strict=True)}


def commit_facts(start: Path, shas: Iterable[str]) -> dict[str, CommitFacts]:
    """Return git's facts of commits, with their places in topological order, oldest first."""
    return KnownCommits(start).facts(shas)


def commits_of(start: Path, ref: str) -> frozenset[str]:
    """Return the commits that can be reached from ``ref``."""
    top = open_repository(start)
    return frozenset(run_git(top, "rev-list", resolve(top, ref).sha).split())


def commits_between(start: Path, first: str, last: str) -> int | None:
    """Return how many commits ``last`` has that ``first`` has not; None where git lacks either."""
    if not _may_be_known(start, first, last):
        return None
    counted = try_git(start, "rev-list", "--count", f"{first}..{last}")
    return None if counted is None else int(counted)


def commits_after(start: Path, first: str, last: str) -> frozenset[str] | None:
    """Return the commits after the first up to the last one."""
    if not _may_be_known(start, first, last):
        return None
    listed = try_git(start, "rev-list", "--left-right", f"{first}...{last}")
    if listed is None or "<" in listed:
        return None
    return frozenset(line.removeprefix(">") for line in listed.split())


def changed_files(start: Path, first: str, last: str) -> tuple[str, ...] | None:
    """Return the files that differ between two commits, None where git lacks one of them."""
    if not _may_be_known(start, first, last):
        return None
    listed = try_git(start, "diff", "--name-only", "--no-renames", "-z", first, last)
    return None if listed is None else tuple(filter(None, listed.split("\0")))


def is_ancestor(start: Path, first: str, last: str) -> bool:
    """Return whether a commit is part of the history of another one; not where git lacks one of them."""
    return (
        _may_be_known(start, first, last)
        and try_git(start, "merge-base", "--is-ancestor", first, last) is not None
    )


def _may_be_known(start: Path, *texts: str) -> bool:
    return all(map(_SHA.fullmatch, texts)) and find_repository(start) is not None


def releases(start: Path) -> dict[str, str]:
    """Return the tags of the commits that can be reached from HEAD, oldest first, with their commits."""
    return _commits_of_names(start, "tag", "--merged", "HEAD", "--sort=creatordate")


def newest_on_names(start: Path, among: Collection[str]) -> dict[str, str]:
    """Return the newest of some commits on each local branch and each tag, by its name."""
    order = ("--topo-order", "--reverse", "--parents", "--branches", "--tags")
    newest: dict[str, tuple[int, str]] = {}
    for place, line in enumerate((try_git(start, "rev-list", *order) or "").splitlines()):
        sha, *parents = line.split()
        before = [newest[parent] for parent in parents if parent in newest]
        if sha in among or before:
            newest[sha] = (place, sha) if sha in among else max(before)
    names = _commits_of_names(start, "for-each-ref", "refs/heads", "refs/tags")
    return {name: newest[sha][1] for name, sha in names.items() if sha in newest}


def beside_head(start: Path, among: Collection[str]) -> frozenset[str]:
    """Return those of some commits that are on other branches only; none where HEAD has none of them."""
    elsewhere = try_git(start, "rev-list", "--branches", "--remotes", "--tags", "--not", "HEAD") or ""
    found = frozenset(elsewhere.split()).intersection(among)
    return found if found and not commits_of(start, "HEAD").isdisjoint(among) else frozenset()


def _commits_of_names(start: Path, command: str, *arguments: str) -> dict[str, str]:
    form = "--format=%(refname:short) %(*objectname)%(objectname)"
    listed = try_git(start, command, form, *arguments)
    pairs = (line.split(" ", 1) for line in (listed or "").splitlines())
    # An annotated tag has an object of its own, written behind that of its commit.
    return {name: hashes[:40] for name, hashes in pairs}


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
    ``touches_more`` is whether code differs that is no Python.
    """

    touches_code: bool
    code: Mapping[str, tuple[str, ...] | None]
    touches_more: bool = False


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
    """Return the commits from ``good`` to ``bad``, by first parents, or all of them."""
    top = open_repository(start)
    first, last = (resolve(top, ref) for ref in (good, bad))
    if first.sha == last.sha:
        raise UsageError(f"GOOD and BAD are one commit, {_title(first)}: name two, such as v1.2 HEAD")
    if not is_ancestor(start, first.sha, last.sha):
        raise UsageError(_not_descendant(start, first, last))
    kind = "--topo-order" if all_parents else "--first-parent"
    between = run_git(top, "rev-list", kind, "--reverse", f"{first.sha}..{last.sha}").split()
    known = _read_commits(top, between)
    return CommitRange(root=start, commits=(first, *(known[sha] for sha in between[:-1]), last))


def _not_descendant(start: Path, good: Commit, bad: Commit) -> str:
    problem = f"BAD ({_title(bad)}) does not come after GOOD ({_title(good)})"
    if is_ancestor(start, bad.sha, good.sha):
        return f"{problem}, but before it: name the older commit first"
    if is_shallow(start):
        return f"{problem} in this shallow clone; run `git fetch --unshallow`"
    fork = try_git(start, "merge-base", good.sha, bad.sha)
    named = f"their last common commit, {fork[:_SHOWN_DIGITS]}, may be the GOOD to name" if fork else ""
    return f"{problem}; {named or 'they have no commit in common'}"


def _title(commit: Commit) -> str:
    return f'{commit.sha[:_SHOWN_DIGITS]} "{commit.subject}"'


def changes_of(commits: CommitRange, *, read: Collection[str]) -> list[CommitChange]:
    """Return the changes of each place of a range, beginning with place 1."""
    top = open_repository(commits.root)
    folder = commits.root.resolve().relative_to(top)
    places = range(1, len(commits.commits))
    changed = [list(_changed_blobs(top, commits.sha(place - 1), commits.sha(place))) for place in places]
    wanted = {f"{folder.as_posix()}/{name}" if folder.parts else name: name for name in read}
    blobs = {blob for files in changed for name, *both in files if name in wanted for blob in both}
    texts = {_ABSENT: b"", **read_blobs(top, blobs - {_ABSENT})}
    found = []
    for files in changed:
        code = {
            wanted[name]: functions
            for name, old, new in files
            if name in wanted and (functions := changed_functions(texts[old], texts[new])) != ()
        }
        codes = [name for name, _, _ in files if is_code(name)]
        more = any(not name.endswith(".py") for name in codes)
        found.append(CommitChange(touches_code=bool(codes), code=code, touches_more=more))
    return found


def _changed_blobs(top: Path, first: str, last: str) -> Iterator[tuple[str, str, str]]:
    entries = iter(
        list_with_git(top, "diff-tree", "-r", "--raw", "-z", "--no-abbrev", "--no-renames", first, last)
    )
    for entry, name in zip(entries, entries, strict=True):
        old_mode, new_mode, old, new, _ = entry.removeprefix(":").split(" ")
        linked = "160000" in (old_mode, new_mode)
        yield name, *((_ABSENT, _ABSENT) if linked else (old, new))


def diff_stat(start: Path, first: str, last: str) -> DiffStat:
    """Return how much differs between two commits; files that are not text count without lines."""
    entries = list_with_git(start, "diff", "--numstat", "--no-renames", "-z", first, last)
    lines = [entry.split("\t")[:2] for entry in entries]
    added, removed = (sum(int(line[side]) for line in lines if line[side].isdigit()) for side in (0, 1))
    return DiffStat(files=len(lines), added=added, removed=removed)


def author_of(start: Path, sha: str) -> str | None:
    """Return the author of a commit, None where git does not know it."""
    return try_git(start, "log", "-1", "--format=%an", sha)


def find_benchmark(commits: CommitRange, benchmark: str, *, preferred: str) -> BenchmarkSource:
    """Return the file of a benchmark: at the bad commit, in the working tree, or at the good one."""
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
        f'there is no benchmark "{benchmark}" at either end or in the working tree;'
        " `pytest --collect-only -q` lists their node ids"
    )


def _files_with(root: Path, sha: str | None, function: str) -> list[str]:
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
    return read_blobs(root, [blob])[blob]


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
    """Return whether a text names a range, and not a commit."""
    return _DOTS in text


def commits_in(start: Path, text: str) -> tuple[str, ...]:
    """Return the commits of "A..B" on the line of first parents that leads to B, oldest first, A included."""
    begin, end = _ends(start, text)
    if begin is None:
        return tuple(run_git(start, "rev-list", "--first-parent", "--reverse", end).split())
    inside = run_git(start, "rev-list", "--first-parent", "--reverse", end, f"^{begin}").split()
    if not inside and begin != end:
        raise RepositoryError(f"no commit lies in {text}; write the older one first")
    return (begin, *inside)


def all_commits_in(start: Path, text: str) -> frozenset[str]:
    """Return all commits of "A..B", merged ones included, and A itself; "..B" is B with all before it."""
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
    top = open_repository(start)
    first = resolve(top, begin).sha if begin else None
    return first, resolve(top, end or "HEAD").sha
