"""Lays out both sides next to each other, ready to be measured, and removes them afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from perfkit import records
from perfkit.repo.folders import copy_folder
from perfkit.repo.generated import bring_generated, bring_versions, write_missing_versions
from perfkit.repo.preparing import prepare_root
from perfkit.repo.sides import Side, SidePair
from perfkit.repo.submodules import fill_as_they_are, fill_recorded
from perfkit.repo.working_tree import lay_working_tree
from perfkit.repo.worktrees import add_worktree, worktree_folder


@dataclass(frozen=True, kw_only=True)
class Roots:
    """Where the sides lie: real paths of equal length. ``warnings`` are sentences on what they lack."""

    base: Path
    head: Path
    warnings: tuple[str, ...] = ()

    def root(self, name: records.Side) -> Path:
        """Return the root of the side with a name."""
        return self.base if name == "base" else self.head


@contextmanager
def checkouts(
    pair: SidePair,
    *,
    copy: Sequence[str] = (),
    link: Sequence[str] = (),
    prepare: str | None = None,
    pythons: Mapping[records.Side, str] = MappingProxyType({}),
) -> Iterator[Roots]:
    """Lay out both sides in one fresh temporary folder, and remove them afterwards.

    Args:
        pair: the sides; nothing is ever written where they come from.
        copy: glob patterns of generated files to copy from each side's source into its root.
        link: the same for files to link.
        prepare: a shell command to run in each root.
        pythons: the interpreters of the sides that are not measured by this process's own.

    Raises:
        RepositoryError: a side cannot be checked out or copied.
        ConfigError: a pattern matches nothing.
        NotMeasuredError: ``prepare`` failed.
    """
    with worktree_folder(_repositories(pair)) as folder:
        warnings = [
            f"{name}: {lack}" for name in records.SIDES for lack in _lay_out(pair.side(name), folder / name)
        ]
        for name in records.SIDES:
            source = pair.side(name).source
            if pair.side(name).kind != "directory":
                bring_versions(source, folder / name)
            bring_generated(copy, key="copy", source=source, root=folder / name)
            bring_generated(link, key="link", source=source, root=folder / name)
            if prepare:
                python = pythons.get(name, sys.executable)
                warnings += _prepared(prepare, pair.side(name), name, folder / name, python)
            if pair.side(name).kind != "directory":
                warnings += _stood_in(name, folder / name)
        yield Roots(base=folder / "base", head=folder / "head", warnings=tuple(warnings))


def _stood_in(name: records.Side, root: Path) -> Iterator[str]:
    """Write the version files that a root still lacks, and yield a sentence on each."""
    for path in write_missing_versions(root):
        yield f"{name}: {path} is written by a build that was not run, so it says version 0.0.0"


def _prepared(command: str, side: Side, name: records.Side, root: Path, python: str) -> Iterator[str]:
    """Make a root ready, and yield a sentence where that was done before."""
    commit = side.commit.sha if side.kind == "commit" else None
    again = prepare_root(command, side=name, root=root, commit=commit, python=python)
    if again is not None:
        yield again


def _repositories(pair: SidePair) -> list[Path]:
    sides = [side for side in (pair.base, pair.head) if side.kind != "directory"]
    return list(dict.fromkeys(side.source for side in sides))


def _lay_out(side: Side, root: Path) -> Iterator[str]:
    """Make the root of a side, and yield a sentence for each submodule that stays empty."""
    if side.kind == "directory":
        copy_folder(side.source, root)
        return
    add_worktree(side.source, side.commit.sha, root)
    if side.kind == "commit":
        yield from fill_recorded(side.source, root, side.commit.sha)
    else:
        lay_working_tree(side.source, root)
        yield from fill_as_they_are(side.source, root)
