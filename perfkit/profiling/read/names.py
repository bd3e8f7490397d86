"""Names the files of a profile for people, and finds whose code they hold."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import PurePath, PurePosixPath, PureWindowsPath

from perfkit.model.readings import FunctionKind

_INSTALLED = ("site-packages", "dist-packages")
_STANDARD = re.compile(r"(python|pypy)\d\.\d+t?")
_LIBRARIES = ("lib", "lib64", "Lib")
_NOTEBOOK = "<ipython-input"
_KEPT_PARTS = 3


@dataclass(frozen=True, kw_only=True)
class CodeNames:
    """Distinguishes own code from libraries in a profile from any machine.

    ``own`` are packages or folders, by default all that is not installed; ``present`` are the top-level names
    of the user's project, from which perfkit's profiles name files. With a ``root`` only files below it are
    own.
    """

    root: str = ""
    own: tuple[str, ...] = ()
    present: frozenset[str] = frozenset()

    def kind(self, file: str, *, portable: bool = True) -> FunctionKind:
        """Return whose code a file holds; only a ``portable`` profile names libraries by relative paths."""
        if file.startswith("<"):
            return "own" if file.startswith(_NOTEBOOK) and not self.own else "library"
        path = _path(file)
        if self.root:
            return "own" if path.is_relative_to(self.root) and _library_tail(path) is None else "library"
        if self.own:
            return "own" if _within(path, self.own) else "library"
        if _library_tail(path) is not None:
            return "library"
        if path.is_absolute() or not portable:
            return "own"
        return "own" if len(path.parts) <= 1 or path.parts[0] in self.present else "library"

    def shown(self, file: str) -> str:
        """Return a path from its library on; a file that is not installed keeps its last three parts."""
        if file.startswith("<"):
            return printable(file)
        path = _path(printable(file))
        tail = _library_tail(path)
        if tail is not None:
            return tail
        if self.root and path.is_relative_to(self.root):
            return path.relative_to(self.root).as_posix()
        return "/".join(path.parts[1:][-_KEPT_PARTS:]) if path.is_absolute() else path.as_posix()


def is_absolute(file: str) -> bool:
    """Return whether a file is named by its whole path."""
    return not file.startswith("<") and _path(file).is_absolute()


def printable(name: str) -> str:
    """Return a name with a sign in place of each letter that steers a terminal or cannot be written."""
    if name.isprintable():
        return name
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)


def _path(file: str) -> PurePath:
    of_windows = re.match(r"[A-Za-z]:[\\/]", file) or ("\\" in file and "/" not in file)
    return PureWindowsPath(file) if of_windows else PurePosixPath(file)


def _within(path: PurePath, names: tuple[str, ...]) -> bool:
    parts = path.parts
    for name in names:
        wanted = tuple(part for part in re.split(r"[./\\]", name.removesuffix(".py")) if part)
        tails = (*parts[:-1], path.stem)
        if wanted and any(tails[at : at + len(wanted)] == wanted for at in range(len(tails))):
            return True
    return False


def _library_tail(path: PurePath) -> str | None:
    parts = path.parts
    for marker in _INSTALLED:
        if marker in parts:
            return "/".join(parts[len(parts) - parts[::-1].index(marker) :])
    for at, part in enumerate(parts[:-1]):
        if _STANDARD.fullmatch(part) and (at == 0 or parts[at - 1] in _LIBRARIES):
            return "/".join(parts[at + 1 :])
        # On Windows the standard library lies in a folder "Lib", and a project may have one, too.
        module = parts[at + 1].removesuffix(".py")
        if part in _LIBRARIES and isinstance(path, PureWindowsPath) and module in sys.stdlib_module_names:
            return "/".join(parts[at + 1 :])
    return None
