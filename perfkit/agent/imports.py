"""Points a process's imports at one side's tree, wherever the environment has the code under test."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import pkgutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import BuiltinImporter, FileFinder, FrozenImporter, PathFinder
from pathlib import Path
from typing import Any
from zipimport import zipimporter

from .provenance import (
    counterpart,
    lies_in_origin,
    loaded_own,
    namespace_of,
    own_modules,
    own_names,
    own_places,
    spec_places,
)

_STANDARD_FINDERS = (BuiltinImporter, FrozenImporter, PathFinder)


def point_imports(root: Path, origins: Sequence[Path]) -> None:
    """Make the names of ``root`` come from ``root``, in this process and from now on.

    Entries of ``sys.path`` inside an origin become their counterparts in ``root``, import finders that serve
    code of an origin become folders of ``root``, and all folders of ``root`` come first. Modules that are
    imported already stay: ``check_before_import`` names them.
    """
    entries = [_mapped(entry, root, origins) for entry in sys.path]
    sys.path[:] = [entry for entry in entries if entry is not None]
    # A folder that is found may hold more modules, which finders not seen so far may serve.
    while serving := _serving_finders(root, origins):
        _take_out([finder for finder, _ in serving])
        sys.path[:0] = [str(folder) for _, served in serving for folder in _folders(served, root, origins)]
    sys.path[:] = dict.fromkeys([*map(str, own_places(root)), *sys.path])
    _forget_places()


def preloadable(names: Sequence[str], roots: Sequence[Path], origins: Sequence[Path] = ()) -> tuple[str, ...]:
    """Return the modules of ``names`` whose top-level name no root has: others would hide its code."""
    own = frozenset[str]().union(*(own_names(root, origins) for root in roots))
    return tuple(name for name in names if name.partition(".")[0] not in own)


def preloaded_own(roots: Sequence[Path], origins: Sequence[Path] = ()) -> tuple[str, ...]:
    """Return the roots' own top-level names that this process has loaded already, sorted."""
    return tuple(sorted(frozenset[str]().union(*(loaded_own(root, origins) for root in roots))))


def _mapped(entry: str, root: Path, origins: Sequence[Path]) -> str | None:
    path = Path.cwd() / entry
    if not Path(entry).is_absolute() and not path.exists():
        return entry  # it is no folder, but a name that a path hook understands
    place = counterpart(path, root, origins)
    if place is None:
        return str(path)
    return str(place) if place.exists() else None


def _serving_finders(root: Path, origins: Sequence[Path]) -> list[tuple[Any, dict[str, Path]]]:
    parts = [place.relative_to(root) for place in own_places(root)]
    places = [tree / part for tree in (root, *origins) for part in parts]
    own = own_modules(place for place in places if place.is_dir())
    with _builds_held_back():
        answers = [(finder, _served(finder, own, root, origins)) for finder in _custom_finders()]
    return [(finder, served) for finder, served in answers if served]


def _forget_places() -> None:
    """Have the next import search for files anew, without importing anything now.

    Since Python 3.13 ``importlib.invalidate_caches`` imports a module, through the finders of the user.
    """
    sys.path_importer_cache.clear()
    for finder in sys.meta_path:
        # PathFinder's only cache was cleared just now.
        if finder is not PathFinder and hasattr(finder, "invalidate_caches"):
            finder.invalidate_caches()


def _take_out(finders: Sequence[Any]) -> None:
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in finders]
    sys.path[:] = [entry for entry in sys.path if _entry_finder(entry) not in finders]
    sys.path_hooks[:] = [hook for hook in sys.path_hooks if getattr(hook, "__self__", None) not in finders]


def _folders(served: Mapping[str, Path], root: Path, origins: Sequence[Path]) -> Iterator[Path]:
    for name, place in served.items():
        folder = _folder_on_path(name, place)
        found = counterpart(folder, root, origins) if folder is not None else None
        if found is not None and found.is_dir():
            yield found


def _custom_finders() -> list[Any]:
    entry_finders = [finder for entry in sys.path if (finder := _entry_finder(entry)) is not None]
    return [*(finder for finder in sys.meta_path if finder not in _STANDARD_FINDERS), *entry_finders]


def _entry_finder(entry: str) -> Any:  # noqa: ANN401 (a finder has a find_spec)
    finder = pkgutil.get_importer(entry)
    return None if isinstance(finder, FileFinder | zipimporter) else finder


def _served(finder: Any, own: Iterable[str], root: Path, origins: Sequence[Path]) -> dict[str, Path]:  # noqa: ANN401
    served: dict[str, Path] = {}
    for name in sorted({*own, *_declared(finder)}, key=lambda name: name.count(".")):
        above = itertools.accumulate(name.split("."), "{}.{}".format)
        if served.keys().isdisjoint(above):
            places = [place for place in _answer(finder, name) if lies_in_origin(place, root, origins)]
            served.update((name, place) for place in places[:1])
    return served


def _answer(finder: Any, name: str) -> list[Path]:  # noqa: ANN401
    try:
        spec = finder.find_spec(name, None)
        return list(spec_places(spec)) if spec is not None else []
    except Exception:  # noqa: BLE001 (a finder that cannot answer raises again when the name is imported)
        return []


def _declared(finder: Any) -> Iterator[str]:  # noqa: ANN401
    holders = (getattr(finder, "__dict__", {}), namespace_of(finder.__module__))
    # Looking at a module's lazy attributes may import what they stand for, and add names to the module.
    items = [item for holder in holders for item in holder.items()]
    tables = (table for key, table in items if not key.startswith("__"))
    for table in tables:
        if isinstance(table, dict | set | frozenset):
            yield from (name for name in table if isinstance(name, str) and _is_dotted_name(name))


def _is_dotted_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _folder_on_path(name: str, place: Path) -> Path | None:
    stem = inspect.getmodulename(place.name)
    target = place.parent if stem == "__init__" else place.with_name(stem) if stem else place
    depth = len(name.split("."))
    return target.parents[depth - 1] if ".".join(target.parts[-depth:]) == name else None


@contextlib.contextmanager
def _builds_held_back() -> Iterator[None]:
    run = subprocess.run
    subprocess.run = _pretend_to_run  # type: ignore[assignment]
    try:
        yield
    finally:
        subprocess.run = run


def _pretend_to_run(command: Any, *_: object, **__: object) -> subprocess.CompletedProcess[bytes]:  # noqa: ANN401
    return subprocess.CompletedProcess(command, 0, b"", b"")
