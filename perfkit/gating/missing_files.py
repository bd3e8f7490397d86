"""Data that a benchmark reads and that no checkout has: linked from the user's own tree, on both sides."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfkit.model import SIDES
from perfkit.repo.checkout import Roots
from perfkit.repo.commands import try_git
from perfkit.repo.working_tree import is_code_file
from perfkit.runner.lockstep.launch import Failure
from perfkit.units import listed

_FILE = re.compile(r"No such file or directory: '([^']+)'|(\S+) not found\.?$", re.MULTILINE)
_INPUT = re.compile(r"data|input", re.IGNORECASE)
_MOST_NAMED = 3
_LONGEST = 255


# Does something about failures, and tells whether they may be gone now.
Mend = Callable[[Sequence[Failure]], bool]


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
        """Link what these benchmarks did not find, and tell whether there was anything."""
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
        """Return a path as seen from the project, where it lies in a checkout."""
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
        """Tell whether git ignores a file or folder that is no code, or it lies beside the repository."""
        if original.is_file() and is_code_file(place.name):
            return False
        outside = place.parts[0] == ".." and not _is_in_repository(self.source, original)
        return outside or try_git(self.source, "check-ignore", "--quiet", "--", str(place)) is not None


def _is_in_repository(source: Path, original: Path) -> bool:
    top = try_git(source, "rev-parse", "--show-toplevel")
    return top is not None and original.resolve().is_relative_to(Path(top).resolve())
