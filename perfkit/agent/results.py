"""Describes what a call returns and leaves behind, as data by which two processes can be compared.

An object is a list of parts, each with its path, such as ``[0].loss``. Numbers and texts are parts by value,
arrays by dtype, shape, device and values, containers by their length; objects by their attributes. What
cannot be described is a part with the reason. Numpy, torch and pandas are used only where they are loaded.
"""

from __future__ import annotations

import array
import base64
import collections
import contextlib
import dataclasses
import enum
import functools
import inspect
import io
import itertools
import json
import os
import pickle
import random
import signal
import sys
import threading
import time
import types
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .channel import Message
from .state import seed_generators

if TYPE_CHECKING:
    from .benchmark_fixture import Target

# A description has this many parts and numbers at most, takes about so long, and is not deeper.
_MOST_PARTS, _MOST_NUMBERS, _LIMIT_S, _DEEPEST = 5_000, 1 << 14, 0.25, 60
# More elements of a container are sampled, as are more numbers of an array that has no room.
_MOST_ELEMENTS, _FEWEST_NUMBERS = 256, 64
# Larger arrays are compared by sums of this many blocks too, up to so many numbers.
_BLOCKS, _MOST_SUMMED = 256, 1 << 24
# Shorter lists of numbers are described one by one, longer texts by their sum.
_LONG_LIST, _LONG_TEXT, _LONG_INTEGER = 16, 2000, 1 << 62
# Gradients are computed of calls that take no longer.
_GRADIENT_S = 1.0
_MOST_PICKLED = 1 << 24
# Code of an object that takes longer, such as its ``==``, is interrupted.
_MOST_S = 3.0
# Values of these are known by their repr.
_SHOWN = {"datetime", "decimal", "fractions", "uuid", "pathlib", "ipaddress", "re", "zoneinfo", "torch"}
# Objects of these modules, and of classes derived from theirs, belong to the interpreter or to tools: they
# hold what every process has otherwise, and lead to everything.
_OPAQUE = frozenset({
    "_pytest", "pytest", "pluggy", "pytest_benchmark", "perfkit", "logging", "threading", "_thread", "_io",
    "asyncio", "_asyncio", "concurrent", "multiprocessing", "subprocess", "socket", "select", "selectors",
    "weakref", "_weakref", "contextvars", "_contextvars", "warnings", "importlib", "_frozen_importlib",
    "_frozen_importlib_external", "zipimport", "linecache", "tqdm", "unittest",
})  # fmt: skip
_LIBRARIES = {"numpy", "torch", "pandas"}
_PLAIN = {type(None), bool, int, float, str, bytes}
_MAPPINGS = (dict, types.MappingProxyType)
_FUNCTIONS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType,
    types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    type(functools.cache(len)), types.CodeType,
)  # fmt: skip
_CODE = (*_FUNCTIONS, types.ModuleType, type)
_HELD_BY_ALL = (*_FUNCTIONS, types.ModuleType, types.FrameType, types.TracebackType, type(os.environ))
# What may be shared is found by these, and by the memory of arrays.
_MUTABLE = (list, dict, set, bytearray, collections.deque, array.array)
_MOST_SHARED = 100

Call = Callable[..., object]


def described_call(
    target: Target | None, order: Message, *, node: str, root: Path, seed: Sequence[object]
) -> Message:
    """Make a call, and return what it gave: the result, arguments afterwards, gradients and generators.

    Its random numbers follow from the order's ``seed``. With ``nudge`` the last digits of its arguments are
    changed before. With ``dump`` objects that define ``==`` are kept in a file, with ``load`` compared.
    """
    answer: Message = {"gradients": [], "arguments": [], "cut": True}
    answer |= {"before": {}, "after": {}, "generators": {}, "passed": [], "shared": {}}
    file = f"result-{zlib.crc32(node.encode())}"

    def around(function: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
        names = _texts_of_place(root)
        given: Mapping[str, object] = {}
        before = Description(names, {})
        with in_time():
            given, answer["passed"] = _inputs(function, args, kwargs, target.file if target else "")
            before = Description(names, given)
            if order.get("nudge"):
                before.nudge()
        seed_generators(*seed, order.get("seed", 0))
        began = time.perf_counter()
        result = function(*args, **kwargs)
        seconds = time.perf_counter() - began
        answer["result"] = [{"path": "", "type": _name(result), "why": "cannot be read in time"}]
        with in_time():
            drawn = _states()
            found, after = Description(names, {"": result}), Description(names, given)
            gradients = found.gradients(before) if seconds <= _GRADIENT_S else {}
            answer.update(
                result=found.parts,
                gradients=Description(names, gradients).parts,
                arguments=after.parts,
                generators={**drawn, **after.generators},
                before=before.sums,
                after=after.sums,
                shared=found.shared_with(after),
                cut=found.cut or after.cut,
            )
            if order.get("dump"):
                found.dump(Path(order["dump"], file))
            if order.get("load"):
                answer["equal"] = found.equal_to(Path(order["load"], file))
        return result

    if target is not None:
        target.through(around)
    else:
        # What it returns is in another process, or a time.
        around(lambda: None, (), {})
    return answer


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """Interrupt what hangs as it is read, and go on without what raises."""

    def interrupt(*_: object) -> None:
        raise TimeoutError

    if threading.current_thread() is not threading.main_thread():
        with contextlib.suppress(Exception):
            yield
        return
    before = signal.signal(signal.SIGALRM, interrupt)
    timer = signal.setitimer(signal.ITIMER_REAL, _MOST_S, _MOST_S)
    try:
        with contextlib.suppress(Exception):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)


class Description:
    """The parts of some named objects, as far as there is time and room for them."""

    def __init__(
        self, places: Sequence[tuple[str, str]], values: Mapping[str, object], *, until: float | None = None
    ) -> None:
        self.parts: list[Message] = []
        self.sums: dict[str, int | None] = {}
        self.generators: dict[str, int] = {}
        self.cut = False
        self._places = places
        self._until = until or time.perf_counter() + _LIMIT_S
        self._left = _MOST_NUMBERS
        self._open: dict[int, str] = {}
        self._arrays: list[tuple[str, Any]] = []
        self._comparable: dict[str, object] = {}
        self._marks: Message = {}
        # They are kept, as another object may get the place of one that is gone.
        self._mutable: dict[object, tuple[str, object]] = {}
        for name, value in values.items():
            first = len(self.parts)
            self._visit(name, value)
            whole = json.dumps(self.parts[first:], default=repr).encode()
            self.sums[name] = None if self.cut else zlib.crc32(whole)

    def _visit(self, path: str, value: object, *, private: bool = False) -> None:
        if len(self.parts) >= _MOST_PARTS or time.perf_counter() > self._until or len(self._open) > _DEEPEST:
            self.cut = True
            return
        first, marks = len(self.parts), self._marks
        if private:
            self._marks = {**self._marks, "private": True}
        own = id(value)
        if type(value) in _PLAIN:
            self._describe(path, value)
        elif own in self._open:
            self._add(path, "cycle", value=self._open[own])
        else:
            self._open[own] = path
            try:
                if isinstance(value, _MUTABLE):
                    self._mutable.setdefault(own, (path, value))
                if "equality" not in self._marks and _defines_equality(value):
                    self._marks = {**self._marks, "equality": path or "."}
                    self._comparable[path or "."] = value
                self._describe(path, value)
            except Exception as error:  # noqa: BLE001 (the user's own objects raise anything)
                del self.parts[first:]
                self._add(path, _name(value), why=f"raises {type(error).__name__} as it is read")
            del self._open[own]
        self._marks = marks

    def _add(self, path: str, kind: str, **more: object) -> None:
        self.parts.append({"path": path, "type": kind, **more, **self._marks})

    def _describe(self, path: str, value: Any) -> None:  # noqa: ANN401, C901, PLR0912, PLR0915 (any object)
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        kind = _name(value)
        if _is_opaque(value) or ("private" in self._marks and _is_registry(value)):
            # Names, lines and caches are of the code, and no results.
            self._add(path, "function" if type(value) in _FUNCTIONS else kind, why="is not compared")
        elif isinstance(value, enum.Enum):
            self._add(path, kind, value=value.name)
        elif value is None or isinstance(value, bool):
            self._add(path, kind, value=value)
        elif isinstance(value, float):
            self._add(path, "float", value=float(value), dtype=_float_type())
        elif isinstance(value, int):
            if abs(value) < _LONG_INTEGER:
                self._add(path, "int", value=int(value))
            else:
                self._text(path, "int", hex(value))
        elif isinstance(value, str):
            self._text(path, kind, self._placed(str(value)))
        elif isinstance(value, bytes | bytearray | memoryview):
            self._text(path, kind, self._placed(bytes(value).decode("latin-1")))
        elif torch is not None and isinstance(value, torch.Tensor):
            self._tensor(path, value, torch)
        elif numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
            self._array(path, value, numpy)
        elif (state := _generator_state(value)) is not None:
            self.generators[path] = zlib.crc32(repr(state).encode())
        elif isinstance(value, type):
            self._add(path, kind, value=value.__qualname__)
        elif torch is not None and isinstance(value, torch.nn.Module):
            held = {**dict(value.named_parameters()), **dict(value.named_buffers())}
            self._attributes(path, kind, {**held, "training": value.training})
        elif hasattr(value, "state_dict") and type(value).__module__.startswith("torch.optim"):
            self._visit(path, value.state_dict())
        elif type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "to_numpy"):
            self._table(path, kind, value)
        elif isinstance(value, _MAPPINGS) or collections.abc.Mapping in type(value).__mro__:
            # Those that are only registered as mappings need not have a value for each key.
            self._mapping(path, kind, value)
        elif isinstance(value, tuple | list | collections.deque | array.array | collections.abc.ValuesView):
            self._sequence(path, kind, list(value), getattr(value, "_fields", None))
        elif isinstance(value, collections.abc.Set):
            self._sequence(path, kind, self._ordered(value))
        elif isinstance(value, range | slice | complex) or type(value).__module__ in _SHOWN:
            self._text(path, kind, self._placed(repr(value)))
        elif isinstance(value, io.BytesIO | io.StringIO):
            self._visit(path, value.getvalue())
        elif isinstance(value, collections.abc.Iterator | collections.abc.Awaitable):
            self._add(path, kind, why="reading uses up")
        elif isinstance(value, BaseException):
            self._add(path, kind)
            self._visit(f"{path}.args", value.args)
        else:
            self._object(path, kind, value)

    def _placed(self, text: str) -> str:
        """Return a text without the places of its side and process."""
        for place, name in self._places:
            text = text.replace(place, name)
        return text

    def _text(self, path: str, kind: str, text: str) -> None:
        shown = text if len(text) <= _LONG_TEXT else text[:_LONG_TEXT]
        self._add(path, kind, value=shown, length=len(text), sum=zlib.crc32(text.encode(errors="replace")))

    def _object(self, path: str, kind: str, value: object) -> None:
        held = _attributes_of(value)
        if held:
            self._attributes(path, kind, held)
            return
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:  # noqa: BLE001 (what cannot be copied raises anything)
            self._add(path, kind, why="cannot be copied")
            return
        self._add(path, kind)
        if isinstance(reduced, tuple):
            _, args, *rest = reduced
            state, items, pairs = (*rest, None, None, None)[:3]
            for number, part in enumerate((args, state, [*(items or ())], [*(pairs or ())])):
                self._visit(f"{path}.{number}", part)

    def _attributes(self, path: str, kind: str, held: Mapping[str, object]) -> None:
        self._add(path, kind, attributes=True)
        self._marks = {**self._marks, "within": kind}
        for name, value in held.items():
            self._visit(f"{path}.{name}", value, private=name.startswith("_"))

    def _mapping(self, path: str, kind: str, value: Mapping[Any, Any]) -> None:
        self._add(path, kind, length=len(value))
        if len(value) > _MOST_ELEMENTS:
            keys = self._ordered(value)
            self._sequence(f"{path}.keys()", "list", keys)
            self._sequence(f"{path}.values()", "list", [value[key] for key in keys])
            return
        for key in value:
            self._visit(f"{path}[{self._key(key)}]", value[key])

    def _key(self, key: object) -> str:
        if isinstance(key, str | int | float | bool | None):
            return self._placed(repr(key))
        return repr(self._parts_of(key))

    def _parts_of(self, value: object) -> list[object]:
        """Return the parts of an element by themselves, which give it a place in an order."""
        own = Description(self._places, {"": value}, until=self._until).parts
        return [part.get("value", part["type"]) for part in own] if len(own) > 1 else [own[0].get("value", 0)]

    def _ordered(self, values: Iterable[Any]) -> list[Any]:
        found = list(values)
        if len({type(one) for one in found}) == 1 and isinstance(found[0], str | int | float | bytes):
            return sorted(found)
        if len(found) > _MOST_ELEMENTS:
            self.cut = True
            return []
        return sorted(found, key=lambda one: repr(self._parts_of(one)))

    def _sequence(
        self, path: str, kind: str, values: Sequence[Any], names: Sequence[str] | None = None
    ) -> None:
        kinds = set(map(type, values)) if len(values) > _LONG_LIST else set()
        if kinds in ({float}, {int}, {bool}):
            with contextlib.suppress(OverflowError):
                packed = array.array("d" if kinds == {float} else "q", values)
                self._add(path, kind, length=len(values), of=kinds.pop().__name__)
                dtype = _float_type() if packed.typecode == "d" else "int"
                self._numbers(f"{path}[:]", dtype, (len(values),), packed)
                return
        self._add(path, kind, length=len(values))
        for number in _sample(len(values)):
            self._visit(f"{path}.{names[number]}" if names else f"{path}[{number}]", values[number])
        if kinds == {str} and len(values) > _MOST_ELEMENTS:
            self._add(f"{path}[:]", "str", value=zlib.crc32("\0".join(values).encode(errors="replace")))

    def _table(self, path: str, kind: str, value: Any) -> None:  # noqa: ANN401 (of pandas)
        if not hasattr(value, "columns"):
            self._add(path, f"{kind} {value.dtype}")
            self._visit(f"{path}.values", value.to_numpy())
            return
        self._add(path, kind, length=len(value))
        self._visit(f"{path}.columns", list(value.columns))
        self._visit(f"{path}.index", value.index)
        for number, name in enumerate(value.columns):
            self._visit(f"{path}[{name!r}]", value.iloc[:, number])

    def _array(self, path: str, value: Any, numpy: Any) -> None:  # noqa: ANN401 (of numpy)
        kind = f"{_name(value) if isinstance(value, numpy.ndarray) else 'ndarray'} {value.dtype}"
        if isinstance(value, numpy.float64):
            self._describe(path, float(value))
        elif isinstance(value, numpy.ma.MaskedArray):
            self._visit(f"{path}.mask", numpy.ma.getmaskarray(value))
            self._visit(path, value.filled(0))
        elif value.dtype.kind in "OVSU":
            self._add(path, kind, shape=value.shape)
            self._visit(f"{path}.tolist()", value.tolist())
        else:
            flat = numpy.asarray(value).reshape(-1)
            if value.dtype.kind in "mM":
                flat = flat.view("int64")
            elif value.dtype.kind == "c":
                flat = flat.astype("complex128").view("float64")
            elif value.dtype.kind == "f":
                self._arrays.append((path, value))
            owner = value
            while isinstance(owner.base, numpy.ndarray):
                owner = owner.base
            if value.size and isinstance(value, numpy.ndarray):
                self._mutable.setdefault(id(owner), (path, owner))
            self._numbers(path, str(value.dtype), value.shape, flat, kind=kind)

    def _tensor(self, path: str, value: Any, torch: Any) -> None:  # noqa: ANN401 (of torch)
        kind = f"{_name(value)} {str(value.dtype).removeprefix('torch.')}"
        self._arrays.append((path, value))
        if value.is_leaf and value.grad is not None:
            self._visit(f"{path}.grad", value.grad)
        with torch.no_grad():
            plain = value.detach()
            if plain.is_nested or plain.layout != torch.strided:
                dense = plain.to_dense if plain.numel() <= _MOST_NUMBERS else lambda: None
                plain = plain.to_padded_tensor(0.0) if plain.is_nested else dense()
            if plain is not None and plain.is_quantized:
                plain = plain.dequantize()
            if plain is None or plain.is_meta:
                self._add(path, kind, shape=list(value.shape), device=value.device.type, why="has no values")
                return
            if place := plain.untyped_storage().data_ptr() if plain.numel() else 0:
                self._mutable.setdefault((place, str(plain.device)), (path, plain))
            flat = plain.resolve_conj().resolve_neg().reshape(-1)
            if flat.is_complex():
                flat = torch.view_as_real(flat).reshape(-1)
            dtype = str(plain.dtype).removeprefix("torch.")
            if not flat.is_floating_point():
                flat = flat.to(torch.int64)
            elif flat.element_size() == 1:
                flat = flat.float()
            self._numbers(path, dtype, tuple(value.shape), flat, kind=kind, device=value.device.type)

    def _numbers(self, path: str, dtype: str, shape: Sequence[int], flat: Any, **more: object) -> None:  # noqa: ANN401 (an array of any library)
        """Add an array: all of its numbers where there is room, or else a sample and sums of its blocks."""
        count = len(flat)
        room = max(_FEWEST_NUMBERS, self._left)
        step = max(1, -(-count // room))
        numbers = flat[::step].tolist()
        self._left -= len(numbers)
        packed = array.array("d")
        for code in "qQd" if all(isinstance(one, int) for one in numbers) else "d":
            with contextlib.suppress(OverflowError):
                packed = array.array(code, numbers)
                break
        part = {
            "shape": list(shape),
            "dtype": dtype,
            "step": step,
            "code": packed.typecode,
            "numbers": base64.b64encode(packed.tobytes()).decode(),
            **({"sums": _block_sums(flat, count)} if step > 1 and count <= _MOST_SUMMED else {}),
        }
        self._add(path, str(more.pop("kind", dtype)), **part, **more)

    def nudge(self) -> None:
        """Change the last digits of half of the numbers in arrays, which moves results as rounding does."""
        for _, value in self._arrays:
            # Other types than floats have no digits to change.
            with contextlib.suppress(Exception):
                library = sys.modules["torch" if hasattr(value, "detach") else "numpy"]
                part = value.detach() if hasattr(value, "detach") else value
                part[::2] *= 1 + library.finfo(value.dtype).eps

    def gradients(self, inputs: Description) -> Mapping[str, object]:
        """Return the gradients of the sum of these tensors with respect to the leaves among the inputs."""
        torch = sys.modules.get("torch")
        if torch is None:
            return {}
        roots = [one for _, one in self._arrays if getattr(one, "grad_fn", None) is not None]
        leaves = {
            path: one for path, one in inputs._arrays if getattr(one, "requires_grad", False) and one.is_leaf
        }
        if not roots or not leaves:
            return {}
        try:
            with torch.enable_grad():
                whole = sum(one.sum().abs() if one.is_complex() else one.sum() for one in roots)
                found = torch.autograd.grad(whole, [*leaves.values()], allow_unused=True)
        except Exception:  # noqa: BLE001 (such as a graph that was used already)
            return {}
        return {f"gradient of {path}": one for path, one in zip(leaves, found, strict=True)}

    def shared_with(self, inputs: Description) -> Mapping[str, str]:
        """Return the paths of mutable parts that are, or share memory with, parts of inputs, with theirs."""
        shared: dict[str, str] = {}
        for key, (path, _) in self._mutable.items():
            if key in inputs._mutable and not any(map(path.startswith, shared)):
                shared[path] = inputs._mutable[key][0]
            if len(shared) >= _MOST_SHARED:
                break
        return shared

    def dump(self, file: Path) -> None:
        """Keep the objects that define ``==`` and can be copied."""
        kept: dict[str, bytes] = {}
        for path, value in self._comparable.items():
            with contextlib.suppress(Exception):
                kept[path] = pickle.dumps(value)
            if sum(map(len, kept.values())) > _MOST_PICKLED:
                kept.pop(path, None)
                break
        file.write_bytes(pickle.dumps(kept))

    def equal_to(self, file: Path) -> Mapping[str, bool | str]:
        """Return whether these objects equal those that were kept, or why that is not known."""
        found: dict[str, bool | str] = {}
        kept = pickle.loads(file.read_bytes()) if file.is_file() else {}  # noqa: S301 (of base's process)
        for path, value in self._comparable.items():
            if path not in kept:
                found[path] = "it cannot be copied"
                continue
            try:
                equal = pickle.loads(kept[path]) == value  # noqa: S301 (likewise)
                found[path] = equal if isinstance(equal, bool) else f"its == returns {_name(equal)}"
            except Exception as error:  # noqa: BLE001 (the user's own objects raise anything)
                found[path] = f"its == raises {type(error).__name__}"
        return found


def _float_type() -> str:
    # Items of tensors become floats.
    return "float32" if "torch" in sys.modules else "float64"


def _name(value: object) -> str:
    return type(value).__qualname__


def _sample(length: int) -> Iterable[int]:
    """Return which elements are described: some at equal distances, the first and the last among them."""
    if length <= _MOST_ELEMENTS:
        return range(length)
    return sorted({number * (length - 1) // (_MOST_ELEMENTS - 1) for number in range(_MOST_ELEMENTS)})


def _block_sums(flat: Any, count: int) -> list[list[float]]:  # noqa: ANN401 (an array of any library)
    """Return the sums and absolute sums of blocks in double precision; the last numbers have a block too."""
    blocks = min(_BLOCKS, count)
    size = count // blocks
    if isinstance(flat, array.array):
        parts = [flat[first : first + size] for first in range(0, count, size)]
        return [[float(sum(one)) for one in parts], [float(sum(map(abs, one))) for one in parts]]
    double = sys.modules["torch"].float64 if hasattr(flat, "is_floating_point") else "float64"
    sums: list[list[float]] = [[], []]
    for part in (flat[: size * blocks].reshape(blocks, size), flat[size * blocks :].reshape(1, -1)):
        sums[0] += part.sum(1, dtype=double).tolist()
        sums[1] += abs(part).sum(1, dtype=double).tolist()
    return sums


def _attributes_of(value: object) -> dict[str, object]:
    """Return the attributes that an object keeps, as its class declares them or by name."""
    if dataclasses.is_dataclass(value):
        names = [one.name for one in dataclasses.fields(value) if one.compare]
        return {name: getattr(value, name) for name in names if hasattr(value, name)}
    held: dict[str, object] = {}
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            name = f"_{kind.__name__.lstrip('_')}{slot}" if slot.startswith("__") else slot
            member = kind.__dict__.get(name)
            if isinstance(member, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):
                    held[name] = member.__get__(value, kind)
    with contextlib.suppress(AttributeError):
        held.update(object.__getattribute__(value, "__dict__"))
    own: Any = type(value)
    return {name: one for name, one in held.items() if name not in _cached_by(own)}


@functools.cache
def _cached_by(kind: Any) -> frozenset[str]:  # noqa: ANN401 (a class)
    """Return the attributes that a class computes once and keeps, which are no part of an object's value."""
    members = inspect.getmembers_static(kind)
    return frozenset(name for name, one in members if isinstance(one, functools.cached_property))


def _defines_equality(value: object) -> bool:
    """Return whether an object's class was written with an ``==`` of its own."""
    method = getattr(type(value), "__eq__", None)
    code = getattr(method, "__code__", None)
    # A dataclass compares its parts, and is compiled from a text.
    by_parts = isinstance(value, _CODE) or type(value).__module__.partition(".")[0] in _LIBRARIES
    return code is not None and not code.co_filename.startswith("<") and not by_parts


def _inputs(
    function: Call, args: Sequence[Any], kwargs: Mapping[str, Any], file: str
) -> tuple[dict[str, object], list[str]]:
    """Return what a call is given, by name: arguments, its object, the closure, and globals that it names.

    Those that a benchmark in ``file`` passes in are named besides: its code's own, and arguments of any code.
    """
    found: dict[str, object] = {}
    while isinstance(function, functools.partial):
        args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}
        function = function.func
    if (owner := getattr(function, "__self__", None)) is not None:
        found["self"] = owner
    try:
        found |= inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        found |= {f"argument {number}": one for number, one in enumerate(args, 1)} | dict(kwargs)
    passed = [name for name in found if name != "self"]
    code = getattr(function, "__code__", None)
    if isinstance(code, types.CodeType):
        for name, cell in zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=False):
            with contextlib.suppress(ValueError):
                found.setdefault(name, cell.cell_contents)
        known = getattr(function, "__globals__", {})
        found |= {name: known[name] for name in code.co_names if name in known and name not in found}
        passed = [*found] if code.co_filename == file else passed
    kept = {name: one for name, one in found.items() if not issubclass(type(one), type)}
    return {name: one for name, one in kept.items() if not _is_opaque(one)}, passed


def _is_opaque(value: object) -> bool:
    """Return whether an object is code, or belongs to the interpreter or a tool; a class is none."""
    kind = type(value)
    if issubclass(kind, (io.BytesIO, io.StringIO, type)):
        return False
    modules = (one.__module__.partition(".")[0] for one in kind.__mro__)
    return issubclass(kind, _HELD_BY_ALL) or not _OPAQUE.isdisjoint(modules)


def _is_registry(value: object) -> bool:
    """Return whether an object's own container is of code, such as what was built for each class."""
    if not isinstance(value, _MUTABLE):
        return False
    parts = [*itertools.islice(value.items() if isinstance(value, dict) else value, _FEWEST_NUMBERS)]
    return any(
        isinstance(one, _CODE) for part in parts for one in (part if isinstance(part, tuple) else (part,))
    )


def _texts_of_place(root: Path) -> list[tuple[str, str]]:
    """Return the places that differ from side to side and from process to process, longest first."""
    own = os.environ.get("TMPDIR", "")
    places = {own: "<tmp>", str(root): "<root>"}
    # Both sides' tools keep what they build beside that, under names of one length.
    places |= {f"{Path(own).parent}/caches-{side}": "<caches>" for side in ("base", "head")}
    return sorted(((place, name) for place, name in places.items() if place), key=lambda one: -len(one[0]))


def _generator_state(value: Any) -> object:  # noqa: ANN401 (of any library)
    """Return the state of a generator of random numbers, None of what is none."""
    drawing, torch = getattr(sys.modules.get("numpy"), "random", None), sys.modules.get("torch")
    if isinstance(value, random.Random):
        return value.getstate()
    if torch is not None and isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if drawing is None or not isinstance(value, drawing.Generator | drawing.RandomState):
        return None
    return value.bit_generator.state if hasattr(value, "bit_generator") else value.get_state()


def _states() -> dict[str, int]:
    """Return sums of the states of the generators that all code shares."""
    found = {"random": repr(random.getstate()).encode()}
    if "numpy.random" in sys.modules:
        kind, keys, *rest = sys.modules["numpy.random"].get_state()
        found["numpy.random"] = repr((kind, keys.tobytes(), rest)).encode()
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        found["torch"] = bytes(torch.get_rng_state().tolist())
        if torch.cuda.is_initialized():
            found["cuda"] = bytes(torch.cuda.get_rng_state().tolist())
    return {name: zlib.crc32(state) for name, state in found.items()}
