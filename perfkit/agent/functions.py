"""Functions of benchmarks: their source, whether their calls run anything, and what they may call."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any


def source_of(function: Callable[..., object]) -> str:
    """Return a function's source, decorators included; its qualified name where there is none."""
    try:
        return inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError, ValueError):
        return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', function)}"


# The name of pytest-asyncio, which gives tests an event loop; pytest-aiohttp loads it too.
LOOP_PLUGIN = "asyncio"


class NeverRunError(TypeError):
    """A benchmarked call made a coroutine or a generator and ran none of it."""

    def __init__(self, function: Callable[..., object], kind: str) -> None:
        name = getattr(function, "__name__", type(function).__name__)
        call = "f()" if name == "<lambda>" else f"{name}()"
        run = {
            "coroutine": f"asyncio.run({call})",
            "generator": f"list({call})",
            "async generator": f"asyncio.run(consume({call})), with a consume() that has its `async for`",
        }[kind]
        article = "an" if kind.startswith("a") else "a"
        super().__init__(
            f"{article} {kind} was made and never run, so only its making was timed:"
            f" run it inside the benchmark, as in benchmark(lambda: {run})"
        )


def check_is_run(function: Callable[..., object], result: object) -> None:
    """Check that a benchmarked call ran what it made."""
    if inspect.iscoroutine(result):
        if inspect.getcoroutinestate(result) == inspect.CORO_CREATED:
            raise NeverRunError(function, "coroutine")
    elif inspect.isgenerator(result):
        if inspect.getgeneratorstate(result) == inspect.GEN_CREATED:
            raise NeverRunError(function, "generator")
    elif inspect.isasyncgen(result):
        raise NeverRunError(function, "async generator")


def runs_coroutines(function: Callable[..., Any], *, has_loop: bool) -> Callable[..., object]:
    """Return a coroutine function as one whose calls run the coroutine, and all others as they are."""
    kinds = {
        "coroutine": inspect.iscoroutinefunction,
        "generator": inspect.isgeneratorfunction,
        "async generator": inspect.isasyncgenfunction,
    }
    called = type(function).__call__
    kind = next((name for name, applies in kinds.items() if applies(function) or applies(called)), None)
    if kind is None:
        return function
    if kind != "coroutine" or not has_loop or _is_in_loop():
        raise NeverRunError(function, kind)
    loop = _present_loop()
    return lambda *args, **kwargs: loop.run_until_complete(function(*args, **kwargs))


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _present_loop() -> asyncio.AbstractEventLoop:
    try:
        loop = asyncio.get_event_loop_policy().get_event_loop()
    except RuntimeError:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    return asyncio.new_event_loop() if loop.is_closed() else loop


_Node = FunctionType | type


class CallGraph:
    """The functions of a tree, and which of them lead to which: each is looked at once, for all benchmarks.

    Functions that lead to one another lead to the same ones. These groups are found by Tarjan's algorithm
    (1972), and each has what it reaches as the bits of a number.
    """

    def __init__(self, root: Path) -> None:
        self._top = f"{root}/"
        self._names: list[tuple[str, str]] = []
        # By identity, since a class may compare equal to another one; what is known is kept, so that no
        # identity is given twice.
        self._reached: dict[int, int] = {}
        self._kept: list[_Node] = []

    def reached_by(self, starts: Iterable[object]) -> frozenset[tuple[str, str]]:
        """Return the functions that ``starts`` may lead to: file, relative to the root, and qualified name.

        A function that another one defines counts as that one.
        """
        bits = 0
        for start in starts:
            for node in _nodes_of(start, self._top):
                if id(node) not in self._reached:
                    self._follow(node)
                bits |= self._reached[id(node)]
        return self._named(bits)

    def _follow(self, start: _Node) -> None:
        """Find what a node reaches, and all nodes on the way."""
        numbers, lowest = {id(start): 0}, {id(start): 0}
        group, path = [start], [(start, 0, self._next(start))]
        while path:
            node, place, following = path[-1]
            number = id(node)
            for other in following:
                if id(other) in self._reached:
                    continue
                if id(other) not in numbers:
                    numbers[id(other)] = lowest[id(other)] = len(numbers)
                    path.append((other, len(group), self._next(other)))
                    group.append(other)
                    break
                lowest[number] = min(lowest[number], numbers[id(other)])
            else:
                path.pop()
                if path:
                    above = id(path[-1][0])
                    lowest[above] = min(lowest[above], lowest[number])
                if lowest[number] == numbers[number]:
                    self._close(group[place:])
                    del group[place:]

    def _close(self, group: Sequence[_Node]) -> None:
        bits = 0
        for node in group:
            if isinstance(node, FunctionType):
                bits |= 1 << len(self._names)
                file = node.__code__.co_filename.removeprefix(self._top)
                self._names.append((file, node.__qualname__.partition(".<locals>")[0]))
            for other in self._next(node):
                bits |= self._reached.get(id(other), 0)
        self._reached.update((id(node), bits) for node in group)
        self._kept += group

    def _next(self, node: _Node) -> Iterator[_Node]:
        if isinstance(node, FunctionType):
            values: Iterable[object] = _named_by(node, self._top)
        else:
            values = _members_of(node, self._top)
        for value in values:
            yield from _nodes_of(value, self._top)

    @functools.cache  # noqa: B019 (a process collects once, and ends)
    def _named(self, bits: int) -> frozenset[tuple[str, str]]:
        return frozenset(name for number, name in enumerate(self._names) if bits >> number & 1)


def may_run(changed: Mapping[str, Sequence[str] | None], reached: Iterable[tuple[str, str]]) -> bool:
    """Return whether a ``reached`` function has ``changed``; a file with None has changed as a whole."""
    return any(file in changed and _names_it(changed[file], name) for file, name in reached)


def _nodes_of(value: object, top: str) -> Iterator[_Node]:
    try:
        yield from [*_looked_at(value, top)]
    except Exception:  # noqa: BLE001 (an object may make its attributes up, or refuse to show them)
        yield from _own_class(type(value), top)


def _looked_at(value: object, top: str) -> Iterator[_Node]:
    if isinstance(value, functools.partial):
        value = value.func
    value = inspect.unwrap(value) if callable(value) else value
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if inspect.ismethod(value):
        value = value.__func__
    parts: Iterable[object] = (value.fget, value.fset) if isinstance(value, property) else (value,)
    for part in parts:
        if isinstance(part, FunctionType):
            if part.__code__.co_filename.startswith(top):
                yield part
        elif part is value:
            yield from _own_class(part if isinstance(part, type) else type(part), top)


def _own_class(kind: type, top: str) -> Iterator[type]:
    if any(_is_in(base, top) for base in kind.__mro__):
        yield kind


def _members_of(kind: type, top: str) -> Iterator[object]:
    for base in kind.__mro__:
        if _is_in(base, top):
            for member in vars(base).values():
                if issubclass(type(member), (FunctionType, staticmethod, classmethod, property)):
                    yield member


def _is_in(base: type, top: str) -> bool:
    return (_file_of(sys.modules.get(base.__module__)) or "").startswith(top)


def _named_by(function: FunctionType, top: str) -> Iterator[object]:
    names = frozenset(_names(function.__code__))
    scope: Mapping[str, object] = function.__globals__
    # Modules that a function imports itself are not among its globals.
    values: list[Any] = [scope.get(name, sys.modules.get(name)) for name in names]
    values += [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    modules: set[str] = set()
    while values:
        value = values.pop()
        # By its type, for an object may pretend any class, or refuse to name one.
        if not issubclass(type(value), ModuleType):
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


def _file_of(module: object) -> str | None:
    try:
        file = getattr(module, "__file__", None)
    except Exception:  # noqa: BLE001 (what stands for a module may import it now, or make its attributes up)
        return None
    return file if isinstance(file, str) else None
