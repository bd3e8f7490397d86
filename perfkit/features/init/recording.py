"""Writes down, as benchmarks, how the tests and scripts of a project call some of its functions.

It is a plugin of pytest; started as a program, it runs a script instead.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import json
import math
import operator
import os
import runpy
import sys
import time
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfkit.features.init.child import Attempt, Guard

VARIABLE = "PERFKIT_RECORDED_CALLS"
# So many calls of a function are looked at, and kept; after some seconds a call of each is enough.
_MOST_TRIED, _MOST_KEPT, _ENOUGH_S = 60, 6, 20.0
_MOST_CHARACTERS, _MOST_DEPTH, _MOST_INLINE, _MOST_NUMBERS, _MOST_MADE = 1500, 8, 40, 32, 2000
_PLAIN = (bool, int, float, str, bytes, type(None))
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType)
_BRACKETS: Mapping[type, str] = {list: "[{}]", tuple: "({},)", set: "set([{}])", frozenset: "frozenset([{}])"}
_ARRAYS = {("torch", "Tensor"): ("torch", "tensor"), ("numpy", "ndarray"): ("numpy", "array")}
_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# Values by the names of their parameters: with "=" where they are given by name, "" where there is none.
_Given = list[tuple[str, Any]]


class _UnwritableError(Exception):
    """A value cannot be written as code: the message describes it."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a function ``by`` a test or script: a benchmark that makes it, or why there is none.

    A ``direct`` one has the call's arguments, another one runs the test.
    """

    file: str
    name: str
    module: str
    by: str
    direct: bool
    attempt: Attempt | None
    problem: str


class _Recorder:
    """Watches the calls of a process, and what its objects are made from."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.item: Any = None
        self._order, self._script, self._began = order, "", time.monotonic()
        self._left = {(file, name): _MOST_TRIED for file, name in order["functions"]}  # noqa: C420 (of lists)
        self._names = {"__init__", *(name.rpartition(".")[2] for _, name in self._left)}
        self._kept: dict[tuple[str, str], set[Attempt]] = {key: set() for key in self._left}
        self._made: dict[int, tuple[Any, _Given]] = {}
        self._imports: set[str] = set()
        self._depth = 0

    def run(self, script: str) -> None:
        """Run a script, which may write nothing and start no process."""
        self._script, sys.argv, sys.path[0] = script, [script], str(Path(script).parent)
        guard = Guard(Path(self._order["out"]).parent)
        sys.addaudithook(guard.check)
        sys.setprofile(self.watch)
        with guard.closed():
            runpy.run_path(script, run_name="__main__")

    def is_done(self) -> bool:
        """Return whether more calls would take long and are not needed."""
        return time.monotonic() > self._began + _ENOUGH_S and all(self._kept.values())

    def watch(self, frame: types.FrameType, event: str, _: object) -> None:
        """Record a call, which Python's profiler reports."""
        code = frame.f_code
        if event != "call" or code.co_name not in self._names:
            return
        if code.co_name == "__init__" and code.co_argcount:
            (_, made), *given = _given(frame)
            self._made.setdefault(id(made), (made, given))
            if len(self._made) > _MOST_MADE:
                del self._made[next(iter(self._made))]
        key = _relative(code.co_filename, self._order["root"]), code.co_qualname
        # A generator is called anew for each of its values.
        goes_on = code.co_flags & inspect.CO_GENERATOR and frame.f_lineno != code.co_firstlineno
        if self._left.get(key, 0) > 0 and len(self._kept[key]) < _MOST_KEPT and not goes_on:
            self._left[key] -= 1
            self._record(*key, frame)

    def _record(self, file: str, name: str, frame: types.FrameType) -> None:
        by = self.item.nodeid if self.item else self._script or "an import"
        attempt, problem = self._tried(f"# As {by} calls it.", self._body, frame)
        direct = attempt is not None
        if attempt is None:
            attempt, _ = self._tried(f"# {name} is called in this test.", self._body_of_test)
        if attempt in self._kept[file, name]:
            return
        self._kept[file, name] |= {attempt} if attempt else set()
        call = Call(
            file=file,
            name=name,
            module=self._module(frame.f_globals["__name__"]),
            by=by,
            direct=direct,
            attempt=attempt,
            problem=problem,
        )
        with Path(self._order["out"]).open("a", encoding="utf-8") as out:
            out.write(json.dumps(dataclasses.asdict(call)) + "\n")

    def _tried(
        self, comment: str, write: Callable[..., list[str]], *given: object
    ) -> tuple[Attempt | None, str]:
        """Return a benchmark, or why there is none."""
        self._imports, self._depth = set(), 0
        try:
            body = (comment, *write(*given))
            return Attempt(imports=tuple(sorted(self._imports)), body=body, may_return_nothing=True), ""
        except _UnwritableError as error:
            return None, str(error)
        except Exception as error:  # noqa: BLE001 (code of the project's may raise anything)
            return None, f"what cannot be written ({type(error).__name__}: {error})"

    def _body(self, frame: types.FrameType) -> list[str]:
        """Return a call as the lines of a benchmark."""
        code, (owner, _, name), given = frame.f_code, frame.f_code.co_qualname.rpartition("."), _given(frame)
        if code.co_flags & _ASYNC:
            raise _UnwritableError("what a benchmark cannot wait for, since it is a coroutine")
        module = sys.modules[frame.f_globals["__name__"]]
        function = self._name(module.__name__, code.co_qualname)
        static = inspect.getattr_static(operator.attrgetter(owner)(module) if owner else module, name)
        if isinstance(static, classmethod):
            function = f"{self._text(given.pop(0)[1])}.{name}"
        elif isinstance(static, property):
            function += ".fget" if getattr(static.fget, "__code__", None) is code else ".fset"
        elif isinstance(static, functools.cached_property):
            function += ".func"
        elif hasattr(static, "cache_info"):
            function += ".__wrapped__"
        elif name == "__init__":
            made, given = self._made[id(given[0][1])]
            function, static = self._text(type(made)), type(made).__init__
        lines, texts = self._arguments(_without_defaults(given, static))
        if code.co_flags & inspect.CO_GENERATOR:
            return [*lines, f"benchmark(lambda: list({function}({', '.join(texts)})))"]
        return [*lines, f"benchmark({', '.join((function, *texts))})"]

    def _body_of_test(self) -> list[str]:
        """Return the lines of a benchmark that runs the present test with its parameters."""
        function = self.item.function
        if self.item.cls or hasattr(function, "hypothesis") or function.__code__.co_flags & _ASYNC:
            raise _UnwritableError("a test that is no plain function")
        given = [(f"{name}=", self.item.funcargs[name]) for name in inspect.signature(function).parameters]
        lines, texts = self._arguments(given)
        file = _relative(str(self.item.path), self._order["root"])
        imported = f"from {file.removesuffix('.py').replace('/', '.')} import {function.__name__}"
        return [imported, *lines, f"benchmark({', '.join((function.__name__, *texts))})"]

    def _arguments(self, given: _Given, most: int = _MOST_INLINE) -> tuple[list[str], list[str]]:
        """Return the lines that make arguments of ``most`` characters, and what is in the call's brackets."""
        lines, texts = [], []
        for label, value in given:
            text, name = self._text(value), label.rstrip("=")
            if len(text) > most and name:
                lines.append(f"{name} = {text}")
                text = name
            texts.append(f"{label}{text}" if label.endswith("=") else text)
        return [*(["torch.manual_seed(0)"] if "import torch" in self._imports else []), *lines], texts

    def _text(self, value: Any) -> str:  # noqa: ANN401 (anything may be an argument)
        """Return the expression of a value, and import what it needs."""
        self._depth += 1
        text = self._expression(value) if self._depth <= _MOST_DEPTH else ""
        self._depth -= 1
        if not text or len(text) > _MOST_CHARACTERS:
            raise _UnwritableError(f"a {type(value).__name__} that is too large")
        return text

    def _expression(self, value: Any) -> str:  # noqa: ANN401, PLR0911 (as above; one for each kind)
        kind = type(value)
        if kind in _PLAIN or value is ...:
            return repr(value)
        if kind is dict:
            return f"{{{', '.join(f'{self._text(key)}: {self._text(one)}' for key, one in value.items())}}}"
        if brackets := _BRACKETS.get(kind):
            return brackets.format(", ".join(map(self._text, value))) if value else f"{kind.__name__}()"
        if value is type(None):
            return "type(None)"
        if isinstance(value, _NAMED) and value.__module__:
            return self._name(value.__module__, value.__qualname__, value)
        if array := _ARRAYS.get((kind.__module__, kind.__name__)):
            return self._array(value, *array)
        if isinstance(value, enum.Enum):
            return f"{self._text(kind)}.{value.name}"
        module = getattr(value, "__module__", None) or kind.__module__
        for name, one in list(vars(sys.modules[module]).items()):
            if one is value:
                return self._name(module, name, value)
        return self._object(value)

    def _object(self, value: Any) -> str:  # noqa: ANN401 (as above)
        """Return the call that makes an object: by its fields, by what it was made from, or as a copy is."""
        kind = type(value)
        names = [(one.name, one.alias) for one in getattr(kind, "__attrs_attrs__", ()) if one.init]
        if dataclasses.is_dataclass(kind):
            names = [(one.name, one.name) for one in dataclasses.fields(kind) if one.init]
        reduced = (kind, ()) if names else value.__reduce_ex__(4)
        if isinstance(reduced, str):
            raise _UnwritableError(f"a {kind.__module__}.{kind.__qualname__}")
        function, given, *state = reduced
        given = [("", one) for one in given]
        made = not names and id(value) in self._made and (function.__name__ == "__newobj__" or any(state))
        if names:
            given = [(f"{alias}=", getattr(value, name)) for name, alias in names]
        elif function is operator.getitem:
            return f"{self._text(given[0][1])}[{self._text(given[1][1])}]"
        elif made:
            function, given = kind, self._made[id(value)][1]
        elif any(one is not None for one in state):
            raise _UnwritableError(f"a {kind.__module__}.{kind.__qualname__}")
        elif function.__name__ == "__newobj__":
            function, *given = (given[0][1], *given[1:])
        given = _without_defaults(given, getattr(function, "__init__", function))
        _, texts = self._arguments(given, most=_MOST_CHARACTERS)
        text = f"{self._text(function)}({', '.join(texts)})"
        if made and "__eq__" in vars(kind) and not self._makes(text, value):
            raise _UnwritableError(f"a {kind.__qualname__} that has changed since it was made")
        return text

    def _makes(self, text: str, value: object) -> bool:
        names: dict[str, object] = {}
        exec("\n".join(self._imports), names)  # noqa: S102 (it is what the benchmark will do)
        return bool(eval(text, names) == value)  # noqa: S307 (as above)

    def _array(self, value: Any, library: str, make: str) -> str:  # noqa: ANN401 (as above)
        """Return a small array by its values, and ones in the shape of a large one."""
        self._imports.add(f"import {library}")
        kind = str(value.dtype) if library == "torch" else f'"{value.dtype}"'
        is_large = math.prod(value.shape) > _MOST_NUMBERS
        data = f"ones({tuple(value.shape)}" if is_large else f"{make}({self._text(value.tolist())}"
        device = str(getattr(value, "device", "cpu"))
        text = f"{library}.{data}, dtype={kind})" + (f'.to("{device}")' if device != "cpu" else "")
        return text + (".requires_grad_()" if getattr(value, "requires_grad", False) else "")

    def _name(self, module: str, qualified: str, value: object = None) -> str:
        """Return the name of what a module holds, and import it."""
        found: object = sys.modules.get(module)
        for part in qualified.split("."):
            found = getattr(found, part, None)
        if found is None or (value is not None and found is not value):
            raise _UnwritableError(f"{qualified}, which {module} does not hold by this name")
        place, module = getattr(sys.modules[module], "__file__", None) or "", self._module(module)
        is_own = place.startswith(f"{self._order['root']}/") and "site-packages" not in place
        if is_own and module.partition(".")[0] not in self._order["packages"]:
            raise _UnwritableError(f"{qualified}, which is defined in {module}")
        if module != "builtins":
            self._imports.add(f"from {module} import {qualified.partition('.')[0]}")
        return qualified

    def _module(self, name: str) -> str:
        return Path(self._script).stem if name == "__main__" else name


def _given(frame: types.FrameType) -> _Given:
    """Return what a function was given."""
    code, values = frame.f_code, frame.f_locals
    first, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names, extra = code.co_varnames, [last]
    given = [(name, values[name]) for name in names[:first]]
    if code.co_flags & inspect.CO_VARARGS:
        given += [("", one) for one in values[names[extra.pop()]]]
        extra.append(last + 1)
    given += [(f"{name}=", values[name]) for name in names[first:last]]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        given += [(f"{name}=", one) for name, one in values[names[extra.pop()]].items()]
    return given


def _without_defaults(given: _Given, function: object) -> _Given:
    """Leave out what a function would be given anyway."""
    try:
        known = inspect.signature(function).parameters  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return given
    kept: _Given = []
    for number, (label, value) in enumerate(given):
        name = label.rstrip("=")
        if not name or name not in known or known[name].default is not value:
            kept.append((f"{name}=" if name and len(kept) < number else label, value))
    return kept if all(label for label, _ in given) else given


@functools.cache
def _relative(file: str, root: str) -> str:
    return os.path.realpath(file).removeprefix(f"{root}/")


if VARIABLE in os.environ:
    _RECORDER = _Recorder(json.loads(os.environ[VARIABLE]))


def pytest_configure() -> None:
    """Begin to record."""
    sys.setprofile(_RECORDER.watch)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Have those tests run last that make many calls of random values up."""
    items.sort(key=lambda item: hasattr(getattr(item, "function", None), "hypothesis"))


def pytest_runtest_setup(item: Any) -> None:  # noqa: ANN401 (only some rooms import pytest)
    """Note which test runs, and end the session once enough is recorded."""
    _RECORDER.item = item
    if _RECORDER.is_done():
        item.session.shouldstop = "enough calls are recorded"


if __name__ == "__main__":
    _RECORDER.run(sys.argv[1])
