"""Functions whose lines are timed: importable ones, and those that a script defines itself."""

from __future__ import annotations

import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfkit.errors import UsageError
from perfkit.profiling.loading import load_function
from perfkit.profiling.targets import Target


class FunctionLines:
    """The functions named as "package.module:function", in a line profiler.

    A script's own functions come into being only while it runs: ``watch`` looks for them in its code, under
    the script's name ("train:step" for train.py) or "__main__".
    """

    def __init__(self, places: Sequence[str], target: Target) -> None:
        from line_profiler import LineProfiler

        self.profiler: Any = LineProfiler()
        self._places = tuple(places)
        self._script = Path(target.place) if target.is_script else None

    def watch(self, code: types.CodeType) -> types.CodeType:
        """Return the script's code with its named functions made known to the profiler."""
        for place in filter(self._is_in_script, self._places):
            code = self._watch_nested(code, place.partition(":")[2], place)
        return code

    def watch_imported(self) -> None:
        """Import the other named functions and make them known to the profiler.

        Raises:
            UsageError: there is no such module or function.
        """
        for place in self._places:
            if not self._is_in_script(place):
                self.profiler.add_callable(load_function(place))

    def _is_in_script(self, place: str) -> bool:
        return self._script is not None and place.partition(":")[0] in (self._script.stem, "__main__")

    def _watch_nested(self, code: types.CodeType, name: str, place: str) -> types.CodeType:
        changed = self._with_watched(code, name)
        if changed is code:
            raise UsageError(
                f'"{place}": the script {self._script} defines no function "{name}"; check the spelling'
            )
        return changed

    def _with_watched(self, code: types.CodeType, name: str) -> types.CodeType:
        """Return the code with the function replaced by the profiler's marked copy, or ``code`` itself."""
        constants = tuple(
            self._marked(constant, name) if isinstance(constant, types.CodeType) else constant
            for constant in code.co_consts
        )
        same = all(new is old for new, old in zip(constants, code.co_consts, strict=True))
        return code if same else code.replace(co_consts=constants)

    def _marked(self, code: types.CodeType, name: str) -> types.CodeType:
        if code.co_qualname != name:
            return self._with_watched(code, name)
        function = types.FunctionType(code, {}, closure=_empty_cells(code))
        self.profiler.add_function(function)
        return function.__code__


def _empty_cells(code: types.CodeType) -> tuple[types.CellType, ...] | None:
    return tuple(types.CellType() for _ in code.co_freevars) or None
