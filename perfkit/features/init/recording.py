"""Writes down, as benchmarks, how the tests and scripts of a project call some of its functions.

It is a plugin of pytest; started as a program, it runs a script instead.
"""

from __future__ import annotations

import builtins
import contextlib
import cProfile
import dataclasses
import enum
import functools
import inspect
import json
import math
import operator
import os
import pstats
import re
import runpy
import signal
import sys
import time
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfkit.features.init.child import Attempt, Guard

VARIABLE = "PERFKIT_RECORDED_CALLS"
# A test may take this part of the time that is left, and so many seconds in any case.
_LONG_TESTS, _LEAST_OF_TEST_S = 3, 2.0
# A test runs with so many of the values of each of its parameters.
_MOST_VALUES = 6
# This many calls of a function are looked at, and kept; after some seconds a call of each is enough.
_MOST_TRIED, _MOST_KEPT, _ENOUGH_S = 60, 6, 8.0
MOST_CHARACTERS, TOO_LARGE = 1500, "that is too large"
_MOST_DEPTH, _MOST_INLINE, _MOST_NUMBERS, _MOST_MADE = 8, 40, 32, 2000
_NOT_FINITE = ("nan", "inf", "-inf")
_PLAIN = (bool, int, float, str, bytes, type(None))
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType)
_BRACKETS: Mapping[type, str] = {list: "[{}]", tuple: "({},)", set: "set([{}])", frozenset: "frozenset([{}])"}
_ARRAYS = {("torch", "Tensor"): ("torch", "tensor"), ("numpy", "ndarray"): ("numpy", "array")}
_OF_TESTS = re.compile(r"/(?:tests?|testing)/|/(?:test_|conftest)[^/]*$")
_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# Plain pytest-benchmark makes this many calls of a function that changes its arguments.
_ROUNDS = 100
# Values by the names of their parameters: with "=" where they are given by name, "" where there is none.
_Given = list[tuple[str, Any]]
# The lines that make long arguments; the code of each, with "name=" where it is given by name.
_Arguments = tuple[list[str], list[tuple[str, str]]]


class _UnwritableError(Exception):
    """A value cannot be written as code: the message describes it."""


class _TestLimitError(BaseException):
    """A test has run for long enough; it is no Exception, since the test may catch these."""


def _end_test(*_: object) -> None:
    raise _TestLimitError


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
        self._guard = Guard(Path(order["out"]).parent)
        sys.addaudithook(self._guard.check)
        self._order, self._script, self._began = order, "", math.inf
        self._profile = cProfile.Profile() if "places" in order else None
        functions = order.get("functions", ())
        self._left = {(file, name): _MOST_TRIED for file, name in functions}  # noqa: C420 (of lists)
        self._names = {"__init__", *(name.rpartition(".")[2] for _, name in self._left)}
        self._kept: dict[tuple[str, str], set[Attempt]] = {key: set() for key in self._left}
        self._made: dict[int, tuple[Any, _Given]] = {}
        self._imports: set[str] = set()
        self._depth = self._random = 0

    def run(self, script: str) -> None:
        """Run a script, which may write nothing and start no process."""
        sys.argv, sys.path[0] = [script], str(Path(script).parent)
        self._script = Path(script).name if Path(script).is_absolute() else script
        self.begin()
        self.guarded(functools.partial(runpy.run_path, script, run_name="__main__"))
        self.pause()
        self.report()

    def guarded(self, run: Callable[[], object]) -> None:
        """Run what may change nothing."""
        with self._guard.closed():
            run()

    def begin(self) -> None:
        """Watch calls from now on."""
        self._began = min(self._began, time.process_time())
        if self._profile is None:
            sys.setprofile(self.watch)
        else:
            self._profile.enable()

    def pause(self) -> None:
        """Watch no calls from now on."""
        if self._profile is None:
            sys.setprofile(None)
        else:
            self._profile.disable()

    def watch_import(self, module: Any) -> None:  # noqa: ANN401 (only some rooms import pytest)
        """Watch what a test module calls when it is imported, which makes objects for tests."""
        if self._profile is None:
            # Errors come again where pytest imports it.
            with contextlib.suppress(BaseException):
                sys.setprofile(self.watch)
                assert module.obj  # noqa: S101 (that imports it)
            sys.setprofile(None)

    def report(self) -> None:
        """Report how long each of the project's functions took that other code called."""
        if self._profile is None or not self._profile.getstats():
            return
        with Path(self._order["out"]).open("a", encoding="utf-8") as out:
            known = pstats.Stats(self._profile).stats  # type: ignore[attr-defined]
            for (file, line, _), (*_, callers) in known.items():
                others = (one[3] for (by, *_), one in callers.items() if by != "~" and not self._is_own(by))
                if self._is_own(file):
                    out.write(json.dumps((_relative(file, self._order["root"]), line, sum(others))) + "\n")

    def _is_own(self, file: str) -> bool:
        """Return whether a file is the project's own, and none of its tests."""
        place = f"/{_relative(file, '')}"
        inside = (place[len(one) :] for one in self._order["places"] if f"{place}/".startswith(f"{one}/"))
        return not _OF_TESTS.search(next(inside, "/tests/"))

    def limit_test(self) -> None:
        """End what runs from now on after a part of the time that is left."""
        left_s = self._order.get("stop_s", math.inf) - self._taken_s()
        if left_s < math.inf:
            signal.signal(signal.SIGPROF, _end_test)
            signal.setitimer(signal.ITIMER_PROF, *[max(_LEAST_OF_TEST_S, left_s / _LONG_TESTS)] * 2)

    def _taken_s(self) -> float:
        return max(time.process_time() - self._began, 0.0)

    def is_done(self) -> bool:
        """Return whether more calls would take long and are not needed."""
        taken_s = self._taken_s()
        return taken_s > self._order.get("stop_s", math.inf) or (
            taken_s > _ENOUGH_S and all(self._kept.values()) and self._profile is None
        )

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
        attempt, problem = self._tried(f"As {by} calls it", self._body, frame)
        direct = attempt is not None
        if attempt is None:
            attempt, _ = self._tried(f"{name} is called in this test", self._body_of_test)
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
        self, comment: str, write: Callable[..., tuple[list[str], str, _Arguments]], *given: object
    ) -> tuple[Attempt | None, str]:
        """Return a benchmark, or why there is none."""
        self._imports, self._depth, self._random = set(), 0, 0
        try:
            begin, function, (lines, texts) = write(*given)
            comment = f"# {comment}{', with random numbers in place of the data' if self._random else ''}."
            by_place = ", ".join(text for label, text in texts if not label)
            by_name = ", ".join(f'"{label[:-1]}": {text}' for label, text in texts if label)
            anew = (*lines, f"return [{by_place}], {{{by_name}}}")
            return Attempt(
                imports=tuple(sorted(self._imports)),
                body=(comment, *begin, *lines, f"benchmark({_joined([('', function), *texts])})"),
                anew=(
                    *(comment, "# Each call has arguments of its own, since it may change them.", *begin),
                    *("def arguments():", *(f"    {line}" for line in anew), ""),
                    f"benchmark.pedantic({function}, setup=arguments, rounds={_ROUNDS})",
                ),
                may_return_nothing=True,
            ), ""
        except _UnwritableError as error:
            return None, str(error)
        except Exception as error:  # noqa: BLE001 (code of the project's may raise anything)
            return None, f"what cannot be written ({type(error).__name__}: {error})"

    def _body(self, frame: types.FrameType) -> tuple[list[str], str, _Arguments]:
        """Return a call: the lines before it, the function, and the arguments."""
        code, (owner, _, name), given = frame.f_code, frame.f_code.co_qualname.rpartition("."), _given(frame)
        if code.co_flags & _ASYNC:
            raise _UnwritableError("an event loop, which a benchmark does not have")
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
        arguments = self._arguments(_without_defaults(given, static))
        if not code.co_flags & inspect.CO_GENERATOR:
            return [], function, arguments
        call = f"{function}(*given, **named)"
        is_context = getattr(getattr(static, "__func__", static), "__globals__", None) is vars(contextlib)
        inner = [f"    with {call}:", "        pass"] if is_context else [f"    return list({call})"]
        return ["def call(*given, **named):", *inner, ""], "call", arguments

    def _body_of_test(self) -> tuple[list[str], str, _Arguments]:
        """Return the same of the present test, with its parameters."""
        function = self.item.function
        if self.item.cls or hasattr(function, "hypothesis") or function.__code__.co_flags & _ASYNC:
            raise _UnwritableError("a test that is no plain function")
        given = [(f"{name}=", self.item.funcargs[name]) for name in inspect.signature(function).parameters]
        file = _relative(str(self.item.path), self._order["root"])
        imported = f"from {file.removesuffix('.py').replace('/', '.')} import {function.__name__}"
        return [imported], function.__name__, self._arguments(given)

    def _arguments(self, given: _Given, most: int = _MOST_INLINE) -> _Arguments:
        """Return arguments, those of more than ``most`` characters in lines of their own."""
        texts = [(label if label.endswith("=") else "", self._text(value)) for label, value in given]
        taken = {"benchmark", "call", *vars(builtins), *(line.split()[-1] for line in self._imports)}
        lines = []
        for place, ((label, _), (by, text)) in enumerate(zip(given, texts, strict=True)):
            name = label.rstrip("=")
            if len(text) > most and name and name not in taken:
                lines.append(f"{name} = {text}")
                texts[place] = by, name
        return [*(["torch.manual_seed(0)"] if "import torch" in self._imports else []), *lines], texts

    def _text(self, value: Any) -> str:  # noqa: ANN401 (anything may be an argument)
        """Return the expression of a value, and import what it needs."""
        self._depth += 1
        text = self._expression(value) if self._depth <= _MOST_DEPTH else ""
        self._depth -= 1
        if not text or len(text) > MOST_CHARACTERS:
            raise _UnwritableError(f"a {type(value).__name__} {TOO_LARGE}")
        return text

    def _expression(self, value: Any) -> str:  # noqa: ANN401, PLR0911, C901 (as above; one for each kind)
        kind = type(value)
        if (kind is str and self._order["root"] in value) or (
            isinstance(value, Path) and value.is_absolute()
        ):
            raise _UnwritableError("a path of this machine")
        if kind in _PLAIN or value is ...:
            return f'float("{value}")' if repr(value) in _NOT_FINITE else repr(value)
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
        _, texts = self._arguments(given, most=MOST_CHARACTERS)
        text = f"{self._text(function)}({_joined(texts)})"
        if made and "__eq__" in vars(kind) and not self._makes(text, value):
            raise _UnwritableError(f"a {kind.__qualname__} that has changed since it was made")
        return text

    def _makes(self, text: str, value: object) -> bool:
        names: dict[str, object] = {}
        exec("\n".join(self._imports), names)  # noqa: S102 (it is what the benchmark will do)
        return bool(eval(text, names) == value)  # noqa: S307 (as above)

    def _array(self, value: Any, library: str, make: str) -> str:  # noqa: ANN401 (as above)
        """Return a small array by its values, and random numbers of the range and shape of a large one."""
        self._imports.add(f"import {library}")
        kind = str(value.dtype) if library == "torch" else f'"{value.dtype}"'
        if math.prod(value.shape) > _MOST_NUMBERS:
            text = self._random_array(value, library, kind)
        else:
            text = f"{library}.{make}({self._text(value.tolist())}, dtype={kind})"
        device = str(getattr(value, "device", "cpu"))
        text += f'.to("{device}")' if device != "cpu" else ""
        return text + (".requires_grad_()" if getattr(value, "requires_grad", False) else "")

    def _random_array(self, value: Any, library: str, kind: str) -> str:  # noqa: ANN401 (as above)
        if not any(word in kind for word in ("float", "int", "bool")):
            raise _UnwritableError(f"a large {library} array of {kind}")
        self._random += 1
        number, shape, seen = (float if "float" in kind else int), tuple(value.shape), value
        if library == "torch":
            seen = value.detach().double() if number is float else value.long()
        least, most = number(seen.min()), number(seen.max())
        if not math.isfinite(most - least):
            raise _UnwritableError(f"a large {library} array with numbers that are not finite")
        if library == "torch" and number is float:
            return f"torch.empty({shape}, dtype={kind}).uniform_({least}, {most})"
        if library == "torch":
            return f"torch.randint({least}, {most} + 1, {shape}, dtype={kind})"
        random = f"numpy.random.default_rng({self._random})"
        if number is float:
            return f"{random}.uniform({least}, {most}, {shape}).astype({kind})"
        return f"{random}.integers({least}, {most}, {shape}, dtype={kind}, endpoint=True)"

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


def _joined(texts: list[tuple[str, str]]) -> str:
    return ", ".join(label + text for label, text in texts)


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


def pytest_collectstart(collector: Any) -> None:  # noqa: ANN401 (only some rooms import pytest)
    """Watch the import of a test module; collecting its tests takes longer, and calls nothing of interest."""
    if type(collector).__name__ == "Module":
        _RECORDER.watch_import(collector)


def pytest_unconfigure() -> None:
    """Report what took long."""
    _RECORDER.report()


def pytest_generate_tests(metafunc: Any) -> None:  # noqa: ANN401 (only some rooms import pytest)
    """Have a test run with a few of its parameters: a suite of all takes long to collect."""
    metafunc.parametrize = functools.partial(_parametrize_few, metafunc.parametrize)


def _parametrize_few(
    parametrize: Callable[..., object],
    names: object,
    values: Iterable[object],
    **options: Any,  # noqa: ANN401
) -> None:
    values, ids = list(values), options.get("ids")
    some = slice(None, None, math.ceil(len(values) / _MOST_VALUES) or 1)
    if ids is not None and not callable(ids):
        options["ids"] = list(ids)[some]
    parametrize(names, values[some], **options)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Have those tests run last that make many calls of random values up."""
    items.sort(key=lambda item: hasattr(getattr(item, "function", None), "hypothesis"))


def pytest_runtest_call() -> None:
    """Have a test end that would take most of the time."""
    _RECORDER.limit_test()


def pytest_runtest_teardown() -> None:
    """Watch no calls between tests."""
    signal.setitimer(signal.ITIMER_PROF, 0)
    _RECORDER.pause()


def pytest_runtest_setup(item: Any) -> None:  # noqa: ANN401 (only some rooms import pytest)
    """Note which test runs, and end the session once enough is recorded."""
    _RECORDER.item = item
    if not hasattr(item, "function"):
        # A docstring's example, unlike a test, was not written to be run.
        item.runtest = functools.partial(_RECORDER.guarded, item.runtest)
    if _RECORDER.is_done():
        item.session.shouldstop = "enough calls are recorded"
    _RECORDER.begin()


if __name__ == "__main__":
    _RECORDER.run(sys.argv[1])
