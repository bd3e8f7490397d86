"""Folders as sides: which of their files are measured, what identifies them, and a copy of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from perfkit.errors import RepositoryError
from perfkit.model import Commit

_SHA_DIGITS = 40
# Folders that tools write, no part of anyone's code; pytest-benchmark keeps its runs in the first.
OUTPUTS = frozenset(
    {
        ".benchmarks",
        ".hypothesis",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        "__pycache__",
    }
)
_LEFT_OUT = OUTPUTS | {".git", ".venv", "node_modules", "venv"}
_LEFT_OUT_SUFFIX = ".egg-info"
# What an interpreter, a compiler or a build reads.
_SOURCES = (
    *(".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".f", ".f90", ".h", ".hh", ".hpp", ".hxx", ".rs"),
    *(".py", ".pyi", ".pyx", ".pxd", ".pxi", ".cfg", ".toml"),
)


def describe_folder(folder: Path) -> Commit:
    """Return what stands for a folder in place of a commit: a hash of the files that are measured.

    Raises:
        RepositoryError: a file in it cannot be read.
    """
    try:
        sha = hash_files(folder, _files(folder))[:_SHA_DIGITS]
    except OSError as error:
        raise RepositoryError(f"cannot read {error.filename}: {error.strerror}") from error
    return Commit(sha=sha, subject=f"directory {folder.name}", dirty=True)


def source_names(folder: Path) -> frozenset[str]:
    """Return the names of the files in a folder that a package is built of, generated ones included.

    Raises:
        OSError: a folder in it cannot be read.
    """
    return frozenset(name for name in _files(folder) if name.lower().endswith(_SOURCES))


def copy_folder(source: Path, target: Path) -> None:
    """Copy the files of a folder that are measured, links as links.

    Raises:
        RepositoryError: one of them cannot be copied, or the copy would lie in the folder itself.
    """
    if target.resolve().is_relative_to(source.resolve()):
        raise RepositoryError(f"{source} holds the temporary folder {target}; set TMPDIR to one outside it")
    try:
        shutil.copytree(source, target, symlinks=True, ignore=_left_out)
    except OSError as error:
        raise RepositoryError(f"cannot copy {source} to {target}: {error}") from error


def hash_files(root: Path, names: Iterable[str]) -> str:
    """Return 64 hex digits of the SHA-256 of files: their names relative to ``root``, kinds and contents."""
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(os.fsencode(f"{name}\0{_content(root / name)}\0"))
    return digest.hexdigest()


def _content(file: Path) -> str:
    if file.is_symlink():
        return f"link {file.readlink()}"
    with file.open("rb") as stream:
        content = hashlib.file_digest(stream, "sha256").hexdigest()
    return f"{'executable' if os.access(file, os.X_OK) else 'file'} {content}"


def _files(folder: Path) -> Iterator[str]:
    """Yield the names, relative to a folder, of the files and links in it that are measured."""
    for place, folders, files in os.walk(folder, onerror=_raise):
        left_out = _left_out(place, [*folders, *files])
        folders[:] = [name for name in folders if name not in left_out]
        links = [name for name in folders if Path(place, name).is_symlink()]
        kept = [name for name in files if name not in left_out]
        yield from (Path(place, name).relative_to(folder).as_posix() for name in [*kept, *links])


def _left_out(place: str, names: Sequence[str]) -> set[str]:
    """Return which entries of a folder are no part of the code: caches, environments, pipes and sockets."""
    return {
        name
        for name in names
        if name in _LEFT_OUT or name.endswith(_LEFT_OUT_SUFFIX) or _is_special(Path(place, name))
    }


def _is_special(path: Path) -> bool:
    mode = path.lstat().st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def _raise(error: OSError) -> None:
    raise error
