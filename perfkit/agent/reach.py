"""Guesses which functions of a tree a benchmark may run, from the names in its code, without running it.

Names that functions use lead to the functions, classes and modules that they stand for. All methods of such a
class are included, so that more may be found than is ever called. What is only looked up at run time, by a
string for example, is not found. The guess decides which benchmark is measured first, and nothing else.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType


def reached_functions(starts: Iterable[object], root: Path) -> frozenset[tuple[str, str]]:
    """Return the functions that ``starts`` may lead to: file, relative to ``root``, and qualified name.

    A function that another one defines counts as that one.
    """
    top = f"{root}/"
    seen: set[int] = set()
    found: set[tuple[str, str]] = set()
    waiting = [*starts]
    while waiting:
        value = waiting.pop()
        for function in _functions_of(value, top):
            file = function.__code__.co_filename
            if id(function) not in seen and file.startswith(top):
                seen.add(id(function))
                found.add((file.removeprefix(top), function.__qualname__.partition(".<locals>")[0]))
                waiting += _named_by(function, top)
    return frozenset(found)


def may_run(changed: Mapping[str, Sequence[str] | None], reached: Iterable[tuple[str, str]]) -> bool:
    """Tell whether a ``reached`` function has ``changed``; a file with None has changed as a whole."""
    return any(file in changed and _names_it(changed[file], name) for file, name in reached)


def _functions_of(value: object, top: str) -> Iterator[FunctionType]:
    """Yield the functions that calling or using a value may run."""
    if isinstance(value, functools.partial):
        value = value.func
    value = inspect.unwrap(value) if callable(value) else value
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if inspect.ismethod(value):
        value = value.__func__
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, property):
        yield from (part for part in (value.fget, value.fset) if isinstance(part, FunctionType))
    else:
        kind = value if isinstance(value, type) else type(value)
        for base in kind.__mro__:
            if (_file_of(sys.modules.get(base.__module__)) or "").startswith(top):
                for member in vars(base).values():
                    if isinstance(member, (FunctionType, staticmethod, classmethod, property)):
                        yield from _functions_of(member, top)


def _named_by(function: FunctionType, top: str) -> Iterator[object]:
    """Yield what the names in a function's code stand for: globals, closures, attributes of own modules."""
    names = frozenset(_names(function.__code__))
    scope: Mapping[str, object] = function.__globals__
    # Modules that a function imports itself are not among its globals.
    values = [scope.get(name, sys.modules.get(name)) for name in names]
    values += [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    modules: set[str] = set()
    while values:
        value = values.pop()
        if not isinstance(value, ModuleType):
            yield value
        elif value.__name__ not in modules and (_file_of(value) or "").startswith(top):
            modules.add(value.__name__)
            values += [vars(value)[name] for name in names if name in vars(value)]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_filled(cell: object) -> bool:
    try:
        return cell.cell_contents is not None  # type: ignore[attr-defined]
    except ValueError:
        return False


def _names_it(names: Sequence[str] | None, name: str) -> bool:
    return names is None or name in names


def _file_of(module: ModuleType | None) -> str | None:
    return getattr(module, "__file__", None)
