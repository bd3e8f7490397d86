"""Lays out both sides next to each other, ready to be measured, and removes them afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from perfkit import model as records
from perfkit.config import Project
from perfkit.errors import SideNotMeasuredError
from perfkit.repo.filtered import StoredFile, bring_filtered, refuse_stored
from perfkit.repo.folders import copy_folder
from perfkit.repo.generated import bring_generated, bring_versions, write_missing_versions
from perfkit.repo.preparing import prepare_root
from perfkit.repo.sides import Side, SidePair, folder_in
from perfkit.repo.submodules import fill_as_they_are, fill_recorded
from perfkit.repo.working_tree import lay_working_tree
from perfkit.repo.worktrees import add_worktree, worktree_folder

_SHA_DIGITS = 10


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
        """Return what a project's configuration says."""
        config = project.config
        return cls(project=project.root, copy=config.copy, link=config.link, prepare=config.prepare)


@contextmanager
def checkouts(
    pair: SidePair,
    *,
    generated: Generated | None = None,
    pythons: Mapping[records.Side, str] = MappingProxyType({}),
) -> Iterator[Roots]:
    """Lay out both sides in one fresh temporary folder, and remove them afterwards.

    Args:
        pair: the sides; nothing is ever written where they come from.
        generated: what each root gets beside what its source keeps.
        pythons: the interpreters of the sides that are not measured by this process's own.

    Raises:
        RepositoryError: a side cannot be checked out or copied.
        ConfigError: a pattern matches nothing.
        NotMeasuredError: ``prepare`` failed, or the content of a file that git stores through a filter,
            such as that of Git LFS, is not to be had.
    """
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
    """Check a commit of the repository at ``top`` out in a root, ready to be measured as a gate's head is.

    Returns:
        Sentences on what it lacks.

    Raises:
        RepositoryError: it cannot be checked out.
        ConfigError: a pattern matches nothing.
        NotMeasuredError: it has no folder of the project, or the command that makes it ready failed.
    """
    side, told = Side(kind="commit", commit=commit, source=top), commit.sha[:_SHA_DIGITS]
    stored: list[StoredFile] = []
    sentences = list(_lay_out(side, root, stored))
    return (*sentences, *_make_ready(side, "head", root, generated, sys.executable, stored, told=told))


def _make_ready(
    side: Side,
    name: records.Side,
    root: Path,
    generated: Generated | None,
    python: str,
    stored: Sequence[StoredFile],
    *,
    told: str | None = None,
) -> Iterator[str]:
    """Give a root what is generated, and yield a sentence on what was used again and what is stood in for.

    A command that makes it ready has to write the files in ``stored``. ``told`` is what an error calls the
    root, by default its side.
    """
    if side.kind != "directory":
        bring_versions(side.source, root)
    if generated is not None:
        folder = folder_in(side, generated.project)
        if not (root / folder).is_dir():
            raise SideNotMeasuredError(
                f"{told or name} has no folder {folder}, in which the project lies", side=name
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
                told=told,
            )
            if again is not None:
                yield again
    refuse_stored(stored, side=name, told=told or name)
    if side.kind != "directory":
        for path in write_missing_versions(root):
            yield f"{path} is written by a build that was not run, so it says version 0.0.0"


def _repositories(pair: SidePair) -> list[Path]:
    sides = [side for side in (pair.base, pair.head) if side.kind != "directory"]
    return list(dict.fromkeys(side.source for side in sides))


def _lay_out(side: Side, root: Path, stored: list[StoredFile]) -> Iterator[str]:
    """Make the root of a side, and yield a sentence for each submodule that stays empty.

    Files that git stores through a filter and whose content was found nowhere are appended to ``stored``.
    """
    if side.kind == "directory":
        copy_folder(side.source, root)
        return
    add_worktree(side.source, side.commit.sha, root)
    lacking, sentences = bring_filtered(side.source, root)
    stored += lacking
    yield from sentences
    if side.kind == "commit":
        yield from fill_recorded(side.source, root, side.commit.sha, stored)
    else:
        lay_working_tree(side.source, root)
        yield from fill_as_they_are(side.source, root, stored)
