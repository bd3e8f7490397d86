"""Commits: the one a result is filed under, and the order of many."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import git

from perfkit.errors import RepositoryError
from perfkit.model import Commit
from perfkit.model.history import CommitFacts
from perfkit.repo.commands import list_with_git, protected, run_git, try_git
from perfkit.repo.filtered import unchanged_files
from perfkit.repo.folders import OUTPUTS

COMMIT_VARIABLE = "PERFKIT_COMMIT"
_SHA = re.compile(r"[0-9a-f]{40}")
# Without the programs that a repository may name for its diffs.


def read_commit(start: Path, *, ignored: Sequence[Path] = ()) -> Commit:
    """Return the commit checked out at ``start``, and whether tracked files outside ``ignored`` differ.

    Outside any repository the commit comes from the environment variable ``PERFKIT_COMMIT``.

    Raises:
        RepositoryError: there is no commit to file results under, or ``PERFKIT_COMMIT`` is not HEAD.
    """
    claimed = _claimed_commit()
    repository = _find_repository(start)
    if repository is None:
        if claimed is None:
            raise RepositoryError(
                f"{start} is in no git repository, so results could not be filed under a commit; "
                f"run `git init` and commit, or set {COMMIT_VARIABLE} to the 40-digit commit"
            )
        return Commit(sha=claimed)
    head = _head(repository)
    if repository.bare:
        raise RepositoryError(
            f"{repository.git_dir} is a bare repository, which has no files to measure; "
            "run this in a clone or a worktree of it"
        )
    if claimed not in (None, head.hexsha):
        raise RepositoryError(
            f"{COMMIT_VARIABLE} is {claimed}, but HEAD of {repository.working_tree_dir} is {head.hexsha}; "
            f"unset {COMMIT_VARIABLE} inside a repository"
        )
    return _describe(repository, head, ignored)


def check_not_nested(places: Iterable[Path], root: Path) -> None:
    """Refuse to file what is measured at ``places`` under the commit of ``root``, which is not theirs.

    A submodule is part of the commit around it.

    Raises:
        RepositoryError: a place is in a git repository of its own, below ``root``.
    """
    around = _find_repository(root)
    # Thousands of tests may be named, which lie in few folders.
    for folder in {place if place.is_dir() else place.parent for place in places}:
        found = _find_repository(folder)
        if found is None or found == around or found.working_tree_dir is None:
            continue
        tree = Path(found.working_tree_dir)
        is_submodule = around is not None and Path(found.git_dir).is_relative_to(
            Path(around.common_dir).resolve() / "modules"
        )
        if tree.is_relative_to(root.resolve()) and not is_submodule:
            raise RepositoryError(
                f"these tests are of the git repository {tree}, but pytest takes {root} as their root, which "
                "is outside of it, so that they would be filed under a commit that is not theirs; give that "
                f"repository a pytest configuration of its own, or pass --rootdir={tree}"
            )


def open_repository(start: Path) -> git.Repo:
    """Return the git repository around ``start``.

    Raises:
        RepositoryError: there is none, or it has no commit yet.
    """
    repository = _find_repository(start)
    if repository is None:
        raise RepositoryError(f"{start} is in no git repository; run this inside one")
    _head(repository)
    return repository


def resolve(repository: git.Repo, ref: str) -> Commit:
    """Return the commit that ``ref`` names.

    Raises:
        RepositoryError: it names none.
    """
    if ref.startswith("-"):
        raise RepositoryError(f'"{ref}" is not a commit; a ref cannot begin with a dash')
    try:
        # The whole hash of a commit that git lacks is found out only when something of it is read.
        return _from_git(repository.commit(ref))
    except (git.exc.GitError, git.exc.ODBError, ValueError) as error:
        raise RepositoryError(f'unknown commit "{ref}"; see `git log --oneline`') from error


def describe_commits(start: Path, shas: Collection[str]) -> dict[str, Commit]:
    """Return the commits that git knows by these hashes, whole or cut short; the others are left out.

    Outside any repository none is known.
    """
    repository = _find_repository(start)
    if repository is None or not shas:
        return {}
    found: dict[str, Commit] = {}
    for sha in shas:
        with contextlib.suppress(RepositoryError):
            commit = resolve(repository, sha)
            # A branch or a tag may have the name of a hash.
            if commit.sha.startswith(sha):
                found[sha] = commit
    return found


def history_order(start: Path, shas: Iterable[str], *, also: Iterable[str] = ()) -> dict[str, int]:
    """Return the place of each known commit in topological order, oldest first; unknown ones are left out.

    ``also`` are commits that git has, but perhaps on no branch: those before an amend or a rebase.
    """
    repository = _find_repository(start)
    wanted = set(shas)
    if repository is None or not repository.head.is_valid():
        return {}
    walked = repository.git.rev_list("--topo-order", "--reverse", "--all", "HEAD", *also).split()
    return {sha: place for place, sha in enumerate(walked) if sha in wanted}


def _claimed_commit() -> str | None:
    claimed = os.environ.get(COMMIT_VARIABLE)
    if claimed and not _SHA.fullmatch(claimed):
        raise RepositoryError(f'{COMMIT_VARIABLE} must be 40 lower-case hex digits, found "{claimed}"')
    return claimed or None


def _find_repository(start: Path) -> git.Repo | None:
    try:
        return protected(git.Repo(start, search_parent_directories=True, expand_vars=False))
    except (git.InvalidGitRepositoryError, git.NoSuchPathError):
        return None


def _head(repository: git.Repo) -> git.Commit:
    try:
        return repository.head.commit
    except (ValueError, OSError) as error:
        tree = repository.working_tree_dir or repository.git_dir
        raise RepositoryError(_why_no_head(repository, str(tree))) from error


def _why_no_head(repository: git.Repo, tree: str) -> str:
    """Return why no commit can be read in a repository, and what to do about it."""
    try:
        hashes = repository.git.rev_parse("--show-object-format")
    except git.exc.GitCommandError as error:
        # As in containers.
        if "dubious ownership" in str(error.stderr):
            return (
                f"git does not trust {tree}, since it belongs to another user; "
                f"run `git config --global --add safe.directory {tree}`"
            )
        hashes = "sha1"
    if hashes != "sha1":
        return (
            f"{tree} names its commits by {hashes.upper()}, and results are filed under the 40 digits "
            "of SHA-1; perfkit cannot measure in such a repository yet"
        )
    with contextlib.suppress(git.exc.GitCommandError):
        sha = repository.git.rev_parse("--verify", "--quiet", "HEAD")
        return f"git has lost the commit {sha} that HEAD of {tree} is; see `git fsck`"
    return f"{tree} has no commit yet, so results could not be filed under one; run `git commit` first"


def _describe(repository: git.Repo, head: git.Commit, ignored: Sequence[Path]) -> Commit:
    diff = _tracked_changes(repository, ignored)
    commit = _from_git(head)
    return Commit(
        sha=commit.sha,
        time=commit.time,
        subject=commit.subject,
        branch=None if repository.head.is_detached else repository.active_branch.name,
        dirty=bool(diff),
        diff_hash=hashlib.sha256(diff.encode("utf-8", "surrogateescape")).hexdigest()[:16] if diff else None,
    )


def _from_git(commit: git.Commit) -> Commit:
    subject = commit.summary
    return Commit(
        sha=commit.hexsha,
        time=datetime.fromtimestamp(commit.committed_date, tz=UTC),
        subject=subject if isinstance(subject, str) else subject.decode("utf-8", "replace"),
    )


def _tracked_changes(repository: git.Repo, ignored: Sequence[Path]) -> str:
    """Return the diff of tracked files against HEAD, staged or not, outside the ignored places."""
    top = Path(str(repository.working_tree_dir)).resolve()
    inside = [path.resolve() for path in ignored if path.resolve().is_relative_to(top)]
    exclusions = [f":(exclude,top){path.relative_to(top).as_posix()}" for path in inside if path != top]
    exclusions += [f":(exclude,top,glob)**/{name}/**" for name in sorted(OUTPUTS)]
    places = ("--", ":/", *exclusions)
    changed = list_with_git(top, "diff", "HEAD", "--name-only", "--no-renames", "-z", *places)
    if not changed:
        return ""
    same = [f":(exclude,top,literal){name}" for name in unchanged_files(top, "HEAD", changed)]
    return run_git(top, "diff", "HEAD", "--binary", *places, *same).removesuffix("\n")


def commit_facts(start: Path, shas: Iterable[str]) -> dict[str, CommitFacts]:
    """Return what git knows of commits, with their places in topological order, oldest first.

    Those that git does not know are left out; outside a repository it knows none.
    """
    repository = _find_repository(start)
    wanted = set(shas)
    if repository is None or not repository.head.is_valid():
        return {}
    form = "--format=%H%x00%ct%x00%an%x00%s"
    said = repository.git.log("--no-show-signature", "--topo-order", "--reverse", "--all", "HEAD", form)
    facts: dict[str, CommitFacts] = {}
    for place, line in enumerate(said.split("\n")):
        sha, time, author, subject = line.split("\0", 3)
        if sha in wanted:
            facts[sha] = CommitFacts(
                sha=sha,
                subject=subject,
                time=datetime.fromtimestamp(int(time), tz=UTC),
                author=author,
                place=place,
            )
    return facts


def commits_of(start: Path, ref: str) -> frozenset[str]:
    """Return the commits that can be reached from ``ref``.

    Raises:
        RepositoryError: it names no commit.
    """
    repository = open_repository(start)
    return frozenset(repository.git.rev_list(resolve(repository, ref).sha).split())


def commits_between(start: Path, first: str, last: str) -> int | None:
    """Return how many commits ``last`` has that ``first`` has not; None where git lacks either."""
    if not _are_hashes(first, last):
        return None
    counted = try_git(start, "rev-list", "--count", f"{first}..{last}")
    return None if counted is None else int(counted)


def commits_after(start: Path, first: str, last: str) -> frozenset[str] | None:
    """Return the commits after the first up to the last one.

    None where the first is no ancestor of the last, and where git lacks either.
    """
    if not _are_hashes(first, last):
        return None
    listed = try_git(start, "rev-list", "--left-right", f"{first}...{last}")
    if listed is None or "<" in listed:
        return None
    return frozenset(line.removeprefix(">") for line in listed.split())


def changed_files(start: Path, first: str, last: str) -> tuple[str, ...] | None:
    """Return the files that differ between two commits, None where git lacks one of them."""
    if not _are_hashes(first, last):
        return None
    listed = try_git(start, "diff", "--name-only", "--no-renames", "-z", first, last)
    return None if listed is None else tuple(filter(None, listed.split("\0")))


def is_ancestor(start: Path, first: str, last: str) -> bool:
    """Tell whether a commit is part of the history of another one; not where git lacks one of them."""
    return _are_hashes(first, last) and try_git(start, "merge-base", "--is-ancestor", first, last) is not None


def _are_hashes(*texts: str) -> bool:
    """Tell whether texts are hashes: a ledger may be anybody's, and git would take some texts for options."""
    return all(map(_SHA.fullmatch, texts))


def releases(start: Path) -> dict[str, str]:
    """Return the tags of the commits that can be reached from HEAD, oldest first, with their commits."""
    form = "--format=%(refname:short) %(*objectname)%(objectname)"
    listed = try_git(start, "tag", "--merged", "HEAD", "--sort=creatordate", form)
    pairs = (line.split(" ", 1) for line in (listed or "").splitlines())
    # An annotated tag has an object of its own, written behind that of its commit.
    return {name: hashes[:40] for name, hashes in pairs}
