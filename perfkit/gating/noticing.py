"""Finds code of a change that asks whether it is measured."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from perfkit.repo.code_units import MODULE, Units, differing_functions

# Modules and variables that only a measured process has, in whole words; a hook of pytest is an attribute.
_WORD = re.compile(r"\.?[\w*-]*(pytest|perfkit)[\w.*-]*|CI|GITHUB_ACTIONS|\.git", re.IGNORECASE)
_MODULES = frozenset({"pytest", "_pytest", "pytest_benchmark", "perfkit"})
# By these code finds out from where it is called.
_STACK = frozenset({
    "_getframe", "_current_frames", "currentframe", "extract_stack", "walk_stack", "format_stack",
    "print_stack", "stack",
})  # fmt: skip
_PROCESS = _STACK - {"stack"} | {"gettrace", "getprofile", "getppid", "isatty", "ttyname"}
_DOTTED = frozenset({"gc.isenabled", "inspect.stack", "sys.monitoring", "sys.stdin"})
_MAY_ASK = re.compile(
    rf"pytest|perfkit|\bCI\b|GITHUB_ACTIONS|\.git\b|isenabled|monitoring|stdin|{'|'.join(_STACK | _PROCESS)}",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A unit of head's code (a function, or MODULE) that asks for something, and the words for that."""

    file: str
    unit: str
    text: str


def may_notice(text: bytes | None) -> bool:
    """Return whether a file may ask whether it is measured, before it is parsed."""
    return text is not None and _MAY_ASK.search(text.decode(errors="replace")) is not None


def notices_of(file: str, base: Units, head: Units) -> Iterator[Notice]:
    """Yield where head's version of a file asks whether it is measured, by what base's does not mention."""
    every: list[Any] = [*(one for found in base.functions.values() for one in found), *base.items]
    known = {word for one in every for word, _ in _asked(one.node)}
    # Code that looks at the stack may do so in another way.
    looks = any(word.rpartition(".")[2] in _STACK for word in known)
    differing, old = differing_functions(base, head), Counter(base.items)
    units: list[tuple[str, ast.AST]] = [
        *((name, one.node) for name in differing for one in head.functions.get(name, ())),
        *((MODULE, one.node) for one in head.items if not old[one] and one.kind != "function"),
    ]
    for unit, node in units:
        for word, line in _asked(node):
            if word not in known and not (looks and word.rpartition(".")[2] in _STACK):
                yield Notice(file=file, unit=unit, text=f"{file}:{line} asks for {word}")


def first_notice(notices: Iterable[Notice]) -> str | None:
    """Return the words of the first of some notices, and how many others there are."""
    texts = [*dict.fromkeys(one.text for one in notices)]
    more = f" and {len(texts) - 1} more" if len(texts) > 1 else ""
    return f"{texts[0]}{more}" if texts else None


def _asked(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the words by which code may ask whether it is measured, each with its line."""
    for one in ast.walk(node):
        line = getattr(one, "lineno", 0)
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and _WORD.fullmatch(one.value):
            yield one.value, line
        elif isinstance(one, ast.Attribute):
            dotted = f"{one.value.id if isinstance(one.value, ast.Name) else ''}.{one.attr}"
            if one.attr in _PROCESS or dotted in _DOTTED:
                yield dotted.lstrip("."), line
        elif isinstance(one, ast.Name) and (one.id in _PROCESS or one.id in _MODULES):
            yield one.id, line
        elif isinstance(one, ast.alias | ast.ImportFrom):
            name = (one.name if isinstance(one, ast.alias) else one.module) or ""
            if name in _PROCESS or name.partition(".")[0] in _MODULES:
                yield name, line
