"""The working tree as a side: what differs from HEAD, and the same laid over a checkout of HEAD."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from perfkit.model import Commit
from perfkit.repo.commits import read_commit
from perfkit.repo.files import OUTPUTS, hash_files, is_code, is_code_file, put_file, remove_file
from perfkit.repo.filtered import unchanged_files
from perfkit.repo.git import list_with_git, run_git

SUBMODULE_MODE = "160000"
_HASH_DIGITS = 16


def describe_working_tree(top: Path, *, ignored: Sequence[Path]) -> Commit:
    """Return HEAD, dirty where tracked or untracked files outside ``ignored`` differ from it."""
    commit = read_commit(top, ignored=ignored)
    untracked = without_outputs(top, untracked_files(top), ignored)
    states = [hash_files(top, untracked)] if untracked else []
    # The diff shows no more of a changed submodule than the word "dirty".
    states += _submodule_states(top) if commit.dirty else []
    if not states:
        return commit
    text = " ".join([str(commit.diff_hash), *states])
    return replace(commit, dirty=True, diff_hash=hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS])


def uncommitted_files(top: Path, *, ignored: Sequence[Path]) -> tuple[list[str], bool]:
    """Return the files outside ``ignored`` that differ from HEAD, and whether any of them may be code.

    A submodule that differs is code. A file that git does not track is code where it is named like code: what
    is left of a run may have any name.
    """
    tracked, untracked = (
        without_outputs(top, names, ignored) for names in (changed_since(top, "HEAD"), untracked_files(top))
    )
    inside = submodules(top)
    changed = list_with_git(top, "diff", "--name-only", "-z", "HEAD", "--", *inside) if inside else []
    code = any(map(is_code, tracked)) or any(map(is_code_file, untracked))
    return [*tracked, *untracked, *changed], code or bool(changed)


def code_of(top: Path, *, ignored: Sequence[Path], sha: str | None = None) -> str | None:
    """Return a hash of the files of a commit, or of the working tree, that may be code.

    Untracked files count, outputs of tools and pages of text do not. None where a submodule differs from its
    commit.
    """
    entries = list_with_git(top, "ls-tree", "-r", "-z", "--full-tree", sha or "HEAD")
    objects = {name: about.split(" ")[2] for about, _, name in (entry.partition("\t") for entry in entries)}
    if sha is None:
        inside = submodules(top)
        if inside and list_with_git(top, "diff", "--name-only", "-z", "HEAD", "--", *inside):
            return None
        present, gone = _uncommitted(top)
        objects |= dict.fromkeys(present, "")
        objects = {name: one for name, one in objects.items() if name not in gone}
    code = [*filter(is_code, without_outputs(top, sorted(objects), ignored))]
    changed = [name for name in code if not objects[name]]
    objects |= dict(zip(changed, _objects(top, changed), strict=True))
    text = "".join(f"{name}\0{objects[name]}\n" for name in code)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_HASH_DIGITS]


def without_outputs(top: Path, names: Iterable[str], ignored: Sequence[Path]) -> list[str]:
    """Return the files that no tool, and nothing in an ignored place, has written."""
    root, places = top.resolve(), [path.resolve() for path in ignored]
    if any(map(root.is_relative_to, places)):
        return []
    inside = tuple(f"{place.relative_to(root).as_posix()}/" for place in places if place.is_relative_to(root))
    return [
        name for name in names if OUTPUTS.isdisjoint(name.split("/")) and not f"{name}/".startswith(inside)
    ]


def lay_working_tree(top: Path, target: Path) -> None:
    """Make a checkout of HEAD hold what the working tree holds; submodules are left alone."""
    present, gone = _uncommitted(top)
    # A file that became a folder must be out of the way of the folder's files.
    for name in gone:
        remove_file(target, name)
    for name in present:
        put_file(top / name, target, name)


def submodules(top: Path) -> list[str]:
    """Return the paths of the submodules that the index holds, those not committed yet too."""
    entries = [entry.partition("\t") for entry in list_with_git(top, "ls-files", "--stage", "-z")]
    return [name for about, _, name in entries if about.startswith(SUBMODULE_MODE)]


def is_initialised(submodule: Path) -> bool:
    """Return whether a submodule has a repository; where it has not, git answers for the one around it."""
    return (submodule / ".git").exists()


def changed_since(top: Path, sha: str, *, until: str | None = None) -> list[str]:
    """Return the tracked files that differ from a commit, in the working tree or in another commit."""
    options = ["--name-only", "-z", "--no-renames", "--no-relative", "--ignore-submodules=all"]
    if until is not None:
        # Of two commits no file is filtered, so that nothing has to be asked about filters.
        return list_with_git(top, "diff-tree", "-r", *options, sha, until, "--")
    names = list_with_git(top, "diff", *options, sha, "--")
    same = frozenset(unchanged_files(top, sha, names))
    return [name for name in names if name not in same]


def untracked_files(top: Path) -> list[str]:
    """Return the files that git neither tracks nor ignores."""
    names = list_with_git(top, "ls-files", "--others", "--exclude-standard", "-z")
    # A repository inside the repository is listed as one folder; its files belong to it alone.
    return [name for name in names if not name.endswith("/")]


def ignored_files(top: Path, patterns: Iterable[str]) -> list[str]:
    """Return the files that git ignores and that match one of its own patterns, environments left out."""
    wanted = tuple(patterns)
    if not wanted:
        # Git would take that for all files.
        return []
    names = list_with_git(top, "ls-files", "--others", "--ignored", "--exclude-standard", "-z", "--", *wanted)
    return [name for name in names if "/site-packages/" not in f"/{name}"]


def _uncommitted(top: Path) -> tuple[list[str], list[str]]:
    names = sorted({*changed_since(top, "HEAD"), *untracked_files(top)})
    present = [name for name in names if _is_present(top.resolve() / name)]
    return present, sorted(set(names) - set(present))


def _objects(top: Path, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        path = top / name
        if path.is_symlink():
            target = os.fsencode(path.readlink())
            yield hashlib.sha1(b"blob %d\0%b" % (len(target), target), usedforsecurity=False).hexdigest()
        else:
            yield run_git(top, "hash-object", "--", name).strip()


def _submodule_states(top: Path) -> Iterator[str]:
    for submodule in [top / name for name in submodules(top)]:
        if is_initialised(submodule):
            present, gone = _uncommitted(submodule)
            yield f"{run_git(submodule, 'rev-parse', 'HEAD')} {hash_files(submodule, present)} {gone}"
            yield from _submodule_states(submodule)


def _is_present(path: Path) -> bool:
    return path.parent.resolve() == path.parent and (path.is_symlink() or path.is_file())
