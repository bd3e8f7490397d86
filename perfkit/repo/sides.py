"""The two sides of a comparison: those that a person named, or the defaults."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from perfkit import model as records
from perfkit.errors import RepositoryError
from perfkit.repo.commits import find_commit, is_bare, open_repository, resolve
from perfkit.repo.files import describe_folder, is_code
from perfkit.repo.git import is_shallow, try_git
from perfkit.repo.working_tree import (
    changed_since,
    describe_working_tree,
    submodules,
    uncommitted_files,
    untracked_files,
    without_outputs,
)
from perfkit.units import counted, listed

WORKTREE = "worktree"
_MAIN_BRANCHES = (
    "refs/remotes/origin/HEAD",
    "refs/heads/main",
    "refs/remotes/origin/main",
    "refs/heads/master",
    "refs/remotes/origin/master",
)
_DOCUMENTATION = ("docs", "doc", ".github")
_SHOWN_DIGITS = 10
_MOST_LISTED = 3


@dataclass(frozen=True, kw_only=True)
class Side:
    """Where the code of a side comes from; ``source`` is the top of the repository, or the directory."""

    kind: Literal["commit", "worktree", "directory"]
    commit: records.Commit
    source: Path


@dataclass(frozen=True, kw_only=True)
class SidePair:
    """What is compared: ratio = head / base; ``remarks`` are sentences on what a person may not expect."""

    base: Side
    head: Side
    remarks: tuple[str, ...] = ()
    same_code: bool = False

    @property
    def title(self) -> str:
        """Both commits in a line, or the one that is on both sides, with a note on uncommitted changes."""
        head = _title(self.head.commit)
        return (
            f"{head} on both sides"
            if self.base == self.head
            else f"{_title(self.base.commit)} against {head}"
        )

    def side(self, name: records.Side) -> Side:
        """Return the side with a name."""
        return self.base if name == "base" else self.head


def resolve_sides(
    start: Path, *, base: str | None, head: str | None, ignored: Sequence[Path] = ()
) -> SidePair:
    """Return the sides that were named: refs, directories (``./NAME`` of one like a ref) or ``worktree``.

    Head is by default the working tree if code outside ``ignored`` differs from HEAD, else HEAD; base is
    where head left the main branch, or its parent on the main branch itself.
    """
    head_side, remarks = _head(start, head, ignored)
    base_side = _default_base(head_side) if base is None else named_side(start, base)
    pair = SidePair(base=base_side, head=head_side)
    _refuse_equal(pair)
    left_out = _left_out(pair) if base is None else ()
    changed = changed_files(pair)
    return replace(
        pair,
        remarks=(*remarks, *left_out, *_no_code_differs(pair, changed, ignored)),
        same_code=_is_same_tree(pair, changed, ignored),
    )


def default_base(start: Path, *, ignored: Sequence[Path] = ()) -> str:
    """Return the commit that ``resolve_sides`` compares with where neither side is named."""
    head, _ = _head(start, None, ignored)
    return _default_base(head).commit.sha


def resolve_same(
    start: Path, *, base: str | None, head: str | None, ignored: Sequence[Path] = ()
) -> SidePair:
    """Return the sides of a comparison of environments: as they were named, and of one code where not."""
    head_side, remarks = _head(start, head, ignored)
    base_side = head_side if base is None else named_side(start, base)
    return SidePair(base=base_side, head=head_side, remarks=remarks)


def identical_sides(start: Path, ref: str | None = None) -> SidePair:
    """Return a commit, HEAD where none is named, as both sides."""
    side = _commit_side(_open(start), ref or "HEAD")
    return SidePair(base=side, head=side)


def named_side(start: Path, name: str) -> Side:
    """Return the commit or directory of a name; one that is both is the commit."""
    folder = Path(name)
    # Path.is_dir raises for a name that is too long.
    if name and os.path.isdir(folder) and find_commit(start, name) is None:  # noqa: PTH112
        folder = folder.resolve()
        return Side(kind="directory", commit=describe_folder(folder), source=folder)
    return _commit_side(_open(start), name)


def folder_in(side: Side, project: Path) -> Path:
    """Return where a project lies in a side, relative to its top; a directory is the project itself."""
    if side.kind == "directory" or not project.is_relative_to(side.source):
        return Path()
    return project.relative_to(side.source)


def is_same_code(one: Side, other: Side) -> bool:
    """Return whether two sides are one commit, without a change."""
    return one.commit.sha == other.commit.sha and not one.commit.dirty and not other.commit.dirty


def names_commit(start: Path, name: str) -> bool:
    """Return whether git knows a commit by this name, or it is the working tree's."""
    return name == WORKTREE or find_commit(start, name) is not None


def changed_files(pair: SidePair) -> tuple[str, ...] | None:
    """Return the relative paths of the files that differ between the sides; None for directories."""
    if "directory" in (pair.base.kind, pair.head.kind):
        return None
    if pair.base == pair.head:
        return ()
    top, base = pair.head.source, pair.base.commit.sha
    if pair.head.kind == "commit":
        return tuple(changed_since(top, base, until=pair.head.commit.sha))
    return tuple(sorted({*changed_since(top, base), *untracked_files(top)}))


def _title(commit: records.Commit) -> str:
    changes = " with uncommitted changes" if commit.dirty and commit.time else ""
    return f'{commit.sha[:_SHOWN_DIGITS]} "{commit.subject}"{changes}'


def _head(start: Path, name: str | None, ignored: Sequence[Path]) -> tuple[Side, tuple[str, ...]]:
    if name not in (None, WORKTREE):
        return named_side(start, name), ()
    top = _open(start)
    commit = describe_working_tree(top, ignored=ignored)
    if name or not commit.dirty:
        return Side(kind="worktree" if name else "commit", commit=commit, source=top), ()
    files, code = uncommitted_files(top, ignored=ignored)
    if code or not files:
        return Side(kind="worktree", commit=commit, source=top), ()
    remark = f"no code is uncommitted, only {listed(files, _MOST_LISTED)}: HEAD itself is compared"
    clean = replace(commit, dirty=False, diff_hash=None)
    return Side(kind="commit", commit=clean, source=top), (remark,)


def _no_code_differs(pair: SidePair, files: tuple[str, ...] | None, ignored: Sequence[Path]) -> Iterator[str]:
    if files is None:
        return
    if pair.head.kind == "worktree":
        files = tuple(without_outputs(pair.head.source, files, ignored))
    # Submodules are not among these files.
    if not any(map(is_code, files)) and not submodules(pair.head.source):
        only = f", only {listed(files, _MOST_LISTED)}" if files else ""
        yield f"no code differs between base and head{only}: what is found does not come from a change"


def _is_same_tree(pair: SidePair, files: tuple[str, ...] | None, ignored: Sequence[Path]) -> bool:
    """Return whether both sides are commits with the same files, apart from pages and perfkit's output."""
    if {pair.base.kind, pair.head.kind} != {"commit"}:
        return False
    changed = without_outputs(pair.head.source, files or (), ignored)
    # Submodules are not among the changed files.
    return all(map(_is_page, changed)) and not submodules(pair.head.source)


def _is_page(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return not is_code(name) and (len(parts) == 1 or parts[0] in _DOCUMENTATION)


def _commit_side(top: Path, ref: str) -> Side:
    return Side(kind="commit", commit=resolve(top, ref), source=top)


def _default_base(head: Side) -> Side:
    if head.kind == "directory":
        raise RepositoryError(f"{head.source} is a directory, which has no base of its own; add --base")
    top, sha = head.source, head.commit.sha
    main = next((found for branch in _MAIN_BRANCHES if (found := find_commit(top, branch))), None)
    if main is None:
        raise _lacking(top, "there is no main branch (origin/HEAD, main or master) to compare with")
    fork = try_git(top, "merge-base", sha, main)
    if fork == sha and not head.commit.dirty:
        fork = find_commit(top, f"{sha}^")
        if fork is None:
            raise _lacking(top, f"{sha[:_SHOWN_DIGITS]} has no parent to compare with")
    if fork is None:
        raise _lacking(top, f"{sha[:_SHOWN_DIGITS]} has no commit in common with the main branch")
    return _commit_side(top, fork)


def _left_out(pair: SidePair) -> Iterator[str]:
    """Yield a remark where the main branch moved by more commits than the one that is compared."""
    top, head, base = pair.head.source, pair.head.commit.sha, pair.base.commit.sha
    main = next((name for name in _MAIN_BRANCHES if find_commit(top, name) == head), None)
    if main is None or pair.head.kind != "commit":
        return
    # What is not pushed yet, else the last push, else the last merge or pull.
    moves = [f"{name}@{{1}}" for name in _MAIN_BRANCHES]
    for name in ("@{upstream}", "@{upstream}@{1}", *moves):
        begin = find_commit(top, name)
        if begin is None or begin == head or try_git(top, "merge-base", "--is-ancestor", begin, head) is None:
            continue
        count = int(try_git(top, "rev-list", "--count", f"{begin}..{base}") or 0)
        if count:
            short = begin[:_SHOWN_DIGITS]
            yield (
                f"{counted(count, 'commit')} since {short} came to the main branch together with head and"
                f" {'is' if count == 1 else 'are'} not compared; all of them: perfkit gate --base {short}"
            )
        return


def _refuse_equal(pair: SidePair) -> None:
    if is_same_code(pair.base, pair.head):
        head = pair.head.commit
        raise RepositoryError(
            f'base and head are one commit, {head.sha[:_SHOWN_DIGITS]} "{head.subject}", without a change;'
            " change something, or name another commit with --base"
        )


def _open(start: Path) -> Path:
    try:
        top = open_repository(start)
    except RepositoryError as error:
        raise RepositoryError(f"{error}, or name two existing directories with --base and --head") from error
    if is_bare(top):
        raise RepositoryError(f"{top} is a bare repository; run this in a checkout of it")
    return top


def _lacking(top: Path, what: str) -> RepositoryError:
    remedy = (
        "this clone is shallow, run `git fetch --unshallow`" if is_shallow(top) else "name one with --base"
    )
    return RepositoryError(f"{what}; {remedy}")
