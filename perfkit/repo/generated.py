"""Generated and ignored files, which a fresh checkout lacks: copied or linked from the user's own."""

from __future__ import annotations

import os
import posixpath
import shutil
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath, PurePosixPath
from typing import Literal

from perfkit.bounded import read_text
from perfkit.errors import ConfigError, RepositoryError
from perfkit.repo.commands import list_with_git
from perfkit.repo.placing import place_inside

Key = Literal["copy", "link"]
# Where known tools that write a version into a file as they build name that file, below [tool].
_VERSION_KEYS = (
    ("setuptools_scm", "write_to"),
    ("setuptools_scm", "version_file"),
    ("hatch", "build", "hooks", "vcs", "version-file"),
    ("pdm", "version", "write_to"),
    ("versioneer", "versionfile_source"),
)

_STAND_IN = """# Written by perfkit, since the build that writes this file was not run.
__version__ = version = "0.0.0"
__version_tuple__ = version_tuple = (0, 0, 0)
"""


def bring_generated(patterns: Sequence[str], *, key: Key, source: Path, root: Path, folder: PurePath) -> None:
    """Copy or link what the patterns match in ``source`` into a root, whose own files stay as they are.

    Patterns start from a ``folder`` in both, and may lead to another one.

    Raises:
        ConfigError: a pattern matches nothing, or leads out of the repository.
        RepositoryError: a file cannot be copied.
    """
    make = _copy if key == "copy" else _link
    for pattern in patterns:
        for match in _matches(pattern, key, source, folder):
            name = match.relative_to(source).as_posix()
            try:
                _bring(match, place_inside(root, name), make)
            except OSError as error:
                raise RepositoryError(f"tool.perfkit.{key}: cannot {key} {match}: {error}") from error


def bring_versions(source: Path, root: Path) -> None:
    """Copy the version files that a build writes, where pyproject.toml names one that git does not keep.

    A root's own files stay as they are.

    Raises:
        RepositoryError: a file cannot be copied.
    """
    for path in version_files(source):
        if (source / path).is_file():
            try:
                _bring(source / path, place_inside(root, path), _copy)
            except OSError as error:
                raise RepositoryError(f"cannot copy {source / path}: {error}") from error


def write_missing_versions(root: Path) -> Iterator[str]:
    """Write the version files that only a build would write, and yield the path of each.

    Code that imports its version could not be imported without one.
    """
    for described in list_with_git(root, "ls-files", "-z", "--", ":(glob)**/pyproject.toml"):
        for name in _version_files(root / described):
            path = os.path.normpath(Path(described).parent / name)
            target = place_inside(root, path)
            if target.suffix == ".py" and target.parent.is_dir() and not os.path.lexists(target):
                target.write_text(_STAND_IN, encoding="utf-8")
                yield path


def version_files(root: Path) -> tuple[str, ...]:
    """Return the version files that a build writes below ``root`` and that git does not keep."""
    found = []
    for described in list_with_git(root, "ls-files", "-z", "--", ":(glob)**/pyproject.toml"):
        for name in _version_files(root / described):
            path = os.path.normpath(Path(described).parent / name)
            if not list_with_git(root, "ls-files", "-z", "--", f":(literal){path}"):
                found.append(path)
    return tuple(found)


def _version_files(file: Path) -> Iterator[str]:
    """Yield what setuptools_scm, hatch-vcs, PDM and versioneer write, relative to the folder of the file."""
    try:
        document = tomllib.loads(read_text(file))
    except (OSError, ValueError, RecursionError):
        return
    for *tables, key in _VERSION_KEYS:
        table: object = document.get("tool", {})
        for name in tables:
            table = table.get(name) if isinstance(table, dict) else None
        written = table.get(key) if isinstance(table, dict) else None
        if isinstance(table, dict) and isinstance(written, str):
            # What setuptools_scm calls its root is what this path starts from.
            yield str(Path(str(table.get("root", "")), written)) if key == "write_to" else written


def _matches(pattern: str, key: Key, source: Path, folder: PurePath) -> list[Path]:
    from_top = posixpath.normpath(posixpath.join(folder.as_posix(), pattern))
    parts = PurePosixPath(from_top).parts
    if not PurePosixPath(pattern).parts or not parts or parts[0] in {"/", ".."}:
        raise ConfigError(f'tool.perfkit.{key}: "{pattern}" must be a path below the root of the repository')
    try:
        found = _found(from_top, parts, source)
    except ValueError as error:
        raise ConfigError(f'tool.perfkit.{key}: "{pattern}" is not a glob pattern: {error}') from error
    if not found:
        raise ConfigError(
            f'tool.perfkit.{key}: "{pattern}" matches nothing in {source / folder};'
            " build it or drop the pattern"
        )
    # A folder is brought whole, so what lies below it needs no turn of its own.
    return sorted(match for match in found if found.isdisjoint(match.parents))


def _found(pattern: str, parts: Sequence[str], source: Path) -> set[Path]:
    if any("**" in part and part != "**" for part in parts):
        # Since Python 3.13 it would be taken for "*".
        raise ValueError('"**" can only be an entire path component')
    return {match for match in source.glob(pattern) if ".git" not in match.relative_to(source).parts}


def _bring(source: Path, target: Path, make: Callable[[Path, Path], None]) -> None:
    """Make what is missing: all of a folder, or, in a folder that is there, what is missing in it."""
    if not os.path.lexists(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        make(source, target)
    elif source.is_dir() and target.is_dir() and not target.is_symlink():
        for child in sorted(source.iterdir()):
            _bring(child, target / child.name, make)


def _copy(source: Path, target: Path) -> None:
    if source.is_symlink():
        _link(source, target)
    elif source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


def _link(source: Path, target: Path) -> None:
    target.symlink_to(source.resolve())
