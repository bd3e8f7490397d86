"""Loads a target from its place, as a function without arguments, in the process that will run it."""

from __future__ import annotations

import builtins
import difflib
import functools
import importlib
import sys
import types
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path

_SCRIPT = ".py"


class TargetError(Exception):
    """A target does not exist; the message is one line on what to check."""


def is_script(place: str) -> bool:
    """Return whether a target is a script rather than a function, "package.module:name"."""
    return place.endswith(_SCRIPT)


def load_function(place: str) -> Callable[..., object]:
    """Return the function or method at "package.module:name"."""
    module_name, _, name = place.partition(":")
    module = _import(module_name, place)
    try:
        function = attrgetter(name)(module)
    except AttributeError:
        raise TargetError(
            f'"{place}": there is no "{name}" in {module_name}; {_nearest(name, module)}'
        ) from None
    if not callable(function):
        raise TargetError(f'"{place}" is a {type(function).__name__}, not a function')
    return function  # type: ignore[no-any-return]


def compile_script(path: Path) -> types.CodeType:
    """Return a script's code."""
    return compile(path.read_bytes(), str(path), "exec")


def script_call(code: types.CodeType, path: Path) -> Callable[[], object]:
    """Return a function that runs a script's code as the interpreter would, in a new ``__main__``."""
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    return functools.partial(exec, code, module.__dict__)


def _import(name: str, place: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise TargetError(
            f'"{place}": there is no module "{error.name}" in the current folder, the project or the'
            " installed packages; check the spelling, or install it"
        ) from None


def _nearest(name: str, module: types.ModuleType) -> str:
    owner = functools.reduce(lambda found, part: getattr(found, part, found), name.split(".")[:-1], module)
    names = [known for known, value in _public(vars(owner)).items() if callable(value)]
    close = difflib.get_close_matches(name.rpartition(".")[2], names, n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"?' if close else "check the spelling"


def _public(names: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in names.items() if not name.startswith("__")}
