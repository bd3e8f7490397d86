"""Which functions differ between two versions of the code: by their syntax, not by their lines."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

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
        old, new = (ast.parse(path.read_bytes()) for path in (base, head))
    except (OSError, SyntaxError, ValueError):
        return None
    before, after = dict(_functions(old)), dict(_functions(new))
    if _rest(old) != _rest(new):
        return None
    return tuple(name for name, code in after.items() if before.get(name) != code)


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the functions of a module and its classes, nested ones as parts of their outermost one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", ast.dump(_undocumented(node))
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        else:
            yield from _functions(node, prefix)


def _rest(tree: ast.Module) -> str:
    """Return what is no function, import or docstring; it is changed in place."""
    for node in ast.walk(tree):
        for body in ("body", "orelse", "finalbody"):
            statements = getattr(node, body, None)
            if isinstance(statements, list):
                setattr(node, body, [one for one in statements if not _is_left_out(one)])
    return ast.dump(tree)


def _is_left_out(node: ast.AST) -> bool:
    functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.Import | ast.ImportFrom
    return isinstance(node, functions) or _is_text(node)


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _undocumented(
    node: ast.FunctionDef | ast.AsyncFunctionDef,
) -> ast.FunctionDef | ast.AsyncFunctionDef:
    body = [statement for statement in node.body if not _is_text(statement)]
    kind = type(node)
    return kind(**{**{name: getattr(node, name) for name in node._fields}, "body": body})
