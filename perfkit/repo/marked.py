"""Which benchmarks of a project's files have a marker, by their source alone: nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def marked_benchmarks(files: Iterable[Path], root: Path, key: str) -> frozenset[str]:
    """Return the node ids, without parameters, of the tests that ``@pytest.mark.perfkit(key=True)`` marks.

    The marker may stand at a function, at its class, or in the module's ``pytestmark``. A file that cannot be
    read or parsed has none.
    """
    found: set[str] = set()
    for file in files:
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        name = file.relative_to(root).as_posix()
        found.update(f"{name}::{test}" for test in _marked(tree, key, everywhere=_marks_module(tree, key)))
    return frozenset(found)


def _marked(
    tree: ast.Module | ast.ClassDef, key: str, *, everywhere: bool, prefix: str = ""
) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, (_FUNCTIONS, ast.ClassDef)):
            here = everywhere or any(_sets(decorator, key) for decorator in node.decorator_list)
            if isinstance(node, ast.ClassDef):
                yield from _marked(node, key, everywhere=here, prefix=f"{prefix}{node.name}::")
            elif here:
                yield f"{prefix}{node.name}"


def _marks_module(tree: ast.Module, key: str) -> bool:
    """Tell whether ``pytestmark``, one marker or a list of some, has the key."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            marks = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
            return any(_sets(mark, key) for mark in marks)
    return False


def _sets(mark: ast.expr, key: str) -> bool:
    return (
        isinstance(mark, ast.Call)
        and isinstance(mark.func, ast.Attribute)
        and mark.func.attr == "perfkit"
        and any(
            word.arg == key and isinstance(word.value, ast.Constant) and word.value.value is True
            for word in mark.keywords
        )
    )
