"""A closer look at a benchmark's calls: with inputs that come again, with new ones, and at their results."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
import operator
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

# By name: code that replaces it in its module does not reach this one.
from time import perf_counter
from types import CellType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from .channel import Message
from .clock import synchronised
from .results import Description, in_time

if TYPE_CHECKING:
    from .benchmark_fixture import Target

# A form of calls takes so long at most, and this many calls, after some that are not timed.
_FORM_S, _MOST_CALLS, _WARM_UP, _AGAIN = 0.2, 7, 2, 2
# A benchmark with a longer call is called in fewer forms.
_LONG_CALL_S = 0.25
# Of long containers only the first parts are moved, used and compared.
_MOST_PARTS, _DEEPEST = 1000, 3
# Larger inputs stay as they are, and no more is held at once.
_MOST_BYTES = 1 << 28
_MOVE = 1e-6
_FILES = frozenset({"open", "sqlite3.connect"})
_PROCESSES = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}
)
_CODE = (".py", ".pyc", ".so", ".pth")
_SYSTEM = ("/proc/", "/sys/", "/dev/", *{f"{one}/" for one in (sys.prefix, sys.base_prefix)})
# Objects of the test runner's own hold whole sessions.
_RUNNERS = frozenset({"_pytest", "pytest", "pluggy", "pytest_benchmark", "perfkit"})
_PROPERTY = (property, functools.cached_property)
_PLAIN = (bool, int, float, complex, str, bytes, type(None))

# The forms of other inputs for which results are compared.
OTHER_FORMS = ("moved", "shuffled")

Call = Callable[[], object]


class _EnoughError(Exception):
    """The benchmark allows no more calls."""


def look(target: Target | None, *, seed: int, watch: bool, most_calls: float) -> Message:
    """Time a benchmark's calls in several forms, and return the lower quartile of each, in seconds.

    They are "first"; "same": with the same objects again; "copied": with equal ones; "moved": with values
    that differ a little; "shuffled", where nothing can be moved, and "again" with the same of these; "used"
    is what using a result takes. ``follows`` is whether another input gave another result, ``overwritten``
    whether its call changed the one before. With ``watch`` the files and processes that calls open and start
    are returned.
    """
    if target is None:
        return {"kind": "looked", "times": {}, "follows": None, "overwritten": False, "touched": []}
    return _Look(target, seed, most_calls, _Watch() if watch else None).take()


def with_other_inputs(target: Target, form: str, seed: object) -> Target | None:
    """Return a target whose inputs have other values, or these in another order; None where they cannot.

    What holds of the inputs holds of the others: what is sorted remains so, and records stay in their places.
    """
    change = _Change(form, seed, 1, careful=True)
    made = change.of_target(target)
    return made if change.changed else None


class _Look:
    """The look at one benchmark."""

    def __init__(self, target: Target, seed: int, most_calls: float, watch: _Watch | None) -> None:
        self._target, self._seed, self._left, self._watch = target, seed, most_calls, watch
        self._clock = synchronised(perf_counter)
        # Those that are gone may leave their addresses to others.
        self._alive: list[Target] = []
        self._held = 0
        # Calls may leave something in their inputs, so they are copied before the first one.
        self._kept = None if target.new else _Change("copied", seed, 0).of_target(target)

    def take(self) -> Message:
        """Make the calls."""
        times: dict[str, float] = {}
        follows, overwritten = None, False
        try:
            times["first"], result = self._timed(self._target)
            is_long = times["first"] > _LONG_CALL_S
            times["same"] = self._repeated(lambda _: self._timed(self._target)[0], 0 if is_long else _WARM_UP)
            if not is_long:
                times["used"] = self._repeated(lambda _: self._used(self._target), 1)
            before = _digest(result)
            found = self._try(times, "moved")
            if found is None:
                found = self._try(times, "shuffled", again=True)
            overwritten = found is not None and before is not None and before != _digest(result)
            if self._kept is not None and not (is_long and found is not None):
                self._try(times, "copied")
            # A result that is drawn at random, or that depends on calls before it, differs as well.
            if not is_long and found and before == _digest(self._timed(self._target)[1]):
                follows = found != [before]
        except _EnoughError:
            pass
        touched = [] if self._watch is None else sorted(self._watch.touched)
        seen: Message = {"follows": follows, "overwritten": overwritten, "touched": touched}
        return {"kind": "looked", "times": times, **seen}

    def _try(self, times: dict[str, float], form: str, *, again: bool = False) -> list[int | None] | None:
        """Time a form of calls, and return the digest of the first result, None where they fail."""
        digests: list[int | None] = []
        later: list[float] = []

        def one(number: int) -> float:
            fresh = self._fresh(form, number)
            seconds, result = self._timed(fresh)
            if not digests:
                digests.append(_digest(result))
            if again:
                for _ in range(_AGAIN):
                    repeated, _ = self._timed(fresh if self._kept is not None else self._fresh(form, number))
                later.append(repeated)
            return seconds

        try:
            times[form] = self._repeated(one, 0)
        except _EnoughError:
            raise
        except Exception:  # noqa: BLE001 (any error of code that gets an input it does not expect)
            return None
        if later:
            times["again"] = _lower_quartile(later)
        return digests

    def _fresh(self, form: str, number: int) -> Target:
        change = _Change(form, self._seed, number + 1)
        made = change.of_target(self._target if self._kept is None else self._kept)
        if not change.changed:
            raise ValueError("nothing can be changed")
        self._alive.append(made)
        self._held += change.size
        return made

    def _repeated(self, one: Callable[[int], float], warm_up: int) -> float:
        """Return the time of some calls; long ones are few, and none of them is a warm-up."""
        found: list[float] = []
        begun = perf_counter()
        while not found or (
            len(found) < warm_up + _MOST_CALLS
            and perf_counter() - begun < _FORM_S
            and self._held < _MOST_BYTES
        ):
            found.append(one(len(found)))
        return _lower_quartile(found[warm_up:] or found[-1:])

    def _timed(self, target: Target) -> tuple[float, object]:
        """Make a call, and return its seconds and its result."""
        if self._left < 1:
            raise _EnoughError
        self._left -= 1
        args, kwargs = target.arguments()
        function = target.function
        watch = self._watch
        if watch is not None:
            watch.begin()
        try:
            begun = self._clock()
            result = function(*args, **kwargs)
            seconds = self._clock() - begun
        finally:
            if watch is not None:
                watch.active = False
        if target.teardown is not None:
            target.teardown(*args, **kwargs)
        return seconds, result

    def _used(self, target: Target) -> float:
        _, result = self._timed(target)
        begun = self._clock()
        _use(result)
        return self._clock() - begun


def _lower_quartile(seconds: Sequence[float]) -> float:
    # Other work on the machine lengthens some calls, and shortens none.
    return sorted(seconds)[len(seconds) // 4]


class _Change:
    """Makes inputs like others: equal ones, or with values that are alike on both sides for one seed.

    ``changed`` is whether any differs, and ``size`` about how many bytes they have. What is called stays as
    it is, since it may hold what a call needs.
    """

    def __init__(self, form: str, seed: object, step: int, *, careful: bool = False) -> None:
        self._form, self._step, self.changed, self.size = form, step, False, 0
        self._seed, self._careful = f"{seed} {step}", careful
        self._scale = 1 + _MOVE * (step + self._drawn(0).random())
        self._memo: dict[int, Any] = {}

    def _drawn(self, length: int) -> random.Random:
        """Return a generator for values of a length: rows of several arrays stay together."""
        return random.Random(f"{self._seed} {length}")  # noqa: S311 (values, no secret)

    def of_target(self, target: Target) -> Target:
        """Return a target with other inputs, those in its closure and in globals that its code names too."""
        args, kwargs = target.arguments()
        keeps = target.new and not isinstance(target.function, MethodType)
        function = target.function if keeps else self._function(target.function, target.file)
        given = tuple(map(self._value, args)), {name: self._value(one) for name, one in kwargs.items()}
        return replace(target, function=function, arguments=lambda: given, new=False)

    def _function(self, function: Any, file: str, depth: int = 0) -> Any:  # noqa: ANN401 (anything callable)
        if isinstance(function, functools.partial):
            keywords = {name: self._value(value) for name, value in function.keywords.items()}
            called = self._function(function.func, file, depth)
            return functools.partial(called, *map(self._value, function.args), **keywords)
        if isinstance(function, MethodType):
            called = self._function(function.__func__, file, depth)
            same = called is function.__func__ or isinstance(function.__self__, type)
            return function if same else MethodType(called, self._owner(function.__self__))
        # Functions of the project itself may keep tables where a benchmark has inputs.
        own = isinstance(function, FunctionType) and function.__code__.co_filename == file
        if not own or depth > _DEEPEST:
            return function
        known = function.__globals__
        named = {name: known[name] for name in _names(function.__code__) if name in known}
        changed = {name: self._value(value) for name, value in named.items() if _is_data(value)}
        cells = tuple(self._cell(cell, file, depth) for cell in function.__closure__ or ())
        made = FunctionType(
            function.__code__, {**known, **changed}, function.__name__, function.__defaults__, cells
        )
        made.__kwdefaults__ = function.__kwdefaults__
        return made

    def _owner(self, owner: Any) -> Any:  # noqa: ANN401 (anything)
        """Return an object of a benchmark with other attributes, except numbers that may be sizes."""
        made = copy.copy(owner)
        for name, part in getattr(owner, "__dict__", {}).items():
            if not isinstance(part, int | str):
                made.__dict__[name] = self._value(part)
        return made

    def _cell(self, cell: CellType, file: str, depth: int) -> CellType:
        with contextlib.suppress(ValueError):
            value = cell.cell_contents
            is_code = isinstance(value, FunctionType | functools.partial)
            return CellType(self._function(value, file, depth + 1) if is_code else self._value(value))
        return cell

    def _value(self, value: Any) -> Any:  # noqa: ANN401 (anything)
        if not _is_data(value):
            return value
        try:
            made = copy.deepcopy(value, self._memo) if self._form == "copied" else self._varied(value, 0)
        except Exception:  # noqa: BLE001 (some objects cannot be copied, in their own ways)
            return value
        self.changed |= made is not value and self._form == "copied"
        self.size += _bytes(made)
        return made

    def _varied(self, value: Any, depth: int) -> Any:  # noqa: ANN401, PLR0911 (anything)
        kind = type(value)
        if depth > _DEEPEST or kind is bool or value is None or self._stays(value):
            return value
        if kind in (int, float):
            return value if self._form == "shuffled" else self._new(self._moved(value))
        if kind in (str, bytes) or (self._form == "shuffled" and _is_uniform(value)):
            return self._rolled(value)
        if isinstance(value, list | tuple | dict):
            return self._container(value, depth)
        if hasattr(value, "iloc"):
            return value.iloc[self._order(len(value))] if self._form == "shuffled" else value
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            return self._array(value)
        made = copy.deepcopy(value, self._memo)
        for name, part in getattr(made, "__dict__", {}).items():
            # Other numbers may be sizes.
            if not isinstance(part, int | str) and _is_data(part):
                made.__dict__[name] = self._varied(part, depth + 1)
        return made

    def _container(self, value: Any, depth: int) -> Any:  # noqa: ANN401 (a list, tuple or dict)
        kind = type(value)
        if isinstance(value, dict):
            values = [*value.values()]
            if self._form == "shuffled" and _is_uniform(values):
                values = self._rolled(values)
            else:
                values = [self._varied(part, depth + 1) for part in values]
            keys = [self._moved(one) if self._moves(one) else one for one in value]
            return kind(zip(keys, values, strict=True))
        parts = [*(self._varied(part, depth + 1) for part in value[:_MOST_PARTS]), *value[_MOST_PARTS:]]
        return kind(*parts) if hasattr(value, "_fields") else kind(parts)

    def _stays(self, value: Any) -> bool:  # noqa: ANN401 (anything)
        """Return whether a careful change leaves a value, such as an object that computed what it keeps."""
        known = isinstance(value, (*_PLAIN, list, tuple, dict)) or hasattr(value, "dtype")
        return self._careful and (not known or (self._form == "shuffled" and _has_order(value)))

    def _moves(self, key: object) -> bool:
        return self._careful and self._form == "moved" and type(key) is int

    def _moved(self, value: float) -> float:
        """Return a number like another; zeros stay, as they may mean that there is nothing."""
        sign = (value > 0) - (value < 0)
        return value + self._step * sign if isinstance(value, int) else value * self._scale

    def _new(self, value: Any) -> Any:  # noqa: ANN401 (anything)
        self.changed = True
        return value

    def _rolled(self, value: Any) -> Any:  # noqa: ANN401 (a sequence)
        names_file = isinstance(value, str) and "/" in value and " " not in value
        if self._form == "moved" or len(value) < 2 or names_file:  # noqa: PLR2004 (what can be rolled)
            return value
        if self._careful and not isinstance(value, str | bytes):
            return type(value)(value[one] for one in self._order(len(value)))
        at = self._drawn(len(value)).randrange(1, len(value))
        return self._new(value[at:] + value[:at])

    def _order(self, length: int) -> list[int]:
        self.changed |= length > 1
        return self._drawn(length).sample(range(length), length)

    def _array(self, value: Any) -> Any:  # noqa: ANN401 (an array or a tensor)
        plain = value.detach() if hasattr(value, "detach") else value
        if self._form == "moved":
            made = self._moved_array(plain)
        else:
            made = plain[self._order(len(plain))] if len(plain.shape) else plain
        return made.requires_grad_() if getattr(value, "requires_grad", False) else made

    def _moved_array(self, value: Any) -> Any:  # noqa: ANN401 (an array or a tensor)
        library = sys.modules["torch" if hasattr(value, "detach") else "numpy"]
        kind = str(value.dtype)
        if "float" in kind or "complex" in kind:
            # More than the tolerance of its type, as results may change by less.
            eps = float(library.finfo(value.dtype).eps)
            moved = value * (1 + self._step * max(_MOVE, 4 * eps, min(1024 * eps, 1e-3)))
        elif "int" in kind:
            # Zeros may mean that there is nothing.
            moved = value + self._step * library.sign(value)
        else:
            return value
        self.changed = True
        return moved.to(value.dtype) if hasattr(moved, "to") else moved.astype(value.dtype)


def _names(code: Any) -> Iterator[str]:  # noqa: ANN401 (a code object)
    yield from code.co_names
    for inner in code.co_consts:
        if hasattr(inner, "co_names"):
            yield from _names(inner)


def _is_data(value: object) -> bool:
    if value is None or isinstance(value, ModuleType) or callable(value) or _bytes(value) > _MOST_BYTES:
        return False
    return type(value).__module__.partition(".")[0] not in _RUNNERS


def _bytes(value: Any, depth: int = 0) -> int:  # noqa: ANN401 (anything)
    """Return about how large a value is."""
    if isinstance(size := getattr(value, "nbytes", None), int) or depth > _DEEPEST:
        return size or 0
    values = value.values() if isinstance(value, dict) else getattr(value, "__dict__", {}).values()
    parts = value if isinstance(value, list | tuple) else [*itertools.islice(values, _MOST_PARTS)]
    share = len(parts) / max(min(len(parts), _MOST_PARTS), 1)
    return sys.getsizeof(value) + int(share * sum(_bytes(one, depth + 1) for one in parts[:_MOST_PARTS]))


def _has_order(value: Any) -> bool:  # noqa: ANN401 (anything)
    """Return whether places of parts may mean something: of sorted ones, of records, in a matrix."""
    if isinstance(value, list | tuple | dict):
        parts = [*value.values()] if isinstance(value, dict) else value
        if not parts or not isinstance(parts[0], (*_PLAIN, set, frozenset)):
            return _is_uniform(parts)
    elif hasattr(value, "dtype") and hasattr(value, "shape") and len(value.shape):
        if len(value.shape) > 1:
            return bool(value.shape[-1] == value.shape[-2])
        return bool((value[1:] >= value[:-1]).all() or (value[1:] <= value[:-1]).all())
    else:
        return False
    return all(map(operator.le, parts, parts[1:])) or all(map(operator.ge, parts, parts[1:]))


def _is_uniform(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) > 1 and len({*map(type, value)}) == 1


def _digest(result: object) -> int | None:
    """Return a sum of what a result holds; None where it cannot be compared."""
    found = [Description((), {})]
    with in_time():
        found.append(Description((), {"": result}))
    return None if any("why" in part for part in found[-1].parts) else found[-1].sums.get("")


def _use(value: Any, depth: int = 0) -> None:  # noqa: ANN401 (anything)
    """Use a result as a reader of it would: its parts, its numbers, its properties."""
    if isinstance(value, _PLAIN) or depth > _DEEPEST:
        return
    for use in _uses(value):
        # The result's own methods raise anything.
        with contextlib.suppress(Exception):
            found = use()
            if found is not value:
                _use(found, depth + 1)


def _uses(value: Any) -> Iterator[Call]:  # noqa: ANN401 (anything)
    kind = type(value)
    parts: list[object] = []
    if hasattr(value, "dtype") and hasattr(value, "sum"):
        yield lambda: float(value.sum())
    elif isinstance(value, Mapping):
        yield lambda: [*itertools.islice(value.values(), _MOST_PARTS)]
    elif isinstance(value, FunctionType | MethodType | functools.partial):
        if all(one.default is not one.empty for one in inspect.signature(value).parameters.values()):
            yield value
    elif kind in (list, tuple, set, frozenset):
        parts = [*itertools.islice(value, _MOST_PARTS)]
    else:
        if hasattr(kind, "__iter__"):
            yield lambda: [*itertools.islice(value, _MOST_PARTS)]
        if hasattr(kind, "__array__"):
            yield lambda: sys.modules["numpy"].asarray(value)
        known = {name: held for one in kind.__mro__[-2::-1] for name, held in vars(one).items()}
        methods: dict[str, Callable[[Any], object]] = {"__float__": float, "__len__": len, "__repr__": repr}
        yield from (functools.partial(use, value) for name, use in methods.items() if name in known)
        properties = [name for name, held in known.items() if isinstance(held, _PROPERTY)]
        yield from (functools.partial(getattr, value, name) for name in properties[:20])
        parts = [*getattr(value, "__dict__", {}).values()][:20]
    yield from (functools.partial(lambda part: part, part) for part in parts)


class _Watch:
    """Notes what calls open, start and connect to, from now to the end of the process."""

    def __init__(self) -> None:
        self.active = False
        self.touched: set[str] = set()
        self._folder, self._temporary = f"{Path.cwd()}/", f"{tempfile.gettempdir()}/"
        sys.addaudithook(self._note)

    def begin(self) -> None:
        """Note what happens from now on."""
        self.active = True

    def _note(self, event: str, arguments: Sequence[Any]) -> None:
        if not self.active or event not in (*_FILES, *_PROCESSES, "socket.connect"):
            return
        self.active = False
        try:
            self._note_what(event, *arguments[:2])
        finally:
            self.active = True

    def _note_what(self, event: str, first: object = "", place: object = "", /) -> None:
        name = os.fsdecode(first) if isinstance(first, str | bytes | os.PathLike) else ""
        path = os.path.abspath(name)  # noqa: PTH100 (asks for no file)
        if event in _PROCESSES:
            self.touched.add(f"starts a process {Path(name.split(' ')[0]).name}".rstrip())
        elif event in _FILES:
            if name and not path.endswith(_CODE) and not path.startswith(_SYSTEM):
                path = path.removeprefix(self._folder)
                self.touched.add(f"opens {path.replace(self._temporary, '$TMPDIR/')}")
        elif isinstance(place, tuple | str):
            words = place if isinstance(place, str) else ":".join(map(str, place[:2]))
            self.touched.add(f"connects to {words}")
