"""Lay out both sides next to each other, ready to be measured, and remove them afterwards."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from perfkit import model as records
from perfkit.config import Project
from perfkit.errors import RepositoryError, SideNotMeasuredError
from perfkit.invocation import signals_put_off
from perfkit.repo.files import copy_folder
from perfkit.repo.filtered import StoredFile, bring_filtered, refuse_stored
from perfkit.repo.git import list_with_git, run_git, run_git_checkout, try_git
from perfkit.repo.leftovers import end_residents, forget_lost
from perfkit.repo.prepare import bring_generated, bring_versions, prepare_root, write_missing_versions
from perfkit.repo.sides import Side, SidePair, folder_in
from perfkit.repo.working_tree import SUBMODULE_MODE, is_initialised, lay_working_tree, submodules
from perfkit.temporary import temporary_folder

_NAME_DIGITS = 12
_SHA_DIGITS = 10


@contextmanager
def worktree_folder(repositories: Sequence[Path]) -> Iterator[Path]:
    """Yield the real path of a fresh folder for worktrees of the repositories; all go away together."""
    try:
        with temporary_folder(repositories=repositories) as folder:
            try:
                yield folder
            finally:
                # What was measured may have left a process that belongs to nobody any more.
                with signals_put_off():
                    end_residents(folder)
    finally:
        with signals_put_off():
            for repository in repositories:
                forget_lost(repository)


def add_worktree(repository: Path, sha: str, path: Path) -> None:
    """Check out a commit as it was committed: no hook, filter or setting of the user's changes it."""
    try:
        run_git_checkout(repository, "worktree", "add", "--quiet", "--detach", str(path), sha)
    except RepositoryError as error:
        problem = _kept_from_listing(repository)
        if problem is None:
            raise
        raise RepositoryError(
            f"cannot check out {sha[:_NAME_DIGITS]}: git must list the checkout in the repository, and"
            f" {problem}; make that writable, or run this in a clone of your own:"
            f" git clone {shlex.quote(str(repository))} FOLDER"
        ) from error


def _kept_from_listing(repository: Path) -> str | None:
    """Return what keeps git from noting a worktree in a repository, None where nothing does.

    It is tried out: git's message depends on the user's language.
    """
    common = try_git(repository, "rev-parse", "--path-format=absolute", "--git-common-dir")
    if common is None:
        return None
    listing = Path(common) / "worktrees"
    try:
        with tempfile.TemporaryDirectory(dir=listing if os.path.lexists(listing) else common):
            return None
    except OSError as error:
        return f"{listing} cannot be written ({error.strerror or error})"


def _fill_submodules(
    source: Path, target: Path, sha: str | None, stored: list[StoredFile], *, within: str = ""
) -> Iterator[str]:
    found = dict.fromkeys(submodules(source)) if sha is None else _recorded(source, sha)
    for name, recorded in found.items():
        submodule = source / name
        lack = _lack(submodule, recorded or "HEAD", within + name)
        if lack:
            yield lack
            continue
        commit = recorded or run_git(submodule, "rev-parse", "HEAD").strip()
        yield from _export(submodule, commit, target / name, stored)
        if recorded is None:
            lay_working_tree(submodule, target / name)
        yield from _fill_submodules(submodule, target / name, recorded, stored, within=f"{within}{name}/")


def _recorded(source: Path, sha: str) -> dict[str, str | None]:
    entries = [entry.partition("\t") for entry in list_with_git(source, "ls-tree", "-r", "-z", sha)]
    return {name: about.split()[2] for about, _, name in entries if about.startswith(SUBMODULE_MODE)}


def _lack(submodule: Path, sha: str, name: str) -> str | None:
    if not is_initialised(submodule):
        return (
            f"submodule {name} is not initialised, so its folder is empty;"
            " `git submodule update --init --recursive` fills it"
        )
    if try_git(submodule, "cat-file", "-e", f"{sha}^{{commit}}") is None:
        return (
            f"submodule {name} lacks commit {sha[:10]}, so its folder is empty;"
            f" `git -C {name} fetch origin {sha}` brings it"
        )
    return None


def _export(submodule: Path, sha: str, target: Path, stored: list[StoredFile]) -> list[str]:
    with temporary_folder() as folder:
        index = folder / "index"
        run_git_checkout(submodule, "read-tree", sha, index=index)
        run_git_checkout(submodule, "checkout-index", "--all", "--force", f"--prefix={target}/", index=index)
        if not target.is_dir():
            return []
        git_folder = Path(run_git(submodule, "rev-parse", "--absolute-git-dir").strip())
        lacking, sentences = bring_filtered(submodule, target, git_folder=git_folder, index=index)
        stored += lacking
        return sentences


@dataclass(frozen=True, kw_only=True)
class Roots:
    """Where the sides lie: real paths of equal length. ``warnings`` are sentences on what they lack."""

    base: Path
    head: Path
    warnings: tuple[str, ...] = ()

    def root(self, name: records.Side) -> Path:
        """Return the root of the side with a name."""
        return self.base if name == "base" else self.head


@dataclass(frozen=True, kw_only=True)
class Generated:
    """What a fresh checkout lacks: files to copy and to link into it, and a shell command that makes others.

    The patterns of ``copy`` and ``link`` start from the folder that ``project`` has in a checkout, and
    ``prepare`` runs there.
    """

    project: Path

    copy: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    prepare: str | None = None

    @classmethod
    def of(cls, project: Project) -> Generated:
        """Return the settings of a project."""
        config = project.config
        return cls(project=project.root, copy=config.copy, link=config.link, prepare=config.prepare)


@contextmanager
def checkouts(
    pair: SidePair,
    *,
    generated: Generated | None = None,
    pythons: Mapping[records.Side, str] = MappingProxyType({}),
) -> Iterator[Roots]:
    """Lay out both sides in one fresh temporary folder, and remove them afterwards."""
    with worktree_folder(_repositories(pair)) as folder:
        stored: dict[records.Side, list[StoredFile]] = {name: [] for name in records.SIDES}
        warnings = [
            f"{name}: {lack}"
            for name in records.SIDES
            for lack in _lay_out(pair.side(name), folder / name, stored[name])
        ]
        for name in records.SIDES:
            python = pythons.get(name, sys.executable)
            made = _make_ready(pair.side(name), name, folder / name, generated, python, stored[name])
            warnings += [f"{name}: {sentence}" for sentence in made]
        yield Roots(base=folder / "base", head=folder / "head", warnings=tuple(warnings))


def lay_out_commit(top: Path, commit: records.Commit, root: Path, generated: Generated) -> tuple[str, ...]:
    """Check a commit of the repository at ``top`` out in a root, ready to be measured as a gate's head is."""
    side, called = Side(kind="commit", commit=commit, source=top), commit.sha[:_SHA_DIGITS]
    stored: list[StoredFile] = []
    sentences = list(_lay_out(side, root, stored))
    return (*sentences, *_make_ready(side, "head", root, generated, sys.executable, stored, called=called))


def _make_ready(
    side: Side,
    name: records.Side,
    root: Path,
    generated: Generated | None,
    python: str,
    stored: Sequence[StoredFile],
    *,
    called: str | None = None,
) -> Iterator[str]:
    """Give a root what is generated, and yield a sentence on what was used again and what is stood in for."""
    if side.kind != "directory":
        bring_versions(side.source, root)
    if generated is not None:
        folder = folder_in(side, generated.project)
        if not (root / folder).is_dir():
            raise SideNotMeasuredError(
                f"{called or name} has no folder {folder}, in which the project lies", side=name
            )
        bring_generated(generated.copy, key="copy", source=side.source, root=root, folder=folder)
        bring_generated(generated.link, key="link", source=side.source, root=root, folder=folder)
        if generated.prepare:
            commit = side.commit.sha if side.kind == "commit" else None
            again = prepare_root(
                generated.prepare,
                side=name,
                root=root,
                folder=folder,
                commit=commit,
                python=python,
                called=called,
            )
            if again is not None:
                yield again
    refuse_stored(stored, side=name, called=called or name)
    if side.kind != "directory":
        for path in write_missing_versions(root):
            yield f"{path} is written by a build that was not run, so it has version 0.0.0"


def _repositories(pair: SidePair) -> list[Path]:
    sides = [side for side in (pair.base, pair.head) if side.kind != "directory"]
    return list(dict.fromkeys(side.source for side in sides))


def _lay_out(side: Side, root: Path, stored: list[StoredFile]) -> Iterator[str]:
    if side.kind == "directory":
        copy_folder(side.source, root)
        return
    add_worktree(side.source, side.commit.sha, root)
    lacking, sentences = bring_filtered(side.source, root)
    stored += lacking
    yield from sentences
    if side.kind == "worktree":
        lay_working_tree(side.source, root)
    sha = side.commit.sha if side.kind == "commit" else None
    yield from _fill_submodules(side.source, root, sha, stored)


def project_roots(project: Project, pair: SidePair, laid: Roots) -> Roots:
    """Return the project's own root in each side."""
    base, head = (laid.root(side) / subfolder(project, pair, side) for side in ("base", "head"))
    return dataclasses.replace(laid, base=base, head=head)


def subfolder(project: Project, pair: SidePair, side: records.Side) -> Path:
    """Return where the project lies in a side, relative to the side's top."""
    return folder_in(pair.side(side), project.root)
