"""A target in the process that will run it: its import path and arguments, its loading, proof of its code."""

from __future__ import annotations

import builtins
import functools
import importlib.util
import inspect
import itertools
import json
import linecache
import os
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from importlib.abc import InspectLoader
from pathlib import Path
from typing import Any

from perfkit.agent import functions
from perfkit.agent.functions import TargetError, compile_script, is_script, script_call, source_of
from perfkit.agent.provenance import STARTED, foreign_modules
from perfkit.bounded import read_bytes
from perfkit.errors import UsageError
from perfkit.identity import source_version

SUFFIX = ".ipynb"
_FORMAT = 4
_CELL_NAME = re.compile(rf"^(.*{re.escape(SUFFIX)})\[cell \d+\]$", re.DOTALL)
# Line magics that only set up how a notebook shows or reloads things: a run from top to bottom needs none.
_SKIPPED = frozenset({"matplotlib", "load_ext", "reload_ext", "autoreload", "config", "precision"})
# Cell magics that run their cell as it is, and measure it or keep what it prints.
_TRANSPARENT = frozenset({"time", "capture"})
_ENVIRONMENT = frozenset({"env", "set_env"})
_ASSIGNMENT = re.compile(r"(\w+)\s*(?:=|\s)\s*(.+)")
_ASSIGNED_COMMAND = re.compile(r"[\w.,\s\[\]]+=\s*(?P<command>[!%].*)")
_MOST_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A code cell: its number among those that are not empty, and its text as plain Python."""

    number: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Notebook:
    """The code cells of a notebook, in their order; each has been compiled without an error."""

    path: Path
    cells: tuple[Cell, ...]

    @property
    def source(self) -> str:
        """All of its code, without what it printed and showed."""
        return "\n\n".join(cell.text for cell in self.cells)

    def file_of(self, cell: Cell) -> str:
        """Return the name that a cell has as a file, in profiles and tracebacks."""
        return f"{self.path}[cell {cell.number}]"


def is_notebook(place: str) -> bool:
    """Return whether a target is a notebook."""
    return place.endswith(SUFFIX)


def without_cell(file: str) -> str:
    """Return the notebook that a cell's file name stands for; any other file's name as it is."""
    found = _CELL_NAME.match(file)
    return found[1] if found else file


def read_notebook(path: Path) -> Notebook:
    """Return the code cells of a notebook, with its magics handled."""
    content = _decoded(path)
    metadata = _mapping(content.get("metadata"))
    kernel, info = _mapping(metadata.get("kernelspec")), _mapping(metadata.get("language_info"))
    language = kernel.get("language") or info.get("name")
    if isinstance(language, str) and not language.lower().startswith(("python", "ipython")):
        named = kernel.get("display_name") or language
        raise UsageError(
            f'{path} is a notebook for {language} (kernel "{named}"), and a profile runs Python; profile a'
            " notebook with a Python kernel"
        )
    cells = content["cells"]
    texts = [_text(cell) for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    numbered = enumerate(filter(str.strip, texts), start=1)
    found = tuple(Cell(number=number, text=_plain(text, number, path)) for number, text in numbered)
    if not found:
        raise UsageError(f"{path} has no code cells, so there is nothing to profile; save it with its code")
    return Notebook(path=path, cells=found)


def compile_notebook(notebook: Notebook) -> types.CodeType:
    """Return a code object whose constants are the code of the cells; only these are to be run.

    The text of each cell is made known to tracebacks, since no file has it.
    """
    codes = []
    for cell in notebook.cells:
        file = notebook.file_of(cell)
        linecache.cache[file] = (len(cell.text), None, cell.text.splitlines(keepends=True), file)
        codes.append(compile(cell.text, file, "exec"))
    return compile("", str(notebook.path), "exec").replace(co_consts=tuple(codes))


def notebook_call(code: types.CodeType) -> Callable[[], object]:
    """Return a function that runs the cells in one new ``__main__``, which has no file, as in a kernel."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    module = types.ModuleType("__main__")
    module.__dict__.update(__builtins__=builtins, display=print)
    sys.modules["__main__"] = module
    # ``exec`` returns None, so that ``any`` goes on to the end; a loop here would add a frame to profiles.
    return functools.partial(any, map(exec, code.co_consts, itertools.repeat(module.__dict__)))


def _decoded(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_bytes(path).decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"cannot read {path} ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is no notebook: it holds no JSON ({error}); save it anew from Jupyter"
        ) from error
    version = content.get("nbformat") if isinstance(content, dict) else None
    if not isinstance(version, int):
        raise UsageError(f'{path} is no notebook: its JSON has no "nbformat"; save it anew from Jupyter')
    if version != _FORMAT or not isinstance(content.get("cells"), list):
        raise UsageError(
            f"{path} is a notebook of format {version}, and one of format {_FORMAT} with cells is expected;"
            f" convert it with `jupyter nbconvert --to notebook --inplace {path.name}`"
        )
    return dict(content)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(cell: dict[str, Any]) -> str:
    source = cell.get("source")
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""


def _plain(text: str, number: int, path: Path) -> str:
    """Return a cell's text with its magics replaced line by line, so that line numbers stay."""
    lines = text.splitlines()
    _replace_cell_magic(lines, number, path)
    for _ in range(len(lines) + 1):
        plain = "\n".join(lines) + "\n"
        try:
            compile(plain, f"{path}[cell {number}]", "exec")
        except (SyntaxError, ValueError) as error:
            at = getattr(error, "lineno", None) or 1
            if not (0 < at <= len(lines) and _is_command(lines[at - 1].strip())):
                reason = error.msg if isinstance(error, SyntaxError) else str(error)
                raise UsageError(f"{path.name}, cell {number}: line {at} is no Python: {reason}") from error
            lines[at - 1] = _replaced(lines[at - 1], number, path)
        else:
            break
    return plain


def _is_command(line: str) -> bool:
    return line.startswith(("%", "!", "?")) or line.endswith("?") or bool(_ASSIGNED_COMMAND.match(line))


def _replace_cell_magic(lines: list[str], number: int, path: Path) -> None:
    first = next(place for place, line in enumerate(lines) if line.strip())
    line = lines[first].strip()
    if not line.startswith("%%"):
        return
    if line.removeprefix("%%").partition(" ")[0] in _TRANSPARENT:
        lines[first] = ""
        return
    raise UsageError(_refusal(line, number, path))


def _replaced(line: str, number: int, path: Path) -> str:
    stripped = line.strip()
    indent = line[: len(line) - len(line.lstrip())]
    name, _, rest = stripped.removeprefix("%").partition(" ")
    if stripped.startswith("%") and name in _SKIPPED:
        return f"{indent}pass"
    if stripped.startswith("%") and name == "time" and rest.strip():
        return f"{indent}{rest.strip()}"
    assigned = _ASSIGNMENT.fullmatch(rest.strip())
    if stripped.startswith("%") and name in _ENVIRONMENT and assigned:
        return f"{indent}__import__('os').environ[{assigned[1]!r}] = {assigned[2].strip()!r}"
    raise UsageError(_refusal(stripped, number, path))


def _refusal(line: str, number: int, path: Path) -> str:
    shown = line if len(line) <= _MOST_SHOWN else f"{line[: _MOST_SHOWN - 1]}…"
    return (
        f"{path.name}, cell {number}: `{shown}` is a command of IPython, and a profile runs plain Python;"
        " write it in Python, or take it out of the notebook"
    )


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
    """Import a function, or compile what runs as ``__main__``; ``change_code`` may replace its code."""
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
    if ":" not in place:
        return _load_module(place, change_code)
    function = load_function(place)
    _check_no_parameters(function, place)
    return LoadedTarget(call=function, version=function_version(function))


def _load_module(name: str, change_code: CodeChange) -> LoadedTarget:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        return _load_module(f"{name}.__main__", change_code)
    if spec is None or spec.origin is None or not isinstance(spec.loader, InspectLoader):
        raise UsageError(f'there is no module "{name}" to run; check the spelling, or name a script')
    code, path = spec.loader.get_code(name), Path(spec.origin)
    if code is None:
        raise UsageError(f'"{name}" is no module of Python code; name a script')
    sys.argv[0] = spec.origin
    return LoadedTarget(
        call=script_call(change_code(code), path, spec=spec),
        version=source_version(path.read_bytes().decode(errors="replace")),
    )


def load_function(place: str) -> Callable[..., object]:
    """Return the function or method at "package.module:name"."""
    try:
        return functions.load_function(place)
    except TargetError as error:
        raise UsageError(str(error)) from None


def function_version(function: Callable[..., object]) -> str:
    """Return 16 hex digits of the hash of a function's own source.

    Decorators belong to the source; what they refer to does not, so a new parameter value begins a new
    benchmark and leaves the others their history.
    """
    return source_version(source_of(function))


def is_hydra_main(function: Callable[..., object]) -> bool:
    """Return whether ``@hydra.main`` composes a function's argument from the command line."""
    return getattr(function, "__globals__", {}).get("__name__") == _HYDRA_MAIN


def wrong_code(root: Path) -> str | None:
    """Return a message if this process has loaded other code than that of ``root``, None if it has not."""
    foreign = foreign_modules(root, made_since=STARTED)
    if not foreign:
        return None
    name, file = min(foreign.items())
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
