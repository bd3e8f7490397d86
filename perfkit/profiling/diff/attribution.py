"""Divides the time of a cProfile among own functions and waits, and finds by which of them two differ.

A library's time is handed to its callers in proportion to the time that each spent in it, up to the nearest
own functions. Time in which the thread stands still is a wait: it is handed up until a caller shows what it
was for. The parts add up to the whole.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import NamedTuple, Protocol

from perfkit.errors import UsageError
from perfkit.model.profiles import Amount, Part, PartKind, Section, Unit, most_moved_first
from perfkit.model.readings import Call, FunctionTime, Reading, WaitTime
from perfkit.units import counted

LOADER_WORKERS = "the loader's workers"
DEVICE = "the device, or a copy"
BACKWARD = "the backward pass"
_THREAD = "another thread"
_PROCESS = "another process"
_NETWORK = "other ranks"
_NOBODY = "the clock"
_LOADER = "torch/utils/data/dataloader.py"
# Shares of functions that call each other in circles are exact enough once they move by less than this.
_PRECISION = 1e-5
_MOST_ROUNDS = 60


@dataclass
class Blame:
    """The time that one own function answers for, its calls, and the library functions that took the time."""

    function: FunctionTime | None
    seconds: float = 0.0
    calls: int = 0
    through: dict[str, Through] = field(default_factory=dict)

    def added(self, other: Blame) -> Blame:
        """Return the sum of both, as of this one's function."""
        names = dict.fromkeys([*self.through, *other.through])
        through = {
            name: Through(
                seconds=sum(one.through[name].seconds for one in (self, other) if name in one.through),
                calls=sum(one.through[name].calls for one in (self, other) if name in one.through),
                whom=next((one.through[name].whom for one in (self, other) if name in one.through), None),
            )
            for name in names
        }
        return Blame(self.function, self.seconds + other.seconds, self.calls + other.calls, through)


@dataclass
class Through:
    """The part of an own function's time that one callee took, its calls, and for whom it stands still."""

    seconds: float = 0.0
    calls: float = 0.0
    whom: str | None = None


def blame(functions: Sequence[FunctionTime], sinks: Sequence[str | None]) -> list[Blame]:
    """Return the time that each own function answers for, without waits; last that of no own function.

    ``sinks`` has what each function waits for, None where it works.
    """
    answering = [_answers(one) for one in functions]
    by_time = _Owners(functions, _seconds_of, answering, pays=True)
    by_calls = _Owners(functions, _calls_of, answering)
    blames: dict[int | None, Blame] = {}
    for place, function in enumerate(functions):
        # Time and calls are divided apart: who waits first pays for all, yet how often each called is known.
        time_shares, call_shares = by_time.of(place), by_calls.of(place)
        for owner in dict.fromkeys([*time_shares, *call_shares]):
            one = blames.setdefault(owner, Blame(None if owner is None else functions[owner]))
            if owner == place:
                one.seconds += function.own_s
                one.calls = function.calls
                continue
            seconds = function.own_s * time_shares.get(owner, 0.0)
            if sinks[place] is None:
                one.seconds += seconds
            through = one.through.setdefault(callee_name(function), Through(whom=sinks[place]))
            through.seconds += seconds
            through.calls += function.calls * call_shares.get(owner, 0.0)
    return sorted(blames.values(), key=lambda one: (one.function is None, -one.seconds))


def callee_name(function: FunctionTime) -> str:
    """Return a callee's short name: ``lock.acquire`` for "{method 'acquire' of '_thread.lock' objects}"."""
    words = function.function.strip("{}").split("'")
    if function.kind == "builtin" and len(words) >= 4:  # noqa: PLR2004 ("method 'x' of 'y' objects")
        # torch 2 names the type TensorBase, torch 1 _TensorBase.
        return f"{words[3].rpartition('.')[2].removeprefix('_').replace('TensorBase', 'Tensor')}.{words[1]}"
    if function.kind == "builtin":
        return function.function.strip("{}").removeprefix("built-in method ")
    return f"{function.function} ({function.file.rpartition('/')[2]})"


def _seconds_of(call: Call) -> float:
    return max(call.cumulative_s, 0.0)


def _calls_of(call: Call) -> float:
    return float(max(call.calls, 0))


# Up to 3.11 Python gives these parts of a function a frame of their own; the function answers for them.
_PARTS_OF_FUNCTIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


def _answers(function: FunctionTime) -> bool:
    return function.kind == "own" and function.function not in _PARTS_OF_FUNCTIONS


class _Owners:
    """Finds for each function the nearest callers that answer for it, with shares that add up to one.

    Where it ``pays``, what comes back to those that answer is no part of the shares of their callers.
    """

    def __init__(
        self,
        functions: Sequence[FunctionTime],
        weight: Callable[[Call], float],
        answering: Sequence[bool],
        *,
        pays: bool = False,
    ) -> None:
        self._weight = weight
        others = [
            (place, call)
            for place, function in enumerate(functions)
            if not answering[place]
            for call in function.callers
        ]
        circles = [(place, call.caller) for place, call in others if not answering[call.caller]]
        self._circle = strong_components(len(functions), circles)
        self._found: dict[int, dict[int | None, float]] = {
            self._circle[place]: {place: 1.0} for place, answer in enumerate(answering) if answer
        }
        entering: dict[int, list[Call]] = defaultdict(list)
        for place, call in others:
            if self._circle[place] != self._circle[call.caller]:
                entering[self._circle[place]].append(call)
        callers = {
            circle: {self._circle[call.caller] for call in calls} for circle, calls in entering.items()
        }
        order = [*TopologicalSorter(callers).static_order()]
        passed = self._passed(functions, answering, entering, order) if pays else {}
        for circle in order:
            if circle not in self._found:
                self._found[circle] = self._among(entering.get(circle, []), passed.get(circle, {}))

    def of(self, place: int) -> dict[int | None, float]:
        return self._found.get(self._circle[place], {None: 1.0})

    def _passed(
        self,
        functions: Sequence[FunctionTime],
        answering: Sequence[bool],
        entering: Mapping[int, Sequence[Call]],
        order: Sequence[int],
    ) -> dict[int, dict[int, float]]:
        """Return what other code passes on to those that answer, which have paid for that by themselves."""
        found: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for place, function in enumerate(functions):
            for call in function.callers if answering[place] else ():
                found[self._circle[call.caller]][place] += self._weight(call)
        for circle in reversed(order):
            whole = sum(map(self._weight, entering.get(circle, ()))) or 1.0
            for call in entering.get(circle, ()):
                for place, amount in found[circle].items():
                    found[self._circle[call.caller]][place] += amount * self._weight(call) / whole
        return found

    def _among(self, calls: Sequence[Call], passed: Mapping[int, float]) -> dict[int | None, float]:
        weights = [self._weight(call) for call in calls]
        left = [*weights]
        # Modules call modules by the same code of torch: the largest caller called the next one by it.
        for place, amount in sorted(passed.items(), key=lambda one: -one[1]):
            rest = amount
            others = [at for at, call in enumerate(calls) if call.caller != place]
            for at in sorted(others, key=lambda at: -left[at]):
                taken = min(left[at], rest)
                left[at], rest = left[at] - taken, rest - taken
        weights = left if sum(left) > _PRECISION * sum(weights) else weights
        if not sum(weights):
            weights = [_calls_of(call) for call in calls]
        whole = sum(weights)
        owners: dict[int | None, float] = defaultdict(float)
        for call, weight in zip(calls, weights, strict=True):
            if weight > 0:
                for owner, share in self.of(call.caller).items():
                    owners[owner] += share * (weight / whole)
        return dict(owners) or {None: 1.0}


@dataclass(frozen=True)
class _Place:
    """Functions of a file, which is known by the end of its path; without ``functions`` all of them."""

    file: str
    functions: frozenset[str]
    whom: str


# These callers show what the thread waits for; going up from the sink the first of them counts.
_WAITERS = (
    _Place(
        _LOADER, frozenset({"_try_get_data", "_get_data", "_next_data", "_shutdown_workers"}), LOADER_WORKERS
    ),
    _Place("torch/utils/data/_utils/worker.py", frozenset({"_worker_loop"}), "the main process"),
    _Place("torch/utils/data/_utils/pin_memory.py", frozenset(), LOADER_WORKERS),
    _Place("torch/distributed/distributed_c10d.py", frozenset(), _NETWORK),
    _Place("torch/cuda/__init__.py", frozenset({"synchronize"}), DEVICE),
    _Place("torch/cuda/streams.py", frozenset({"synchronize", "wait"}), DEVICE),
    _Place("subprocess.py", frozenset(), _PROCESS),
    _Place("multiprocessing/popen_fork.py", frozenset(), _PROCESS),
    _Place("multiprocessing/process.py", frozenset({"join"}), _PROCESS),
    _Place("multiprocessing/pool.py", frozenset(), _PROCESS),
    _Place("concurrent/futures/_base.py", frozenset(), _THREAD),
    _Place("threading.py", frozenset({"join"}), _THREAD),
)


_NAMES = frozenset(place.file.rpartition("/")[2] for place in _WAITERS)


# Only callers of a lock or a pipe show what it waits for; a device and a clock are known by the call itself.
_NAMED_BY_CALLERS = (_THREAD, _PROCESS)


# These builtins stand still, for the one named here unless a caller shows another.
_SINKS = {
    "acquire' of '_thread.": _THREAD,
    "poll' of 'select.": _PROCESS,
    "select.select": _PROCESS,
    "posix.waitpid": _PROCESS,
    "posix.read}": _PROCESS,
    "time.sleep": _NOBODY,
    "run_backward": BACKWARD,
    "'item' of 'torch._C.": DEVICE,
    "'tolist' of 'torch._C.": DEVICE,
    "'cpu' of 'torch._C.": DEVICE,
    "'numpy' of 'torch._C.": DEVICE,
    "'nonzero' of 'torch._C.": DEVICE,
    "'to' of 'torch._C.": DEVICE,
    "'cuda' of 'torch._C.": DEVICE,
    "_cuda_synchronize": DEVICE,
    "synchronize' of 'torch._C._CudaStreamBase": DEVICE,
    "synchronize' of 'torch._C._CudaEventBase": DEVICE,
}


@dataclass
class Account:
    """All waiting for one thing: seconds, calls, and the seconds that showed at each call."""

    seconds: float = 0.0
    calls: int = 0
    through: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def names(self) -> tuple[str, ...]:
        """Return the calls that the wait showed at, longest first."""
        return tuple(sorted(self.through, key=self.through.__getitem__, reverse=True))

    def share(self, name: str) -> float:
        """Return the part of the wait that showed at a call."""
        return self.through.get(name, 0.0) / self.seconds if self.seconds else 0.0


def fold_waits(functions: Sequence[FunctionTime]) -> tuple[WaitTime, ...]:
    """Return who was waited for, longest first, without calls that took no time."""
    waits = (
        WaitTime(whom=whom, seconds=account.seconds, calls=account.calls, through=account.names())
        for whom, account in wait_accounts(functions).items()
    )
    return tuple(sorted(waits, key=lambda wait: -wait.seconds))


def wait_accounts(functions: Sequence[FunctionTime]) -> Mapping[str, Account]:
    """Return the waits by whom they were for."""
    accounts: dict[str, Account] = defaultdict(Account)
    shown = [_waits_for(one) for one in functions]
    owners = _Owners(functions, _seconds_of, [whom is not None for whom in shown])
    for place, sink in enumerate(functions):
        default = sink_of(sink)
        if default is None or sink.own_s <= 0:
            continue
        # Of its time and its calls, by whom they are for.
        parts: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        if default in _NAMED_BY_CALLERS and sink.callers:
            for caller, share in owners.of(place).items():
                parts[(caller is not None and shown[caller]) or default][0] += sink.own_s * share
            for call in sink.callers:
                for caller, share in owners.of(call.caller).items():
                    parts[(caller is not None and shown[caller]) or default][1] += call.calls * share
        else:
            parts[default] = [sink.own_s, sink.calls]
        for whom, (seconds, calls) in parts.items():
            account = accounts[whom]
            account.seconds += seconds
            account.calls += round(calls)
            account.through[callee_name(sink)] += seconds
    return accounts


def sink_of(function: FunctionTime) -> str | None:
    """Return for whom a builtin makes its thread stand still, or None where it works."""
    if function.kind != "builtin":
        return None
    return next((whom for part, whom in _SINKS.items() if part in function.function), None)


def _waits_for(function: FunctionTime) -> str | None:
    # A module that is imported waits for nobody, and what it imports does not wait on its behalf.
    if function.function == "<module>" or function.file.rpartition("/")[2] not in _NAMES:
        return None
    for place in _WAITERS:
        if f"/{function.file}".endswith(f"/{place.file}") and (
            not place.functions or function.function in place.functions
        ):
            return place.whom
    return None


def strong_components(nodes: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return for each node the number of its strongly connected component; edges are (from, to)."""
    # Kosaraju: in the order of finishing, backwards edges stay inside a component.
    forward: list[list[int]] = [[] for _ in range(nodes)]
    backward: list[list[int]] = [[] for _ in range(nodes)]
    for tail, head in edges:
        forward[tail].append(head)
        backward[head].append(tail)
    found, seen = [-1] * nodes, [False] * nodes
    for root in reversed(_finished(range(nodes), forward, [False] * nodes)):
        if found[root] < 0:
            for node in _finished([root], backward, seen):
                found[node] = root
    return found


def _finished(roots: Sequence[int], edges: Sequence[Sequence[int]], seen: list[bool]) -> list[int]:
    order = []
    for root in roots:
        stack = [] if seen[root] else [(root, iter(edges[root]))]
        seen[root] = True
        while stack:
            node, heads = stack[-1]
            head = next((one for one in heads if not seen[one]), None)
            if head is None:
                order.append(node)
                stack.pop()
            else:
                seen[head] = True
                stack.append((head, iter(edges[head])))
    return order


_SAME_BATCH = 0.01
# A renamed function may differ by this share in its calls per unit of work.
_SAME_CALLS = 0.1
_NO_OWN = "code that no own function called"
# A call is named where at least this share of a wait shows at it.
_WORTH_NAMING = 0.1
# A changed function is suspected from this share of the time more on, and without its callees from that one.
_SUSPICIOUS, _WITHOUT_CALLEES = 0.25, 0.5
# A wait has moved where at least this share of it shows at other calls than before.
_MOST_OF_IT = 0.5


# The lines of changed functions, by file.
Lines = Mapping[str, Sequence[range]]


class _Timed(Protocol):
    """Anything with a time and a number of calls, which may not be known."""

    @property
    def seconds(self) -> float: ...
    @property
    def calls(self) -> float | None: ...


@dataclass(frozen=True, kw_only=True)
class Work:
    """The unit of work by which both profiles are divided, and how many units each did."""

    unit: Unit
    base: float
    head: float
    warnings: tuple[str, ...] = ()

    def amount(self, base: _Timed | None, head: _Timed | None) -> Amount:
        """Return the times and calls of something per unit of work; None is nothing on that side."""
        base_calls, head_calls = (one.calls if one else 0 for one in (base, head))
        return Amount(
            base_s=base.seconds / self.base if base else 0.0,
            head_s=head.seconds / self.head if head else 0.0,
            base_calls=None if base_calls is None else base_calls / self.base,
            head_calls=None if head_calls is None else head_calls / self.head,
        )


def equal_work(base: Reading, head: Reading) -> Work:
    """Return the unit in which two profiles can be compared: a step, or a sample where batches differ."""
    if base.origin != head.origin:
        raise UsageError(
            f"{base.name} is a {base.origin} and {head.name} a {head.origin}: the one does not see what the"
            " other does; compare two of a kind"
        )
    base_ranks, head_ranks = base.world_size or 1, head.world_size or 1
    if base_ranks != head_ranks:
        raise UsageError(
            f"{base.name} is of {base_ranks} ranks and {head.name} of {head_ranks}: a step is not the same"
            " work in both; profile both with the same world size"
        )
    base_steps, head_steps = (one.steps.count if one.steps else 0 for one in (base, head))
    if not base_steps and not head_steps:
        return Work(
            unit="whole run",
            base=1,
            head=1,
            warnings=("neither profile shows its steps: totals are compared",),
        )
    if not base_steps or not head_steps:
        with_steps, without = (base, head) if base_steps else (head, base)
        raise UsageError(
            f"{with_steps.name} holds {counted(base_steps or head_steps, 'training step')}, and"
            f" {without.name} shows none: their work cannot be made equal"
        )
    samples = base.samples, head.samples
    if samples[0] and samples[1]:
        base_batch, head_batch = samples[0] / base_steps, samples[1] / head_steps
        if abs(head_batch / base_batch - 1) > _SAME_BATCH:
            batches = f"batches of {base_batch:.0f} against {head_batch:.0f}: compared per sample"
            warnings = (*_unequal_steps(base_steps, head_steps, "sample"), batches)
            return Work(unit="sample", base=samples[0], head=samples[1], warnings=warnings)
    warnings = _unequal_steps(base_steps, head_steps, "step")
    return Work(unit="step", base=base_steps, head=head_steps, warnings=warnings)


def _unequal_steps(base: int, head: int, unit: str) -> tuple[str, ...]:
    if base == head:
        return ()
    many = f"{counted(base, 'step')} against {head}"
    return (f"{many}: compared per {unit}, and set-up weighs more in fewer",)


class Key(NamedTuple):
    """The file and name of a function; its line would change with every change above it."""

    file: str
    function: str


class Pair(NamedTuple):
    """A function on both sides, or on one side with None for the other."""

    base: Blame | None
    head: Blame | None


def pair_functions(base: Sequence[Blame], head: Sequence[Blame], work: Work) -> list[Pair]:
    """Return each own function once, with the function that it was on base.

    Functions pair by file and name, then by name and the longest common end of path (moved with their
    folder), then by name alone (moved), then by file, calls and callees (renamed), if no other fits.
    """
    bases, heads = _by_key(base), _by_key(head)
    pairs = [Pair(bases.pop(key), heads.pop(key)) for key in [*bases] if key in heads]
    pairs += _moved(bases, heads)
    pairs += _renamed(bases, heads, work)
    return pairs + [Pair(one, None) for one in bases.values()] + [Pair(None, one) for one in heads.values()]


def _by_key(blames: Sequence[Blame]) -> dict[Key, Blame]:
    found: dict[Key, Blame] = {}
    for one in blames:
        if one.function is None:
            continue
        key = Key(one.function.file, one.function.function)
        found[key] = found[key].added(one) if key in found else one
    return found


def _moved(bases: dict[Key, Blame], heads: dict[Key, Blame]) -> list[Pair]:
    by_name = _pairs_of(_by_end_of_path(bases, 0), _by_end_of_path(heads, 0))
    pairs: list[Pair] = []
    longest = max((key.file.count("/") + 1 for key in [*bases, *heads]), default=0)
    for parts in range(longest, 0, -1):
        alike = _pairs_of(_by_end_of_path(bases, parts), _by_end_of_path(heads, parts))
        pairs += [Pair(bases.pop(old), heads.pop(new)) for old, new in alike]
    # Of several functions of one name, the two that are left over at last need not be the same.
    left = [(old, new) for old, new in by_name if old in bases and new in heads]
    return pairs + [Pair(bases.pop(old), heads.pop(new)) for old, new in left]


def _by_end_of_path(keys: Iterable[Key], parts: int) -> dict[Key, list[Key]]:
    found: dict[Key, list[Key]] = defaultdict(list)
    for key in keys:
        path = key.file.split("/")
        # A lambda is known by its file alone, and an __init__.py by its package.
        least = 0 if not key.function.startswith("<") else 2 if path[-1] == "__init__.py" else 1
        if least <= parts <= len(path):
            found[Key("/".join(path[len(path) - parts :]), key.function)].append(key)
    return found


def _pairs_of(olds: Mapping[Key, list[Key]], news: Mapping[Key, list[Key]]) -> list[tuple[Key, Key]]:
    both = sorted(olds.keys() & news.keys())
    return [(olds[end][0], news[end][0]) for end in both if len(olds[end]) == len(news[end]) == 1]


def _renamed(bases: dict[Key, Blame], heads: dict[Key, Blame], work: Work) -> list[Pair]:
    alike = [
        (old, new)
        for old in sorted(bases)
        for new in sorted(heads)
        if old.file == new.file and _alike(bases[old], heads[new], work)
    ]
    olds, news = Counter(old for old, _ in alike), Counter(new for _, new in alike)
    clear = [(old, new) for old, new in alike if olds[old] == news[new] == 1]
    return [Pair(bases.pop(old), heads.pop(new)) for old, new in clear]


def _alike(old: Blame, new: Blame, work: Work) -> bool:
    before, after = old.calls / work.base, new.calls / work.head
    same_calls = abs(after - before) <= _SAME_CALLS * max(before, after)
    shared = old.through.keys() & new.through.keys()
    either = old.through.keys() | new.through.keys()
    return same_calls and (not either or len(shared) * 2 >= len(either))


def function_section(
    base: Reading, head: Reading, work: Work, *, title: str = "functions", kind: PartKind = "own code"
) -> Section:
    """Return the own functions and the waits that make up both profiles, the most moved first."""
    base_blames, head_blames = (
        blame(one.functions, [sink_of(function) for function in one.functions]) for one in (base, head)
    )
    parts = [_function_part(pair, work, kind) for pair in pair_functions(base_blames, head_blames, work)]
    nobody = Pair(
        *(next((one for one in side if one.function is None), None) for side in (base_blames, head_blames))
    )
    if nobody.base or nobody.head:
        amount, through = work.amount(*nobody), _through(nobody, work)
        parts.append(Part(name=_NO_OWN, kind="library", amount=amount, through=through))
    olds, news = wait_accounts(base.functions), wait_accounts(head.functions)
    for whom in dict.fromkeys([*olds, *news]):
        old, new = olds.get(whom, Account()), news.get(whom, Account())
        parts.append(
            Part(
                name=f"waiting for {whom}",
                kind="wait",
                place=_shown_at(new) or _shown_at(old),
                was=_shown_at(old) if _shows_elsewhere(old, new) else "",
                amount=work.amount(old, new),
            )
        )
    return Section(
        title=title,
        whole=Amount(base_s=base.total_s / work.base, head_s=head.total_s / work.head),
        parts=most_moved_first(parts),
    )


def quietest(turns: Sequence[tuple[Reading, int]]) -> tuple[Reading, int]:
    """Return the shortest cProfile of several with their calls, in which no function takes more than in any.

    Other work on the machine makes some functions look slow in each.
    """
    least: dict[tuple[str, int, str], float] = {}
    for reading, calls in turns:
        for one in reading.functions:
            key = one.file, one.line, one.function
            least[key] = min(least.get(key, math.inf), one.own_s / calls)
    shortest, calls = min(turns, key=lambda turn: turn[0].total_s / turn[1])
    functions = tuple(
        replace(one, own_s=least[one.file, one.line, one.function] * calls) for one in shortest.functions
    )
    return replace(shortest, functions=functions, total_s=math.fsum(one.own_s for one in functions)), calls


def changed_only(reading: Reading, lines: Lines) -> Reading:
    """Return a cProfile in which only changed code is own, which answers for unchanged code it calls."""
    functions = (
        replace(one, kind="library")
        if one.kind == "own" and not any(one.line in found for found in lines.get(one.file, ()))
        else one
        for one in reading.functions
    )
    return replace(reading, functions=tuple(functions))


def find_suspect(section: Section, base: Reading, head: Reading, work: Work) -> Part | None:
    """Return the changed function that took most of the time more, None where none did.

    One that took the time itself comes before one that did with the unchanged code that it calls, which may
    have moved by chance.

    Args:
        section: What differs between all functions.
        base: The profile of base in which only changed code is own.
        head: The same of head.
        work: By what both are divided.
    """
    suspected = function_section(base, head, work).parts
    with_callees = {part.place: part for part in suspected if part.place and part.kind == "own code"}
    alone = [part for part in section.parts if part.place in with_callees]
    if not with_callees or not alone:
        return None
    longest, itself = (
        max(parts, key=lambda part: part.amount.moved_s) for parts in (with_callees.values(), alone)
    )
    if longest.amount.moved_s <= max(0.0, _SUSPICIOUS * section.whole.moved_s):
        # Where other work moved the times, the calls that are made are the same in each run.
        return next((part for part in alone if _calls_more(with_callees[part.place])), None)
    return itself if itself.amount.moved_s >= _WITHOUT_CALLEES * longest.amount.moved_s else longest


def _calls_more(part: Part) -> bool:
    """Return whether a function makes more calls."""
    calls = ((one.amount.base_calls, one.amount.head_calls) for one in part.through)
    return any(base is not None and head is not None and head > base for base, head in calls)


def _function_part(pair: Pair, work: Work, kind: PartKind) -> Part:
    new = pair.head.function if pair.head else None
    old = pair.base.function if pair.base else None
    shown = new or old
    assert shown is not None  # noqa: S101 (a pair has at least one side)
    renamed = old is not None and (old.file, old.function) != (shown.file, shown.function)
    return Part(
        name=shown.function,
        kind=kind,
        place=f"{shown.file}:{shown.line}",
        was=f"{old.function}  {old.file}:{old.line}" if old and renamed else "",
        amount=work.amount(*pair),
        through=_through(pair, work),
    )


def _through(pair: Pair, work: Work) -> tuple[Part, ...]:
    base, head = (one.through if one else {} for one in pair)
    parts = []
    for name in dict.fromkeys([*base, *head]):
        old, new = base.get(name), head.get(name)
        whom = (old or new or Through()).whom
        kind: PartKind = "wait" if whom else "library"
        parts.append(Part(name=name, kind=kind, place=whom or "", amount=work.amount(old, new)))
    return most_moved_first(parts)


def _shown_at(account: Account) -> str:
    longest, *others = account.names() or ("",)
    return ", ".join([longest, *(name for name in others[:1] if account.share(name) >= _WORTH_NAMING)])


def _shows_elsewhere(old: Account, new: Account) -> bool:
    if not old.seconds or not new.seconds:
        return False
    moved = sum(max(new.share(name) - old.share(name), 0.0) for name in new.through)
    return moved >= _MOST_OF_IT and old.names()[0] != new.names()[0]
