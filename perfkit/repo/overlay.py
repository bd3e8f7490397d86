"""Lays head's benchmark files over a checkout, so that both sides run the same benchmarks, and undoes it."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from perfkit.errors import RepositoryError
from perfkit.repo.placing import place_inside, put_file, remove_file


def overlay(files: Sequence[PurePosixPath | str], *, source: Path, target: Path) -> tuple[str, ...]:
    """Lay files of ``source`` over ``target`` at their own relative paths.

    Returns:
        Those whose content is not what was there, new ones included; ``restore`` undoes each.

    Raises:
        RepositoryError: a file cannot be read or put there.
    """
    return tuple(name for name in map(str, files) if _lay(name, source, target))


def has_replaced(target: Path, file: PurePosixPath | str) -> bool:
    """Tell whether an overlaid file took the place of another one."""
    own = _aside(target, "own") / str(file)
    return own.is_symlink() or own.is_file()


def restore(target: Path, file: PurePosixPath | str) -> None:
    """Bring back what an overlay replaced; a file that was not there before goes away."""
    name = str(file)
    path = place_inside(target, name)
    own = _aside(target, "own") / name
    if own.is_symlink() or own.is_file():
        put_file(own, target, name)
    elif (_aside(target, "absent") / name).is_file():
        remove_file(target, name)
    _forget_bytecode(path)


def _lay(name: str, source: Path, target: Path) -> bool:
    path = place_inside(target, name)
    try:
        if path.is_file() and path.read_bytes() == (source / name).read_bytes():
            return False
    except OSError as error:
        raise RepositoryError(f"cannot read {error.filename}: {error.strerror}") from error
    _keep(name, path, target)
    # A link of head's, copied as a link, would lead to base's own file.
    put_file(source / name, target, name, follow_links=True)
    _forget_bytecode(path)
    return True


def _keep(name: str, path: Path, target: Path) -> None:
    """Keep what a file held before the first overlay, or remember that there was no file."""
    own, absent = _aside(target, "own"), _aside(target, "absent")
    if (own / name).is_symlink() or (own / name).exists() or (absent / name).exists():
        return
    if path.is_symlink() or path.exists():
        put_file(path, own, name)
    else:
        (absent / name).parent.mkdir(parents=True, exist_ok=True)
        (absent / name).touch()


def _aside(target: Path, kind: str) -> Path:
    """Return a folder beside the checkout, where neither pytest nor an import finds its files."""
    return target.parent / f"{target.name}.aside" / kind


def _forget_bytecode(path: Path) -> None:
    """Remove cached bytecode: Python compares only seconds and size, which two versions may share."""
    for cached in (path.parent / "__pycache__").glob(f"{glob.escape(path.stem)}.*.pyc"):
        cached.unlink()
