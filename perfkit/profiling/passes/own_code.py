"""Which code is the user's own, and how files are named for people."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.runner.notebooks import without_cell

_HARNESS = Path(__file__).resolve().parent
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True, kw_only=True)
class OwnCode:
    """The user's own code: all files in ``packages``, and those under ``trees`` that are not installed."""

    root: Path
    packages: tuple[Path, ...] = ()
    trees: tuple[Path, ...] = ()

    def owns(self, file: str) -> bool:
        """Tell whether a file is the user's; perfkit's own frames never are."""
        path = Path(without_cell(file))
        if not path.is_absolute() or path.is_relative_to(_HARNESS):
            return False
        if any(path.is_relative_to(package) for package in self.packages):
            return True
        return any(path.is_relative_to(tree) for tree in self.trees) and not _is_installed(path)

    def shown(self, file: str) -> str:
        """Return a file's name for people: relative to the project's root, or from the library's name on."""
        path = Path(file)
        if not path.is_absolute():
            return file
        if is_harness(file):
            return f"perfkit/profiling/{path.name}"
        if path.is_relative_to(self.root) and not _is_installed(path):
            return path.relative_to(self.root).as_posix()
        return _library_name(path)


def find_own_code(names: Sequence[str], *, root: Path, script: Path | None) -> OwnCode:
    """Return the own code: the named packages, or without names all under ``root``; always the script."""
    packages = tuple(folder.resolve() for name in names for folder in _places(name, root))
    scripts = (script,) if script is not None else ()
    if packages:
        return OwnCode(root=root, packages=(*packages, *scripts))
    return OwnCode(root=root, packages=scripts, trees=(root, *(path.parent for path in scripts)))


def is_harness(file: str) -> bool:
    """Tell whether a file is part of perfkit's own measuring code."""
    return Path(file).is_relative_to(_HARNESS)


def _places(name: str, root: Path) -> Iterator[Path]:
    """Yield where a package or module lies: where it would be imported from, or at its usual places."""
    found = _module_places(name)
    relative = Path(*name.split("."))
    usual = (folder / relative for folder in (root, root / "src"))
    yield from found or (path for path in usual if path.exists())


def _module_places(name: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return [Path(place) for place in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.origin else []


def _is_installed(path: Path) -> bool:
    if any(part in _INSTALLED for part in path.parts) or path.is_relative_to(_standard_library()):
        return True
    return sys.prefix != sys.base_prefix and path.is_relative_to(sys.prefix)


def _standard_library() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _library_name(path: Path) -> str:
    for place in _INSTALLED:
        if place in path.parts:
            return Path(*path.parts[path.parts.index(place) + 1 :]).as_posix()
    library = _standard_library()
    return path.relative_to(library.parent).as_posix() if path.is_relative_to(library) else str(path)
