"""The line of a program that ends a step: a call in front of it tells of each time that it is reached."""

from __future__ import annotations

import ast
import builtins
import os
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from perfkit.errors import UsageError

_CALL = "__perfkit_end_step__"


@dataclass(frozen=True, kw_only=True)
class StepLine:
    """A line of a Python file, whose path is absolute and without links; ``text`` is what stands there."""

    file: str
    line: int
    text: str


def find_step_line(place: str, folder: Path) -> StepLine:
    """Return the line that "FILE:LINE" names, seen from a folder.

    Raises:
        UsageError: there is no such file, or no statement at that line.
    """
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
    """Return the code of the line's file, which tells of each time that the line is reached.

    In the line of a loop that is each of its turns.

    Raises:
        UsageError: the file is not valid Python, or there is no statement at that line.
    """
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
    call = ast.parse(f"{_CALL}()").body[0]
    for node in ast.walk(call):
        ast.copy_location(node, statement)
    if isinstance(statement, (ast.For, ast.AsyncFor, ast.While)):
        statement.body.insert(0, call)
    else:
        block.insert(block.index(statement), call)
    return compile(tree, str(path), "exec", dont_inherit=True)


def training_loop(path: Path) -> int | None:
    """Return the line of the innermost loop with a backward pass in a file, None where there is none."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    loops = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.AsyncFor, ast.While))]
    # An outer node is walked before those in it.
    return next((loop.lineno for loop in reversed(loops) if any(map(_is_backward, ast.walk(loop)))), None)


def _is_backward(node: ast.AST) -> bool:
    """Tell whether a node names ``backward``, or ``grad`` of torch.autograd."""
    if not isinstance(node, ast.Attribute):
        return False
    return node.attr == "backward" or (node.attr == "grad" and ast.unparse(node.value).endswith("autograd"))


def call_at(place: StepLine, end_step: Callable[[], None]) -> None:
    """Have ``end_step`` called each time that the line is reached in this process, and not in its forks.

    The modules that are imported from now on are searched for the line.
    """
    setattr(builtins, _CALL, end_step)
    os.register_at_fork(after_in_child=lambda: setattr(builtins, _CALL, lambda: None))
    get_code: Any = SourceFileLoader.get_code

    def get_marked(loader: SourceFileLoader, fullname: str) -> types.CodeType | None:
        if os.path.realpath(loader.path) == place.file:
            return marked_code(place, Path(loader.path))
        found: types.CodeType | None = get_code(loader, fullname)
        return found

    SourceFileLoader.get_code = get_marked  # type: ignore[method-assign,assignment]


def _find(tree: ast.Module, line: int) -> tuple[list[ast.stmt], ast.stmt | None]:
    """Return the innermost statement that has the line in it, and the block that it stands in."""
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
    """Yield the lists of statements in a module, an outer one before those in it."""
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value
