"""Advice on a file that a side cannot import: what is missing there, and how to install, copy or build it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from perfkit.model import Side
from perfkit.repo.installed import why_not_found
from perfkit.repo.preparing import build_command
from perfkit.repo.sides import SidePair
from perfkit.repo.working_tree import ignored_files
from perfkit.units import listed

_MODULE = re.compile(r"No module named '([\w.]+)'")
_NAME = re.compile(r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'")
_FILE = re.compile(r"No such file or directory: '([^']+)'")
_COMPILED = (".so", ".pyd", ".dylib")
# Compiled modules have such source files beside the place that they are imported from.
_SOURCES = (".pyx", ".c", ".cc", ".cpp", ".cu", ".f90")
_MOST_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Cure:
    """What to do; ``of_checkout`` says that the user's tree may have the file and checkouts alone lack it."""

    words: str
    of_checkout: bool = False


@dataclass(frozen=True, kw_only=True)
class Cures:
    """Finds what to do about an import error on a side of a pair.

    ``folder`` is the project's place in the sides, ``prepared`` says that a `prepare` command is configured.
    """

    pair: SidePair
    folder: Path
    prepared: bool

    def of(self, message: str, side: Side) -> Cure | None:
        """Return what to do about an error that an import raised on a side, None where that is not known."""
        found = self.pair.side(side)
        top = found.source / self.folder
        wanted = list(_wanted(message, top))
        if not wanted:
            return _not_installed(message, top)
        ignored = [] if found.kind == "directory" else ignored_files(top, _patterns(wanted))
        compiled = [name for name in ignored if name.endswith(_COMPILED)]
        if compiled or any(_has_sources(top, place) for place in wanted):
            return self._build(compiled, top)
        if ignored:
            setting = json.dumps(ignored[:_MOST_NAMED])
            words = (
                f"{listed(ignored, _MOST_NAMED)} {'is' if len(ignored) == 1 else 'are'} ignored by git, so"
                f" that checkouts lack what your tree has: set copy = {setting} under [tool.perfkit]"
            )
            return Cure(words=words, of_checkout=True)
        return None

    def _build(self, compiled: Sequence[str], top: Path) -> Cure:
        """Return the advice to build a compiled module in each checkout."""
        named = f"{listed(compiled, _MOST_NAMED)}, which git ignores, " if compiled else "it "
        if self.prepared:
            words = (
                f"{named}has to be compiled, and tool.perfkit.prepare did not: check that it builds in place"
            )
        else:
            command = build_command(top)
            words = (
                f"{named}has to be compiled in each checkout: set prepare = {json.dumps(command)}"
                " under [tool.perfkit], or another command that builds in place"
                if command
                else f"{named}has to be in each checkout: set prepare under [tool.perfkit] to a command that"
                " brings it"
            )
        return Cure(words=words, of_checkout=True)


def _wanted(message: str, top: Path) -> Iterator[str]:
    """Yield the paths of what an import did not find, relative to where modules are imported from."""
    dotted = [match[1] for match in _MODULE.finditer(message)]
    # A folder of stubs is imported in the place of a compiled module of its name that is missing.
    for match in _NAME.finditer(message):
        dotted += [f"{match[2]}.{match[1]}", *([match[2]] if _is_stub(top, match[2]) else [])]
    yield from (name.replace(".", "/") for name in dotted if _is_own(name.partition(".")[0], top))
    yield from (match[1] for match in _FILE.finditer(message) if not match[1].startswith(("/", "..")))


def _is_stub(top: Path, module: str) -> bool:
    """Tell whether a dotted name is a folder of the project's that holds no code."""
    places = (top, top / "src", *(place for place in top.iterdir() if place.is_dir()))
    folders = [folder for place in places if (folder := place.joinpath(*module.split("."))).is_dir()]
    return bool(folders) and not any((folder / "__init__.py").is_file() for folder in folders)


def _is_own(name: str, top: Path) -> bool:
    """Tell whether a top-level name is the project's own: in its top folder, or in a folder of that."""
    places = (top, top / "src", *(place for place in top.iterdir() if place.is_dir()))
    return any((place / name).is_dir() or any(place.glob(f"{name}.*")) for place in places)


def _patterns(wanted: Sequence[str]) -> Iterator[str]:
    """Yield git's patterns for the files that a module or file may be."""
    for place in wanted:
        if PurePosixPath(place).suffix:
            yield f":(glob)**/{place}"
        else:
            yield from (f":(glob)**/{place}{ending}" for ending in (".py", "/__init__.py"))
            yield from (f":(glob)**/{place}*{ending}" for ending in _COMPILED)


def _has_sources(top: Path, place: str) -> bool:
    files = (top / folder / f"{place}{ending}" for folder in ("", "src") for ending in _SOURCES)
    return any(file.is_file() for file in files)


def _not_installed(message: str, top: Path) -> Cure | None:
    match = _MODULE.search(message)
    if match is None or _is_own(match[1].partition(".")[0], top):
        return None
    install = f"install what provides it here: `pip install {match[1].partition('.')[0]}`"
    return Cure(words=why_not_found(match[1]) or install)
