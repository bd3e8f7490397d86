"""Single files put into a checked-out side and taken out of it, never outside of it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from perfkit.errors import RepositoryError


def place_inside(root: Path, name: str) -> Path:
    """Return where a file with a name relative to a root belongs.

    Raises:
        RepositoryError: the name, or a link on the way, leads out of the root.
    """
    path = root / name
    if not path.parent.resolve().is_relative_to(root.resolve()):
        raise RepositoryError(
            f"{name} leads out of the checkout in {root}; replace the link on its way by a folder"
        )
    return path


def put_file(source: Path, root: Path, name: str, *, follow_links: bool = False) -> None:
    """Copy a file or link to its place in a root, over whatever file is there.

    Raises:
        RepositoryError: it cannot be put there.
    """
    path = place_inside(root, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # An existing link must go first: writing to it would change the file it leads to.
        path.unlink(missing_ok=True)
        shutil.copy2(source, path, follow_symlinks=follow_links)
    except OSError as error:
        raise RepositoryError(f"cannot copy {source} to {path}: {error.strerror}") from error


def remove_file(root: Path, name: str) -> None:
    """Remove a file and the folders it leaves empty: Python would import those as packages."""
    path = place_inside(root, name)
    path.unlink(missing_ok=True)
    for folder in path.relative_to(root).parents[:-1]:
        with contextlib.suppress(OSError):
            (root / folder).rmdir()
