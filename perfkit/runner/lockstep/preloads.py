"""What is imported before the fork: the plugins of pytest, and what the benchmarks' files import."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.model import SIDES, Side
from perfkit.runner.agent import FIXTURE_NAME

# Reading the files of a suite should take no longer than importing what they import.
_MOST_FILES_READ = 100


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """The installed plugins of pytest: the modules that it loads, and the packages that come with them.

    pytest rewrites the assertions of all modules of these packages.
    """

    modules: tuple[str, ...]
    packages: tuple[str, ...]


@functools.cache
def plugins() -> Plugins:
    """Return the installed plugins of pytest."""
    found = [
        (distribution, entries)
        for distribution in importlib.metadata.distributions()
        if (entries := distribution.entry_points.select(group="pytest11"))
    ]
    modules = tuple(dict.fromkeys(entry.module for _, entries in found for entry in entries))
    files = (file for distribution, _ in found for file in distribution.files or ())
    # An editable installation lists no file of its packages.
    names = {file.parts[0].removesuffix(".py") for file in files if file.suffix == ".py"}
    names |= {module.partition(".")[0] for module in modules}
    return Plugins(modules=modules, packages=tuple(sorted(filter(str.isidentifier, names))))


def expected_imports(roots: Mapping[Side, Path], paths: Sequence[str]) -> tuple[str, ...]:
    """Return what the benchmarks' files of both sides import: collecting them will import it anyway.

    Only imports that stand by themselves at the top of a file count, as others may never happen. Modules of
    the tree itself are followed.
    """
    base, head = (_imports_of(roots[side], paths) for side in SIDES)
    return tuple(name for name in head if name in base)


def _imports_of(root: Path, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the modules that files which mention the fixture import, in order."""
    places = [root / path for path in paths]
    files = sorted(file for place in places for file in ([place] if place.is_file() else place.rglob("*.py")))
    waiting = [(file, FIXTURE_NAME.encode()) for file in files]
    found: dict[str, None] = {}
    read: set[Path] = set()
    looked_at = 0
    while waiting and looked_at < _MOST_FILES_READ:
        file, mentioned = waiting.pop(0)
        looked_at += 1
        with contextlib.suppress(OSError, SyntaxError, ValueError):
            text = file.read_bytes()
            if file in read or mentioned not in text:
                continue
            read.add(file)
            for name in _top_imports(ast.parse(text)):
                if own := _file_of(name, (file.parent, root)):
                    waiting.append((own, b""))
                else:
                    found[name] = None
    return tuple(found)


def _file_of(module: str, folders: Iterable[Path]) -> Path | None:
    """Return the file of a module in one of these folders, None where none has it."""
    place = module.replace(".", "/")
    files = (folder / f"{place}{end}" for folder in folders for end in (".py", "/__init__.py"))
    return next((file for file in files if file.is_file()), None)


def _top_imports(module: ast.Module) -> Iterator[str]:
    for statement in module.body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            yield statement.module
