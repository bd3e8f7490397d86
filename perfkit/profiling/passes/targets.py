"""What can be profiled, and the line of a program that ends a step."""

from __future__ import annotations

import ast
import builtins
import difflib
import os
import re
import shlex
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from perfkit.bounded import TEXT_BYTES
from perfkit.config import Project
from perfkit.errors import UsageError
from perfkit.runner.targets import is_notebook, read_notebook

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_CALL = "__perfkit_end_step__"
# With these a loop calls where a turn begins, and where all are over; other lines end a step by themselves.
TURN, OVER = "turn", "over"
# Given in place of a line, it has each batch of a loader end a step.
LOADER = "loader"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A training loop by its ``name`` (as typed) and its ``place``."""

    name: str
    place: str

    @property
    def is_script(self) -> bool:
        """Whether the target is a file that is run from its top, a script or a notebook, and no function."""
        return self.place.endswith(".py") or self.is_notebook

    @property
    def is_module(self) -> bool:
        """Whether the target is a module that is run as with ``python -m``."""
        return not self.is_script and ":" not in self.place

    @property
    def is_notebook(self) -> bool:
        """Whether the target is a notebook."""
        return is_notebook(self.place)

    @property
    def started_in(self) -> Path | None:
        """The folder that the target expects to be started in; None for the one that the person is in."""
        return Path(self.place).parent if self.is_notebook else None


def resolve_target(name: str, project: Project, *, folder: Path, any_kind: bool = False) -> Target:
    """Return the configured target, function or script (seen from ``folder``) called ``name``.

    With ``any_kind`` it may be a notebook, or a module, as well.
    """
    configured = project.config.targets.get(name)
    if configured is not None:
        return _place(name, configured, folder=project.root, project=project, any_kind=any_kind)
    return _place(name, name, folder=folder, project=project, any_kind=any_kind)


def target_on(target: Target, root: Path, *, project: Path) -> Target:
    """Return a target of a project as it is in another checkout, at ``root``."""
    if not target.is_script:
        return target
    script = Path(target.place)
    if not script.is_relative_to(project):
        raise UsageError(f"{script} lies outside of {project}: no commit has it")
    return replace(target, place=str(root / script.relative_to(project)))


def _place(name: str, place: str, *, folder: Path, project: Project, any_kind: bool) -> Target:
    if place.endswith(".py"):
        return Target(name=name, place=str(_file(folder / place, "script", ".py")))
    if _FUNCTION.fullmatch(place) and not _function_of_script(place):
        return Target(name=name, place=place)
    if is_notebook(place) and any_kind:
        path = _file(folder / place, "notebook", ".ipynb")
        read_notebook(path)
        return Target(name=name, place=str(path))
    if is_notebook(place):
        raise UsageError(_notebook(name))
    if any_kind and any(_is_module(place, below) for below in (folder, project.root, project.root / "src")):
        return Target(name=name, place=place)
    raise UsageError(_unknown(name, place, project))


def _is_module(name: str, folder: Path) -> bool:
    path = folder.joinpath(*name.split("."))
    return path.with_name(f"{path.name}.py").is_file() or (path / "__main__.py").is_file()


def _file(path: Path, kind: str, suffix: str) -> Path:
    if not path.is_file():
        raise UsageError(f"there is no {kind} {path}; give the path of an existing {suffix} file")
    if path.stat().st_size > TEXT_BYTES:
        raise UsageError(f"the {kind} {path} is larger than {TEXT_BYTES >> 20} MiB; is it damaged?")
    return path.resolve()


def _notebook(name: str) -> str:
    script = Path(name).with_suffix(".py").name
    return (
        f'"{name}" is a notebook, and a target is a script or a function; convert it with'
        f" `jupyter nbconvert --to script {shlex.quote(name)}` and profile {script}"
    )


def _unknown(name: str, place: str, project: Project) -> str:
    known = sorted(project.config.targets)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    nearest = _function_of_script(place) or (close[0] if close else None)
    hint = f'did you mean "{nearest}"?' if nearest else _known(known)
    return (
        f'unknown target "{name}"; {hint} A target is "package.module:function", a script such as'
        " train.py, or a name configured in pyproject.toml under [tool.perfkit.targets]"
    )


def _function_of_script(place: str) -> str | None:
    file, _, function = place.partition(":")
    if not file.endswith(".py") or not function:
        return None
    module = file.removesuffix(".py").removeprefix("./").removeprefix("src/").replace("/", ".")
    named = f"{module}:{function.lstrip(':')}"
    return named if _FUNCTION.fullmatch(named) else None


def _known(names: list[str]) -> str:
    return f"known names: {', '.join(names)}." if names else "no names are configured."


@dataclass(frozen=True, kw_only=True)
class StepLine:
    """A line of a Python file, whose path is absolute and without links; ``text`` is what stands there."""

    file: str
    line: int
    text: str

    @property
    def title(self) -> str:
        """The line for people."""
        return f"{Path(self.file).name}:{self.line} {self.text}"


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What ends a step: a line, with ``loader`` each batch, or else marks or optimizers.

    An earlier pass found the rest: the number of the optimizer that is ``last`` in a step, and whether some
    steps end only with the ``next_batch``.
    """

    line: StepLine | None = None
    loader: bool = False
    marked: bool = False
    last: int | None = None
    next_batch: bool = False


def find_step_line(place: str, folder: Path) -> StepLine:
    """Return the line that "FILE:LINE" names, seen from a folder."""
    file, _, number = place.rpartition(":")
    path = folder / file
    if not number.isdigit() or path.suffix != ".py" or not path.is_file():
        raise UsageError(
            f'--step-at takes an existing Python file and a line in it, such as train.py:12, found "{place}"'
        )
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    text = lines[int(number) - 1].strip() if 0 < int(number) <= len(lines) else ""
    found = StepLine(file=os.path.realpath(path), line=int(number), text=text)
    marked_code(found, path)
    return found


def marked_code(place: StepLine, path: Path) -> types.CodeType:
    """Return the code of the line's file, with a call each time that the line is reached."""
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    block, statement = _find(tree, place.line)
    if statement is None:
        raise UsageError(
            f"there is no statement at {path}:{place.line}; give --step-at the line of the training loop, or"
            " a line in it that runs once a step"
        )
    calls = ast.parse(f"{_CALL}('{TURN}')\n{_CALL}('{OVER}')\n{_CALL}()").body
    for node in (node for call in calls for node in ast.walk(call)):
        ast.copy_location(node, statement)
    if isinstance(statement, (ast.For, ast.AsyncFor, ast.While)):
        statement.body.insert(0, calls[0])
        block.insert(block.index(statement) + 1, calls[1])
    else:
        block.insert(block.index(statement), calls[2])
    return compile(tree, str(path), "exec", dont_inherit=True)


def loop_around(path: Path, line: int, first: int) -> StepLine | None:
    """Return the innermost loop around a line, of those behind the ``first`` line of its function."""
    try:
        data = path.read_bytes()
        tree = ast.parse(data)
    except (OSError, SyntaxError, ValueError):
        return None
    loops = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.AsyncFor, ast.While))]
    around = [one.lineno for one in loops if one.body[0].lineno <= line <= (one.body[-1].end_lineno or 0)]
    found = max(around, default=0)
    if found < first:
        return None
    text = data.decode("utf-8", "replace").splitlines()[found - 1].strip()
    return StepLine(file=os.path.realpath(path), line=found, text=text)


def call_at(place: StepLine, end_step: Callable[..., None]) -> None:
    """Have ``end_step`` called each time that the line is reached in this process, and not in its forks."""
    setattr(builtins, _CALL, end_step)
    os.register_at_fork(after_in_child=lambda: setattr(builtins, _CALL, lambda *_: None))
    get_code: Any = SourceFileLoader.get_code

    def get_marked(loader: SourceFileLoader, fullname: str) -> types.CodeType | None:
        if os.path.realpath(loader.path) == place.file:
            return marked_code(place, Path(loader.path))
        found: types.CodeType | None = get_code(loader, fullname)
        return found

    SourceFileLoader.get_code = get_marked  # type: ignore[method-assign,assignment]


def _find(tree: ast.Module, line: int) -> tuple[list[ast.stmt], ast.stmt | None]:
    block, found = tree.body, None
    for statements in _blocks(tree):
        for statement in statements:
            if statement.lineno <= line <= (statement.end_lineno or 0):
                block, found = statements, statement
                break
    body: list[ast.stmt] = getattr(found, "body", [])
    # Between the statements of a block there may be comments, or an "else".
    return block, None if body and line >= body[0].lineno else found


def _blocks(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value
