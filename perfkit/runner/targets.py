"""A target in the process that will run it: its import path and arguments, its loading, proof of its code."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perfkit.errors import UsageError
from perfkit.identity import source_version
from perfkit.runner.agent import loading
from perfkit.runner.agent.functions import source_of
from perfkit.runner.agent.loading import TargetError, compile_script, is_script, script_call
from perfkit.runner.agent.provenance import STARTED, foreign_modules
from perfkit.runner.notebooks import compile_notebook, is_notebook, notebook_call, read_notebook

CodeChange = Callable[[types.CodeType], types.CodeType]
_HYDRA_MAIN = "hydra.main"


@dataclass(frozen=True, kw_only=True)
class LoadedTarget:
    """A target ready to be called without arguments; ``version`` hashes its own source."""

    call: Callable[[], object]
    version: str


def prepare_process(place: str, arguments: tuple[str, ...], *, root: Path) -> None:
    """Make ``sys.path`` and ``sys.argv`` what the target would find if it were run by hand."""
    sources = [root / "src"] if (root / "src").is_dir() else []
    is_file = is_script(place) or is_notebook(place)
    places = [Path(place).parent] if is_file else [Path.cwd(), root, *sources]
    sys.path[:0] = dict.fromkeys(map(str, places))
    sys.argv = [place, *arguments]


def load_target(place: str, *, change_code: CodeChange) -> LoadedTarget:
    """Import the target's module or compile its script or notebook, whose code ``change_code`` may replace.

    Raises:
        UsageError: there is no such module or function, the function cannot be called without arguments, or
            the notebook is not plain Python.
    """
    if is_notebook(place):
        notebook = read_notebook(Path(place))
        return LoadedTarget(
            call=notebook_call(change_code(compile_notebook(notebook))),
            version=source_version(notebook.source),
        )
    if is_script(place):
        path = Path(place)
        return LoadedTarget(
            call=script_call(change_code(compile_script(path)), path),
            version=source_version(path.read_bytes().decode(errors="replace")),
        )
    function = load_function(place)
    _check_no_parameters(function, place)
    return LoadedTarget(call=function, version=function_version(function))


def load_function(place: str) -> Callable[..., object]:
    """Return the function or method at "package.module:name".

    Raises:
        UsageError: there is no such module, or nothing callable of this name in it.
    """
    try:
        return loading.load_function(place)
    except TargetError as error:
        raise UsageError(str(error)) from None


def function_version(function: Callable[..., object]) -> str:
    """Return 16 hex digits of the hash of a function's own source.

    Decorators belong to the source; what they refer to does not, so a new parameter value begins a new
    benchmark and leaves the others their history.
    """
    return source_version(source_of(function))


def is_hydra_main(function: Callable[..., object]) -> bool:
    """Tell whether a function is under ``@hydra.main``, which composes its argument from the command line."""
    return getattr(function, "__globals__", {}).get("__name__") == _HYDRA_MAIN


def wrong_code(root: Path) -> str | None:
    """Return a message if this process has loaded other code than that of ``root``, None if it has not."""
    strangers = foreign_modules(root, made_since=STARTED)
    if not strangers:
        return None
    name, file = min(strangers.items())
    return (
        f'the code measured is not that of {root}: "{name}" was imported from {file};'
        " uninstall that copy, or install the project in its place (pip install -e)"
    )


def _check_no_parameters(function: Callable[..., object], place: str) -> None:
    if is_hydra_main(function):
        return
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
