"""Finds the line of the tree's own code that an operator or call comes from."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType

from ..provenance import own_part

_HERE = f"{Path(__file__).parent}{os.sep}"
_ALLOWANCE = "# perfkit: sync allowed"


class Places:
    """Names lines and functions: own ones by their path in the tree, "src/losses.py:41", others in short."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # The keys are file names: to hash a code object, with all its constants, takes ten times as long.
        self._own: dict[str, str | None] = {}
        # A key is a code object's identity and an instruction in it. The object is kept, so that no other one
        # can get its identity.
        self._lines: dict[tuple[int, int], tuple[str, CodeType]] = {}
        self._allowed: dict[str, bool] = {}

    def line_of(self, frame: FrameType | None) -> str:
        """Return the innermost own line from a frame outward, "" where there is none."""
        own = self._own
        while frame is not None:
            name = frame.f_code.co_filename
            try:
                file = own[name]
            except KeyError:
                file = own[name] = self._own_file(name)
            if file is not None:
                return self._line(frame, file)
            frame = frame.f_back
        return ""

    def innermost(self, stack: Sequence[tuple[str, int]]) -> str:
        """Return the innermost own line of a stack whose outermost comes first, "" where there is none."""
        found = ((self._own_file(name), line) for name, line in reversed(stack))
        return next((f"{file}:{line}" for file, line in found if file is not None), "")

    def is_own(self, file: str) -> bool:
        """Return whether a file is the tree's own."""
        return bool(file) and self._own_file(file) is not None

    def shortened(self, file: str, line: int) -> str:
        """Return a line of a library by its path in a folder of libraries."""
        return f"{_short(file)}:{line}"

    def function_of(self, code: CodeType) -> str:
        """Return where a function begins, in own code or in a library."""
        file = self._own_file(code.co_filename) or _short(code.co_filename)
        return f"{file}:{code.co_firstlineno}"

    def allows_sync(self, line: str) -> bool:
        """Return whether an own line carries the comment that allows it to wait for a device."""
        if line not in self._allowed:
            file, _, number = line.rpartition(":")
            text = linecache.getline(str(self._root / file), int(number)) if file else ""
            self._allowed[line] = _ALLOWANCE in text
        return self._allowed[line]

    def _line(self, frame: FrameType, file: str) -> str:
        code = frame.f_code
        key = (id(code), frame.f_lasti)
        known = self._lines.get(key)
        if known is None:
            known = self._lines[key] = (f"{file}:{frame.f_lineno}", code)
        return known[0]

    def _own_file(self, name: str) -> str | None:
        if name.startswith(("<", _HERE)):
            return None
        part = own_part(Path(name), self._root)
        return part.as_posix() if part is not None else None


def is_ours(code: CodeType) -> bool:
    """Return whether a function belongs to the counting itself."""
    return code.co_filename.startswith(_HERE)


def _short(name: str) -> str:
    folders = [f"{entry.rstrip(os.sep)}{os.sep}" for entry in sys.path if entry]
    longest = max((folder for folder in folders if name.startswith(folder)), key=len, default="")
    return Path(name.removeprefix(longest)).as_posix()
