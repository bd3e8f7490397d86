"""Which functions differ between two versions of the code: by their syntax, not by their lines."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

# Reading more files would take longer than knowing their functions saves.
_MOST_READ = 60

ChangedCode = Mapping[str, tuple[str, ...] | None]


def changed_code(files: Iterable[str], base: Path, head: Path) -> ChangedCode:
    """Return the qualified names of head's functions that differ from base's, by file.

    ``files`` are relative to the folders ``base`` and ``head``. A file has None where more than functions
    differs (imports and docstrings aside), or where that is not known.
    """
    paths = [file for file in files if file.endswith(".py")]
    if len(paths) > _MOST_READ:
        return dict.fromkeys(paths)
    found = {file: _changed_functions(base / file, head / file) for file in paths}
    return {file: names for file, names in found.items() if names != ()}


def _changed_functions(base: Path, head: Path) -> tuple[str, ...] | None:
    try:
        return changed_functions(base.read_bytes(), head.read_bytes())
    except OSError:
        return None


def changed_functions(base: bytes, head: bytes) -> tuple[str, ...] | None:
    """Return the qualified names of functions of the text ``head`` that differ from those of ``base``.

    None where more than functions differs (imports and docstrings aside), or where that is not known.
    """
    try:
        old, new = (_WithoutTexts().visit(ast.parse(text)) for text in (base, head))
    except (SyntaxError, ValueError):
        return None
    before, after = dict(_functions(old)), dict(_functions(new))
    if ast.dump(_WithoutFunctions().visit(old)) != ast.dump(_WithoutFunctions().visit(new)):
        return None
    return tuple(name for name, code in after.items() if before.get(name) != code)


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the functions of a module and its classes, nested ones as parts of their outermost one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", ast.dump(node)
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        else:
            yield from _functions(node, prefix)


class _WithoutTexts(ast.NodeTransformer):
    """Takes docstrings out of a tree, and other texts that stand as statements."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node


class _WithoutFunctions(ast.NodeTransformer):
    """Takes functions and imports out of a tree."""

    def visit(self, node: ast.AST) -> Any:  # noqa: ANN401 (as the library has it)
        left_out = ast.FunctionDef | ast.AsyncFunctionDef | ast.Import | ast.ImportFrom
        return None if isinstance(node, left_out) else super().visit(node)
