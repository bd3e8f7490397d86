"""Functions of users: loaded from their places, their source, and whether their calls run anything."""

from __future__ import annotations

import asyncio
import builtins
import difflib
import functools
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from operator import attrgetter
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, GeneratorType
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


def check_is_run(function: Callable[..., object], result: Any) -> None:  # noqa: ANN401 (of any call)
    """Check that a benchmarked call ran what it made."""
    # `isinstance` would ask a result for its `__class__`, which may raise.
    kind = type(result)
    if issubclass(kind, CoroutineType):
        if inspect.getcoroutinestate(result) == inspect.CORO_CREATED:
            raise NeverRunError(function, "coroutine")
    elif issubclass(kind, GeneratorType):
        if inspect.getgeneratorstate(result) == inspect.GEN_CREATED:
            raise NeverRunError(function, "generator")
    elif issubclass(kind, AsyncGeneratorType):
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


_SCRIPT = ".py"


class TargetError(Exception):
    """A target does not exist; the message is one line on what to check."""


def is_script(place: str) -> bool:
    """Return whether a target is a script rather than a function, "package.module:name"."""
    return place.endswith(_SCRIPT)


def load_function(place: str) -> Callable[..., object]:
    """Return the function or method at "package.module:name"."""
    module_name, _, name = place.partition(":")
    module = _import(module_name, place)
    try:
        function = attrgetter(name)(module)
    except AttributeError:
        raise TargetError(
            f'"{place}": there is no "{name}" in {module_name}; {_nearest(name, module)}'
        ) from None
    if not callable(function):
        raise TargetError(f'"{place}" is a {type(function).__name__}, not a function')
    return function  # type: ignore[no-any-return]


def compile_script(path: Path) -> types.CodeType:
    """Return a script's code."""
    return compile(path.read_bytes(), str(path), "exec")


def script_call(code: types.CodeType, path: Path, *, spec: ModuleSpec | None = None) -> Callable[[], object]:
    """Return a function that runs a script's code as the interpreter would, in a new ``__main__``.

    With the ``spec`` of a module it runs as with ``python -m``.
    """
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    module.__dict__["__builtins__"] = builtins
    if spec is not None:
        module.__spec__, module.__loader__, module.__package__ = spec, spec.loader, spec.parent
    sys.modules["__main__"] = module
    return functools.partial(exec, code, module.__dict__)


def _import(name: str, place: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise TargetError(
            f'"{place}": there is no module "{error.name}" in the current folder, the project or the'
            " installed packages; check the spelling, or install it"
        ) from None


def _nearest(name: str, module: types.ModuleType) -> str:
    owner = functools.reduce(lambda found, part: getattr(found, part, found), name.split(".")[:-1], module)
    names = [known for known, value in _public(vars(owner)).items() if callable(value)]
    close = difflib.get_close_matches(name.rpartition(".")[2], names, n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"?' if close else "check the spelling"


def _public(names: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in names.items() if not name.startswith("__")}
