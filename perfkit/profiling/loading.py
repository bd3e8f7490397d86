"""From a target's name to something that can be called, in the process that will run it."""

from __future__ import annotations

import builtins
import difflib
import functools
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from perfkit.errors import UsageError
from perfkit.identity import function_version, source_version
from perfkit.profiling.targets import Target

CodeChange = Callable[[types.CodeType], types.CodeType]


@dataclass(frozen=True, kw_only=True)
class LoadedTarget:
    """A target ready to be called without arguments; ``version`` hashes its own source."""

    call: Callable[[], object]
    version: str


def prepare_process(target: Target, arguments: tuple[str, ...], *, root: Path) -> None:
    """Make ``sys.path`` and ``sys.argv`` what the target would find if it were run by hand."""
    script = Path(target.place) if target.is_script else None
    sources = [root / "src"] if (root / "src").is_dir() else []
    places = [script.parent] if script else [Path.cwd(), root, *sources]
    sys.path[:0] = dict.fromkeys(map(str, places))
    sys.argv = [str(script) if script else target.place, *arguments]


def load_target(target: Target, *, change_code: CodeChange) -> LoadedTarget:
    """Import the target's module or compile its script; ``change_code`` has a last look at a script's code.

    Raises:
        UsageError: there is no such module or function, or the function cannot be called without arguments.
    """
    return _load_script(Path(target.place), change_code) if target.is_script else _load_call(target.place)


def load_function(place: str) -> Callable[..., object]:
    """Return the function or method at "package.module:name".

    Raises:
        UsageError: there is no such module, or nothing callable of this name in it.
    """
    module_name, _, name = place.partition(":")
    module = _import(module_name, place)
    try:
        function = attrgetter(name)(module)
    except AttributeError:
        raise UsageError(
            f'"{place}": there is no "{name}" in {module_name}; {_nearest(name, module)}'
        ) from None
    if not callable(function):
        raise UsageError(f'"{place}" is a {type(function).__name__}, not a function')
    return function  # type: ignore[no-any-return]


def _load_call(place: str) -> LoadedTarget:
    function = load_function(place)
    _check_no_parameters(function, place)
    return LoadedTarget(call=function, version=function_version(function))


def _load_script(path: Path, change_code: CodeChange) -> LoadedTarget:
    source = path.read_bytes()
    code = change_code(compile(source, str(path), "exec"))
    namespace = _fresh_main(path)
    return LoadedTarget(
        call=functools.partial(exec, code, namespace), version=source_version(source.decode(errors="replace"))
    )


def _fresh_main(path: Path) -> dict[str, object]:
    """Return the namespace of a new ``__main__``, as the interpreter gives one to a script."""
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    return module.__dict__


def _import(name: str, place: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
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


def _check_no_parameters(function: Callable[..., object], place: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind()
    except TypeError:
        raise UsageError(
            f'"{place}" needs arguments {signature}, and a target is called without any;'
            " name a function that needs none and calls it"
        ) from None
