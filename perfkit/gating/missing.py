"""What a checkout lacks: data that is linked from the user's tree, and hints on imports that fail."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from perfkit.model import SIDES, Side
from perfkit.repo.checkout import Roots
from perfkit.repo.environments import why_not_found
from perfkit.repo.files import is_code_file
from perfkit.repo.git import try_git
from perfkit.repo.prepare import build_command
from perfkit.repo.sides import SidePair
from perfkit.repo.working_tree import ignored_files
from perfkit.runner.lockstep.launch import Failure
from perfkit.units import listed

_FILE = re.compile(r"No such file or directory: '([^']+)'|(\S+) not found\.?$", re.MULTILINE)
_INPUT = re.compile(r"data|input", re.IGNORECASE)
_MOST_NAMED = 3
_LONGEST = 255
# Does something about failures, and returns whether they may be gone now.
Mend = Callable[[Sequence[Failure]], bool]
_MODULE = re.compile(r"No module named '([\w.]+)'")
_NAME = re.compile(r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'")
_UNFOUND = re.compile(r"No such file or directory: '([^']+)'")
_COMPILED = (".so", ".pyd", ".dylib")
# Compiled modules have such source files beside the place that they are imported from.
_SOURCES = (".pyx", ".c", ".cc", ".cpp", ".cu", ".f90")


def mend_nothing(failures: Sequence[Failure]) -> bool:  # noqa: ARG001 (the signature is that of a Mend)
    """Leave failures as they are."""
    return False


@dataclass(kw_only=True)
class MissingFiles:
    """Links what failed benchmarks did not find, where git ignores it or it lies beside the repository.

    ``source`` is the project in the user's tree and ``roots`` the same in both checkouts, which lie in
    ``folder``. Where an error names no file, paths of data are sought in a ``script`` and its ``arguments``.
    """

    source: Path
    roots: Roots
    folder: Path
    script: str | None = None
    arguments: Sequence[str] = ()
    linked: dict[str, Path] = field(default_factory=dict)

    def bring(self, failures: Sequence[Failure]) -> bool:
        """Link what these benchmarks did not find, and return whether there was anything."""
        before = len(self.linked)
        for failure in failures:
            named = [match[1] or match[2] for match in _FILE.finditer(failure.message)]
            for name in dict.fromkeys(named or self._literals()):
                self._link(self._relative(name, failure))
        return len(self.linked) > before

    def notes(self) -> Iterator[str]:
        """Yield a note on what was linked."""
        if self.linked:
            names = listed(sorted(self.linked), _MOST_NAMED)
            yield (
                f"{names}: no checkout has it, so both sides read and write that of your tree;"
                " `link` under [tool.perfkit] names it for good"
            )

    def _relative(self, name: str, failure: Failure) -> str:
        path, root = Path(name), self.roots.root(failure.side)
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else name

    def _literals(self) -> Iterator[str]:
        """Yield the paths of data in a target's arguments and script, where an error names none.

        Others are left alone: a target may write into them.
        """
        if self.script is None:
            return
        yield from filter(_INPUT.search, (one.rpartition("=")[2] for one in self.arguments))
        try:
            tree = ast.parse((self.source / self.script).read_text(encoding="utf-8"))
        except (OSError, ValueError, SyntaxError, RecursionError):
            return
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and len(text) < _LONGEST and _INPUT.search(text):
                yield text

    def _link(self, name: str) -> None:
        """Link a file, or the first folder on the way to it that the checkouts lack."""
        if not name.strip("./") or os.path.isabs(name) or "\0" in name or "\n" in name:  # noqa: PTH117
            return
        for place in [*reversed(Path(os.path.normpath(name)).parents), Path(os.path.normpath(name))]:
            if place.name in ("", ".."):
                continue
            targets = [Path(os.path.normpath(self.roots.root(side) / place)) for side in SIDES]
            original = self.source / place
            if not original.exists() or not all(target.is_relative_to(self.folder) for target in targets):
                return
            if not all(map(os.path.lexists, targets)):
                if self._is_data(place, original):
                    for target in targets:
                        if not os.path.lexists(target):
                            target.symlink_to(original.resolve())
                    self.linked[place.as_posix()] = original
                return

    def _is_data(self, place: Path, original: Path) -> bool:
        if original.is_file() and is_code_file(place.name):
            return False
        outside = place.parts[0] == ".." and not _is_in_repository(self.source, original)
        return outside or try_git(self.source, "check-ignore", "--quiet", "--", str(place)) is not None


def _is_in_repository(source: Path, original: Path) -> bool:
    top = try_git(source, "rev-parse", "--show-toplevel")
    return top is not None and original.resolve().is_relative_to(Path(top).resolve())


@dataclass(frozen=True, kw_only=True)
class Hint:
    """What to do; ``of_checkout`` means that only checkouts may lack the file."""

    words: str
    of_checkout: bool = False


@dataclass(frozen=True, kw_only=True)
class Hints:
    """Finds what to do about an import error on a side of a pair.

    ``folder`` is the project's place in the sides, ``prepared`` means that a `prepare` command is configured.
    """

    pair: SidePair
    folder: Path
    prepared: bool

    def of(self, message: str, side: Side) -> Hint | None:
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
            return Hint(words=words, of_checkout=True)
        return None

    def _build(self, compiled: Sequence[str], top: Path) -> Hint:
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
        return Hint(words=words, of_checkout=True)


def _wanted(message: str, top: Path) -> Iterator[str]:
    dotted = [match[1] for match in _MODULE.finditer(message)]
    # A folder of stubs is imported in the place of a compiled module of its name that is missing.
    for match in _NAME.finditer(message):
        dotted += [f"{match[2]}.{match[1]}", *([match[2]] if _is_stub(top, match[2]) else [])]
    yield from (name.replace(".", "/") for name in dotted if _is_own(name.partition(".")[0], top))
    yield from (match[1] for match in _UNFOUND.finditer(message) if not match[1].startswith(("/", "..")))


def _is_stub(top: Path, module: str) -> bool:
    places = (top, top / "src", *(place for place in top.iterdir() if place.is_dir()))
    folders = [folder for place in places if (folder := place.joinpath(*module.split("."))).is_dir()]
    return bool(folders) and not any((folder / "__init__.py").is_file() for folder in folders)


def _is_own(name: str, top: Path) -> bool:
    places = (top, top / "src", *(place for place in top.iterdir() if place.is_dir()))
    return any((place / name).is_dir() or any(place.glob(f"{name}.*")) for place in places)


def _patterns(wanted: Sequence[str]) -> Iterator[str]:
    for place in wanted:
        if PurePosixPath(place).suffix:
            yield f":(glob)**/{place}"
        else:
            yield from (f":(glob)**/{place}{ending}" for ending in (".py", "/__init__.py"))
            yield from (f":(glob)**/{place}*{ending}" for ending in _COMPILED)


def _has_sources(top: Path, place: str) -> bool:
    files = (top / folder / f"{place}{ending}" for folder in ("", "src") for ending in _SOURCES)
    return any(file.is_file() for file in files)


def _not_installed(message: str, top: Path) -> Hint | None:
    match = _MODULE.search(message)
    if match is None or _is_own(match[1].partition(".")[0], top):
        return None
    install = f"install what provides it here: `pip install {match[1].partition('.')[0]}`"
    return Hint(words=why_not_found(match[1]) or install)
