"""Compares what the calls of both sides return and leave behind, and looks closer at gains.

Only where these differ is more asked: whether base agrees with itself in another process, how its results
move with another seed and with its arguments' last digits, and whether objects are equal by their own ``==``.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from perfkit.agent.channel import Message
from perfkit.agent.counters.model import Counts
from perfkit.agent.fresh import OTHER_FORMS
from perfkit.errors import NotMeasuredError
from perfkit.gating.judge import is_faster
from perfkit.gating.rules import ComparedBenchmark
from perfkit.model import SIDES, Side
from perfkit.model.comparisons import Comparison, Doubt, DoubtKind, ResultCompared
from perfkit.runner.lockstep.launch import Failure
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.lockstep.runner import BenchmarkError, Others, Runner
from perfkit.runner.lockstep.untimed import CountedSides, ask_results
from perfkit.units import listed

# What ``described_call`` of the agent answered, by benchmark.
Described = Mapping[str, Mapping[str, Any]]
Order = tuple[Side, Mapping[str, object]]
_Part = Mapping[str, Any]


class Ask(Protocol):
    """Calls each of some benchmarks once for each order, ``anew`` in processes with another hash seed."""

    def __call__(
        self, nodes: Sequence[str], orders: Sequence[Order], *, anew: bool = False
    ) -> Sequence[Described]:
        """Return what the calls give, by order."""


# Relative and absolute tolerances, those of torch.testing; other types are exact.
_TOLERANCES: Mapping[str, tuple[float, float]] = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    **dict.fromkeys(("float32", "complex64"), (1.3e-6, 1e-5)),
    **dict.fromkeys(("float64", "complex128", "float128", "longdouble"), (1e-7, 1e-7)),
}
# Sums in another order move a result by this many times as much as its arguments' last digits do.
_OF_ROUNDING = 32.0
_MOST_SHOWN = 40
# So many more processes of base are asked whether a difference may be one of processes.
_MORE_PROCESSES = 3
_COMPARED = ("result", "gradients", "arguments")
# Results are compared for so many other inputs of a form.
_MOST_INPUTS = 6
NOTHING = "its calls return nothing"
# What is no fault of a benchmark that is not faster.
_OF_GAINS: frozenset[DoubtKind] = frozenset({"other inputs", "aliasing", "own equality", "outside the clock"})
_NOT_REPRODUCIBLE = "its results differ from process to process on base itself"


@dataclass(frozen=True, kw_only=True)
class ResultFinding:
    """Whether a benchmark's calls gave the same on both sides, and the doubts about that."""

    result: ResultCompared
    doubts: tuple[Doubt, ...] = ()
    draws_otherwise: bool = False


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first part that differs: both sides' values in words, and by how much arrays differ at most.

    ``text`` is a clause about ``what`` differs. The part may be kept by an object that defines ``==``, in an
    attribute that is ``private``, or ``within`` one of any kind.
    """

    path: str
    text: str
    what: str = ""
    equality: str | None = None
    private: bool = False
    within: str | None = None


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far numbers may differ: by type, or by a ``relative`` share that a person set.

    ``slack`` has what more is allowed of the parts at a path; of ``random`` ones only the kind is compared.
    """

    relative: float | None = None
    slack: Mapping[str, float] = field(default_factory=dict)
    random: Collection[str] = ()

    def of(self, part: _Part) -> tuple[float, float]:
        """Return the relative and the absolute tolerance of a part."""
        relative, absolute = _TOLERANCES.get(part.get("dtype", ""), (0.0, 0.0))
        if self.relative is not None and part.get("dtype") in _TOLERANCES:
            relative, absolute = self.relative, 0.0
        return relative, absolute + self.slack.get(part["path"], 0.0)

    def is_random(self, path: str) -> bool:
        """Return whether a part, or one that it belongs to, differs from call to call on base itself."""
        return any(path == one or (path.startswith(one) and path[len(one)] in ".[") for one in self.random)


def with_result(one: Comparison, found: Mapping[str, ResultFinding]) -> Comparison:
    """Return a comparison with what is known of its calls' results."""
    finding = found.get(one.benchmark.name)
    if finding is None:
        return one
    doubts = (doubt for doubt in finding.doubts if doubt.kind not in _OF_GAINS or is_faster(one))
    return replace(one, result=finding.result).doubted(*doubts)


def drawn_otherwise(found: Mapping[str, ResultFinding]) -> tuple[str, ...]:
    """Return a note on the benchmarks that draw other random numbers and give the same results."""
    names = [name for name, one in found.items() if one.draws_otherwise]
    return (f"other random numbers are drawn, with the same results: {listed(names, 3)}",) if names else ()


def compare_calls(
    found: CountedSides, compared: Mapping[str, ComparedBenchmark], launcher: Launcher
) -> dict[str, ResultFinding]:
    """Compare what the calls of benchmarks gave, which were asked as they were counted or are asked now."""
    ask = _asking(launcher, lambda node: compared[node].limit_s)
    results: dict[Side, dict[str, Any]] = {side: dict(found.results.get(side, {})) for side in SIDES}
    if later := [node for node in compared if node in found.later]:
        for side, more in zip(SIDES, ask(later, [(side, {}) for side in SIDES]), strict=True):
            results[side].update(more)
    tolerances = {node: one.result for node, one in compared.items()}
    return compare_results(results, tolerances, ask, folder=launcher.folder)


def _asking(launcher: Launcher, limit_s: Callable[[str], float], **more: object) -> Ask:
    """Return what asks for results in processes of their own, by orders with ``more`` in them."""

    def ask(nodes: Sequence[str], orders: Sequence[Order], *, anew: bool = False) -> Sequence[Described]:
        if anew:
            launcher.renew(alone=True, whole=True)
        return ask_results(
            launcher, nodes, [(side, {**one, **more}) for side, one in orders], limit_s=limit_s
        )

    return ask


def doubts_of_new_inputs(
    launcher: Launcher, one: ComparedBenchmark, looks: Sequence[Mapping[Side, Look]]
) -> list[Doubt]:
    """Return a doubt where looks at a benchmark, whose own results are the same, saw others for new inputs.

    One input may be where both sides may differ; a second one, drawn by another seed, has to agree.
    """
    name = one.benchmark.name
    for form in OTHER_FORMS:
        ask = _asking(launcher, lambda _: one.limit_s, form=form)
        texts: list[str] = []
        for look in looks[:_MOST_INPUTS]:
            base, head = (look[side].others.get(form) for side in SIDES)
            if base is None or head is None or not _are_given_alike(base, head):
                continue
            # What is asked anew has the same inputs.
            launcher.layout = look["base"].layout
            both: Mapping[Side, Described] = {"base": {name: base}, "head": {name: head}}
            first = look["base"].others_at == "first"
            (found,) = compare_results(
                both, {name: one.result}, ask, folder=launcher.folder, first=first
            ).values()
            texts += [doubt.text for doubt in found.doubts if doubt.kind == "other result"]
            if len(texts) > 1:
                break
        if texts:
            launcher.renew()
        if len(texts) > 1:
            words, _, which = texts[0].partition(": ")
            return [Doubt(kind="other inputs", text=f"{words} for other inputs: {which}")]
    return []


def _are_given_alike(base: _Part, head: _Part) -> bool:
    """Return whether both sides had the same inputs: objects of the project may differ."""
    known = base["before"].keys() & head["before"].keys()
    return all(base["before"][one] == head["before"][one] for one in known)


def compare_results(
    found: Mapping[Side, Described],
    tolerances: Mapping[str, float | bool],
    ask: Ask,
    *,
    folder: Path,
    first: bool = True,
) -> dict[str, ResultFinding]:
    """Compare what both sides gave, by benchmark; one whose tolerance is False is left out.

    What did not come of the ``first`` calls of processes is compared as it is: those asked anew are first.
    """
    base, head = found["base"], found["head"]
    asked = [node for node, wanted in tolerances.items() if wanted is not False]
    nodes = [node for node in asked if node in base and node in head]
    relative = {node: None if (own := tolerances[node]) is True else float(own) for node in nodes}
    differ = [
        node
        for node in nodes
        if any(map(bool, _differences(base[node], head[node], Tolerance(relative=relative[node]))))
    ]
    result = {node: _not_compared("the call for it failed") for node in asked if node not in nodes}
    result |= {node: _agreeing(base[node], head[node]) for node in nodes if node not in differ}
    if differ:
        result |= _looked_closer(differ, relative, ask, folder, None if first else found)
    return {node: result[node] for node in asked}


def _looked_closer(
    nodes: Sequence[str],
    relative: Mapping[str, float | None],
    ask: Ask,
    folder: Path,
    kept: Mapping[Side, Described] | None,
) -> dict[str, ResultFinding]:
    base, nudged = ask(nodes, [("base", {"dump": str(folder)}), ("base", {"nudge": True})])
    (head,) = ask(nodes, [("head", {"load": str(folder)})])
    if kept is not None:
        base, head = kept["base"], kept["head"]
    again, other_seed = ask(nodes, [("base", {}), ("base", {"seed": 1})], anew=True)
    found = {}
    drawn: dict[str, set[str]] = {}
    for node in nodes:
        if any(node not in one for one in (base, nudged, head, again, other_seed)):
            found[node] = _not_compared("a call failed as it was made again")
            continue
        differ = _differences(again[node], other_seed[node], Tolerance(relative=relative[node]))
        # The same random numbers give the same results.
        drawn[node] = {one.path for one in differ} if _draw_otherwise(base[node], head[node]) else set()
    unlike: dict[str, set[str]] = {node: set() for node in drawn}
    left = [*drawn]
    for more in range(_MORE_PROCESSES + 1):
        for node in left:
            exact = Tolerance(relative=relative[node])
            unlike[node] |= _with_containers(
                (one.path for one in _differences(base[node], again[node], exact)), base[node]
            )
            tolerance = replace(
                exact, slack=_moved(base[node], nudged[node]), random={*unlike[node], *drawn[node]}
            )
            found[node] = _judged(
                base[node], head[node], tolerance, unlike=bool(unlike[node]), drawn=bool(drawn[node])
            )
        left = [node for node in left if found[node].result == "other"]
        if left and more < _MORE_PROCESSES:
            # Small results of one process are those of the next one by chance.
            (again,) = ask(left, [("base", {})], anew=True)
            left = [node for node in left if node in again]
    return found


def _with_containers(unlike: Iterable[str], base: _Part) -> set[str]:
    """Return paths that differ on base itself, with the containers of which most elements do.

    Elements in another order in each process are equal at some places by chance.
    """
    paths = {*unlike}
    differing = Counter(map(_container, paths))
    every = Counter(_container(part["path"]) for key in _COMPARED for part in base[key])
    return paths | {one for one, count in differing.items() if one and count > max(1, every[one] / 2)}


def _container(path: str) -> str:
    """Return the path of what has an element: ``.states`` of ``.states[3]``, "" where it is none."""
    return path[: path.rindex("[")] if path.endswith("]") else ""


def _judged(base: _Part, head: _Part, tolerance: Tolerance, *, unlike: bool, drawn: bool) -> ResultFinding:
    why, plain = None, None
    for one in _differences(base, head, tolerance):
        equal = head.get("equal", {}).get(one.equality) if one.equality else False
        if equal is False:
            return ResultFinding(result="other", doubts=(Doubt(kind="other result", text=one.text),))
        if equal is True and not one.private:
            text = f"equal by its own ==, but {one.what.lstrip('.')}"
            plain = plain or Doubt(kind="own equality", text=text)
        if isinstance(equal, str):
            why = why or f"its calls return {_article(_kind_at(base, one.equality))}, and {equal}"
    if why is not None:
        return _not_compared(why)
    if unlike:
        return _not_compared(_NOT_REPRODUCIBLE)
    if drawn:
        return _not_compared("its results are random: only their types and shapes are compared")
    return _agreeing(base, head, *([plain] if plain else ()))


def _kind_at(described: _Part, path: str | None) -> str:
    kinds = (part["type"] for part in described["result"] if part["path"] == (path or "").removesuffix("."))
    return next(kinds, "object")


def _not_compared(why: str) -> ResultFinding:
    return ResultFinding(result="not compared", doubts=(Doubt(kind="not compared", text=why),))


def _agreeing(base: _Part, head: _Part, *doubts: Doubt) -> ResultFinding:
    """Return the finding on results without a difference: they may hold nothing that can be compared."""
    doubts = (*doubts, *_of_inputs(base, head))
    kept = all(
        side["before"] == side["after"] and None not in side["after"].values() for side in (base, head)
    )
    nothing = [part["type"] for part in base["result"]] == ["NoneType"]
    if kept and nothing:
        return _not_compared(NOTHING)
    held = base["result"], head["result"]
    unread = [{part["path"]: part["why"] for part in parts if "why" in part} for parts in held]
    empty = any(map(_is_empty, held))
    for path, why in {**unread[1], **unread[0]}.items():
        if empty and kept and not nothing:
            return _not_compared(f"its calls return {_article(_kind_at(base, path))}, which {why}")
        if not empty and (path in unread[0]) != (path in unread[1]):
            return _not_compared(f"{path} {why}")
    return ResultFinding(result="same", doubts=doubts, draws_otherwise=_draw_otherwise(base, head))


def _of_inputs(base: _Part, head: _Part) -> Iterator[Doubt]:
    """Yield doubts where both sides are given other inputs, or only head's result shares parts with them."""
    passed = {name for name in base["passed"] if base["before"].get(name) != head["before"].get(name)}
    for one in _differing(base["arguments"], head["arguments"], Tolerance(), cut=base["cut"] or head["cut"]):
        # What an object of the project keeps may be its own.
        if one.within is None and _first_name(one.path) in passed:
            yield Doubt(kind="other inputs", text=f"works on other inputs: {one.text}")
            break
    for name, before in base["before"].items():
        # What is private may be a cache that head has no need of.
        changed = before is not None and base["after"].get(name) not in (None, before)
        of_code = name not in (*base["passed"], "self") and not name.startswith("_")
        if changed and of_code and name not in head["before"]:
            words = f"base's calls change `{name}`, which head's leave out or put off"
            yield Doubt(kind="outside the clock", text=words)
            break
    known = base["shared"]
    for path, place in head["shared"].items() if not base["cut"] else ():
        if not any(map(path.startswith, known)):
            words = f"{_cut(path.lstrip('.')) or 'memory'} with `{_first_name(place)}`"
            yield Doubt(kind="aliasing", text=f"its result shares {words}, which base's does not")
            break


def _first_name(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]


def _is_empty(parts: Sequence[_Part]) -> bool:
    """Return whether a result has no part that could be compared."""
    return all("why" in part or "attributes" in part or part["type"] == "NoneType" for part in parts)


def _draw_otherwise(base: _Part, head: _Part) -> bool:
    known = base["generators"].keys() & head["generators"].keys()
    return any(base["generators"][name] != head["generators"][name] for name in known)


def _article(kind: str) -> str:
    return f"{'an' if kind[:1].lower() in 'aeio' else 'a'} {kind}"


def _differences(base: _Part, head: _Part, tolerance: Tolerance) -> Iterator[Difference]:
    """Yield what differs of results, gradients and arguments, each with a clause about it."""
    cut = base["cut"] or head["cut"]
    for key, words in (("result", "returns another result"), ("gradients", "has another gradient")):
        for one in _differing(base[key], head[key], tolerance, cut=cut):
            yield replace(one, text=f"{words}: {one.text}")
    for one in _differing(base["arguments"], head["arguments"], tolerance, cut=cut):
        name = _first_name(one.path)
        before, after = ([side[key].get(name) for side in (base, head)] for key in ("before", "after"))
        changed = [first != last for first, last in zip(before, after, strict=True)]
        words = f"leaves its argument `{name}` otherwise"
        if before[0] != before[1]:
            if not _is_empty(base["result"]):
                # Inputs of another form may give the same result.
                continue
            words = f"is given another argument `{name}`"
        elif changed == [False, True]:
            words = f"leaves its argument `{name}` changed"
        elif changed == [True, False]:
            words = f"leaves its argument `{name}` as it was"
        yield replace(one, text=f"{words}: {one.text}")


def _differing(
    base: Sequence[_Part], head: Sequence[_Part], tolerance: Tolerance, *, cut: bool
) -> Iterator[Difference]:
    """Yield the parts that differ; what is within another one that differs is left out.

    An attribute that is private, or that base does not have, may come, go and be of another kind.
    """
    known = {part["path"]: part for part in head}
    seen = {part["path"] for part in base}
    over: list[str] = []
    for part in base:
        path, other = part["path"], known.get(part["path"])
        if any(path.startswith(one) for one in over):
            continue
        text = None
        if other is not None:
            text = _difference(part, other, tolerance)
        elif not (cut or part.get("private") or "why" in part or tolerance.is_random(path)):
            text = f"{_cut(path)} is missing on head"
        if text is not None:
            over.append(path)
            if other is None or not part.get("private") or part["type"] == other["type"]:
                marks = {key: part.get(key) for key in ("equality", "within")}
                yield Difference(path=path, text=text, what=text, private="private" in part, **marks)
    for part in head if not cut else ():
        # Elements that only head has make its container longer, and its attributes take nothing away.
        if part["path"] not in seen and part["path"].startswith("gradient") and "why" not in part:
            yield Difference(path=part["path"], text=f"{_cut(part['path'])} is new on head")


def _difference(base: _Part, head: _Part, tolerance: Tolerance) -> str | None:  # noqa: PLR0911
    """Return in words how a part differs, None where it does not."""
    path = base["path"]
    for key in ("type", "of", "device", "length", "shape"):
        if base.get(key) != head.get(key):
            if key == "length" and tolerance.is_random(path):
                continue
            return _sides(path, _kind(base, head), _kind(head, base))
    if "why" in base or "why" in head or tolerance.is_random(path):
        return None
    if "numbers" in base:
        return _of_numbers(base, head, tolerance)
    one, other = base.get("value"), head.get("value")
    if isinstance(one, float) and isinstance(other, float):
        relative, absolute = tolerance.of(base)
        if _close(one, other, relative, absolute):
            return None
        return _sides(path, *_shown_numbers(one, other)) + _relatively(abs(one - other), abs(one))
    if one != other:
        return _sides(path, _shown(base), _shown(head))
    return _sides(path, "a text", "another one") if base.get("sum") != head.get("sum") else None


def _kind(part: _Part, other: _Part) -> str:
    """Return a part's kind with what of it differs from another part."""
    kind = str(part["type"])
    if part.get("device") != other.get("device"):
        kind = f"{kind} on {part.get('device', 'no device')}"
    if part.get("shape") != other.get("shape") and "shape" in part:
        kind = f"{kind} of shape {tuple(part['shape'])}"
    if part.get("of") != other.get("of") and part.get("of"):
        kind = f"{kind} of {part['of']}"
    elif part.get("length") != other.get("length") and "length" in part:
        kind = f"{kind} of {part['length']}"
    return kind


def _sides(path: str, base: str, head: str) -> str:
    return f"{_cut(path)} {base} on base, {head} on head".lstrip()


def other_losses(base: Sequence[Counts | Failure], head: Sequence[Counts | Failure]) -> str | None:
    """Return in words the first loss of training runs that differs, None where none does."""
    for one, other in zip(base, head, strict=False):
        if isinstance(one, Failure) or isinstance(other, Failure):
            return None
        if len(one.losses) != len(other.losses):
            return _sides("", f"{len(one.losses)} backward passes", f"{len(other.losses)}")
        for number, (loss, changed) in enumerate(zip(one.losses, other.losses, strict=True), 1):
            (dtype, value), (_, found) = loss, changed
            if not _close(value, found, *Tolerance().of({"path": "", "dtype": dtype})):
                relative = _relatively(abs(value - found), abs(value))
                return _sides(f"number {number} is", *_shown_numbers(value, found)) + relative
    return None


def _shown(part: _Part) -> str:
    value = part.get("value")
    is_text = not isinstance(value, str) or part["type"] in ("str", "bytes", "bytearray")
    return _cut(repr(value) if is_text else str(value))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def _shown_numbers(one: float, other: float) -> tuple[str, str]:
    """Return two numbers with as many digits as show a difference."""
    pairs = ((f"{one:.{digits}g}", f"{other:.{digits}g}") for digits in (4, 6, 9, 17))
    return next((pair for pair in pairs if pair[0] != pair[1]), (repr(one), repr(other)))


def _relatively(difference: float, size: float) -> str:
    if not size or not difference or not math.isfinite(difference / size):
        return ""
    return f" (by {float(f'{100 * difference / size:.2g}'):g} %)"


def _close(one: float, other: float, relative: float, absolute: float) -> bool:
    if math.isnan(one) or math.isnan(other) or math.isinf(one) or math.isinf(other):
        return one == other or (math.isnan(one) and math.isnan(other))
    return abs(one - other) <= absolute + relative * max(abs(one), abs(other))


def _numbers(part: _Part) -> npt.NDArray[Any]:
    return np.frombuffer(base64.b64decode(part["numbers"]), dtype=part["code"])


def _of_numbers(base: _Part, head: _Part, tolerance: Tolerance) -> str | None:
    relative, absolute = tolerance.of(base)
    if base["numbers"] != head["numbers"]:
        one, other = _numbers(base), _numbers(head)
        with np.errstate(all="ignore"):
            difference = np.where(one == other, 0, np.abs(one.astype(float) - other))
            size = np.maximum(np.abs(one), np.abs(other))
            near = (difference <= absolute + relative * size) if relative or absolute else False
            close = (one == other) | near | (np.isnan(one) & np.isnan(other))
        if not close.all():
            first = int(np.argmin(close))
            with np.errstate(all="ignore"):
                most = float(np.nanmax(np.where(close | (one == 0), 0, difference / np.abs(one))))
            texts = _shown_numbers(one[first].item(), other[first].item())
            return _sides(_place(base, first), *texts) + _relatively(most, 1.0)
    if "sums" in base and "sums" in head:
        (one, size), (other, _) = np.array(base["sums"]), np.array(head["sums"])
        block = math.prod(base["shape"]) / max(len(one), 1)
        close = np.abs(one - other) <= absolute * block + relative * size + 1e-12 * size
        if not (close | (np.isnan(one) & np.isnan(other)) | (one == other)).all():
            first = int(np.argmin(close))
            return _sides(f"a sum of {base['path']}".rstrip(), *_shown_numbers(one[first], other[first]))
    return None


def _place(part: _Part, number: int) -> str:
    """Return the path of an array's number: ``[0].weights[3, 1]``."""
    if not part["shape"]:
        return str(part["path"])
    count = math.prod(part["shape"])
    every = number * part["step"] // (2 if part["dtype"].startswith("complex") else 1)
    place = np.unravel_index(min(every, count - 1), part["shape"])
    return f"{part['path'].removesuffix('[:]')}[{', '.join(map(str, place))}]"


def _moved(base: _Part, nudged: _Part) -> dict[str, float]:
    """Return how far numbers at each path may move by rounding, as the last digits of the arguments do."""
    slack: dict[str, float] = {}
    for key in _COMPARED:
        known = {part["path"]: part for part in nudged[key]}
        for part in base[key]:
            other = known.get(part["path"])
            if other is None or part["type"] != other["type"] or part.get("shape") != other.get("shape"):
                continue
            moved = 0.0
            if "numbers" in part:
                with np.errstate(all="ignore"):
                    difference = np.abs(_numbers(part).astype(float) - _numbers(other))
                    moved = float(np.nanmax(difference, initial=0.0))
            elif isinstance(part.get("value"), float) and isinstance(other.get("value"), float):
                moved = abs(part["value"] - other["value"])
            if part.get("dtype") in _TOLERANCES and math.isfinite(moved):
                slack[part["path"]] = _OF_ROUNDING * moved
    return slack


# Calls to their end take so long on base. What ends later is not waited for.
_TO_THE_END_S, _MOST_CALLS, _LIMIT_S = 0.15, 20_000, 1.0


@dataclass(frozen=True, kw_only=True)
class Look:
    """What one process of a side saw: ``times`` in seconds by the form of calls (``perfkit.agent.fresh``).

    A call took ``own_s`` by its own clock, and ``outside_s`` more with all that it leaves to others.
    ``touched`` are the files and processes that calls opened and started. The test took ``before_s`` up to
    its calls, besides calls like these. ``others`` are results for inputs drawn from ``layout``, by form, and
    ``others_at`` is when these calls were made: where they came first, the times are of later calls.
    """

    times: Mapping[str, float]
    own_s: float
    outside_s: float
    before_s: float
    follows: bool | None
    overwritten: bool
    touched: Collection[str]
    others: Mapping[str, Message]
    others_at: Others
    layout: int


def look_closer(
    launcher: Launcher,
    node: str,
    order: Sequence[Side],
    *,
    watch: bool,
    others: Others,
    limit_s: float,
    base_s: float,
) -> Mapping[Side, Look] | None:
    """Look at a benchmark once on each side, with inputs that are alike; None where it failed on one.

    With ``watch`` what calls open is noted, which makes their times longer; with ``others`` calls with other
    inputs are made, as the first or the last ones. A call takes ``base_s`` on base.
    """
    launcher.draw_layout()
    calls = int(min(max(_TO_THE_END_S / base_s, 1), _MOST_CALLS))

    def look(side: Side) -> Look:
        with _arrived(launcher, side, node, limit_s) as (runner, most, wishes):
            seen = runner.look(launcher.layout, launcher.root(side), watch=watch, others=others)
            if most == math.inf:
                whole_s, own_s = runner.call_to_the_end(calls, _LIMIT_S)
        made = int(min(calls, most))
        if most != math.inf:
            # What allows few calls makes them in another process.
            with _arrived(launcher, side, node, limit_s) as (runner, _, _):
                whole_s, own_s = runner.call_to_the_end(made, _LIMIT_S)
        call_s = seen["times"].get("same", own_s / made)
        return Look(
            times=seen["times"],
            follows=seen["follows"],
            overwritten=seen["overwritten"],
            touched=seen["touched"],
            others=seen["others"],
            others_at=others,
            own_s=own_s / made,
            outside_s=(whole_s - own_s) / made,
            before_s=wishes.get("set_up_s", 0.0) - wishes.get("warm_up", 0) * call_s,
            layout=launcher.layout,
        )

    try:
        return {side: look(side) for side in order}
    except (BenchmarkError, NotMeasuredError, OSError):
        # The verdicts are known by now.
        return None


@contextmanager
def _arrived(
    launcher: Launcher, side: Side, node: str, limit_s: float
) -> Iterator[tuple[Runner, float, Message]]:
    """Bring a process of a side to a benchmark; yield its runner, the calls it allows, and its wishes."""
    child = launcher.start(side, nodes=[node])
    try:
        runner = Runner(child, node, limit_s=limit_s)
        wishes = runner.arrive()
        rounds = wishes["rounds"]
        yield runner, math.inf if rounds is None else rounds * (wishes["loops"] or 1), wishes
    finally:
        child.end()
