"""Divides the time of a cProfile among the user's own functions and what the thread waited for.

A library's time is handed to its callers in proportion to the time that each spent in it, up to the nearest
own functions. Time in which the thread stands still is a wait: it is handed up until a caller shows what it
was for. The parts add up to the whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from perfkit.model.readings import Call, FunctionTime, WaitTime

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
    by_time, by_calls = _Owners(functions, _seconds_of), _Owners(functions, _calls_of)
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
    """Finds for each function the own functions that answer for it, with shares that add up to one."""

    def __init__(self, functions: Sequence[FunctionTime], weight: Callable[[Call], float]) -> None:
        self._weight = weight
        library = [
            (place, call)
            for place, function in enumerate(functions)
            if not _answers(function)
            for call in function.callers
        ]
        circles = [(place, call.caller) for place, call in library if not _answers(functions[call.caller])]
        self._circle = strong_components(len(functions), circles)
        self._found: dict[int, dict[int | None, float]] = {
            self._circle[place]: {place: 1.0}
            for place, function in enumerate(functions)
            if _answers(function)
        }
        entering: dict[int, list[Call]] = defaultdict(list)
        for place, call in library:
            if self._circle[place] != self._circle[call.caller]:
                entering[self._circle[place]].append(call)
        callers = {
            circle: {self._circle[call.caller] for call in calls} for circle, calls in entering.items()
        }
        order = [*TopologicalSorter(callers).static_order()]
        passed = {} if weight is _calls_of else self._passed(functions, entering, order)
        for circle in order:
            if circle not in self._found:
                self._found[circle] = self._among(entering.get(circle, []), passed.get(circle, {}))

    def of(self, place: int) -> dict[int | None, float]:
        return self._found.get(self._circle[place], {None: 1.0})

    def _passed(
        self, functions: Sequence[FunctionTime], entering: Mapping[int, Sequence[Call]], order: Sequence[int]
    ) -> dict[int, dict[int, float]]:
        """Return what library code passes on to own functions, which have paid for that by themselves."""
        found: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for place, function in enumerate(functions):
            for call in function.callers if _answers(function) else ():
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
    sinks = [(one, whom) for one in functions if one.own_s > 0 and (whom := sink_of(one)) is not None]
    asked = {call.caller for sink, whom in sinks if whom in _NAMED_BY_CALLERS for call in sink.callers}
    whom_by_caller = _whom_by_caller(functions, asked)
    accounts: dict[str, Account] = defaultdict(Account)
    for sink, whom in sinks:
        _hand_up(sink, whom, whom_by_caller, accounts)
    return accounts


def sink_of(function: FunctionTime) -> str | None:
    """Return for whom a builtin makes its thread stand still, or None where it works."""
    if function.kind != "builtin":
        return None
    return next((whom for part, whom in _SINKS.items() if part in function.function), None)


def _hand_up(
    sink: FunctionTime,
    default: str,
    whom_by_caller: Mapping[int, Mapping[str, float]],
    accounts: dict[str, Account],
) -> None:
    parts = _parts(sink.callers) if default in _NAMED_BY_CALLERS else ()
    if not parts:
        _book(accounts[default], sink, sink.own_s, sink.calls)
    for call, share in parts:
        for whom, part in _whole(whom_by_caller[call.caller], default).items():
            _book(accounts[whom], sink, sink.own_s * share * part, round(call.calls * part))


def _book(account: Account, sink: FunctionTime, seconds: float, calls: int) -> None:
    account.seconds += seconds
    account.calls += calls
    account.through[callee_name(sink)] += seconds


def _whole(shares: Mapping[str, float], default: str) -> dict[str, float]:
    known = sum(shares.values())
    if known > 1 - _PRECISION:
        return {whom: share / known for whom, share in shares.items()}
    return {**shares, default: shares.get(default, 0.0) + 1 - known}


def _whom_by_caller(functions: Sequence[FunctionTime], asked: Iterable[int]) -> dict[int, dict[str, float]]:
    """Return for whom a call from each of the asked functions waited, in shares of it."""
    order, callers = _callers_first(functions, asked)
    known = {at: {whom: 1.0} for at in order if (whom := _waits_for(functions[at])) is not None}
    shares: dict[int, dict[str, float]] = {at: {} for at in order} | known
    below = _called_by(known, callers)
    to_solve = [at for at in order if at in below]
    for _ in range(_MOST_ROUNDS):
        moved = 0.0
        for at in to_solve:
            found: dict[str, float] = defaultdict(float)
            for call, part in callers[at]:
                for whom, within in shares[call.caller].items():
                    found[whom] += part * within
            moved = max(moved, sum(found.values()) - sum(shares[at].values()))
            shares[at] = found
        if moved < _PRECISION:
            break
    return shares


def _called_by(those: Iterable[int], callers: Mapping[int, Sequence[tuple[Call, float]]]) -> set[int]:
    callees: dict[int, list[int]] = defaultdict(list)
    for at, calls in callers.items():
        for call, _ in calls:
            callees[call.caller].append(at)
    found: set[int] = set()
    to_visit = [*those]
    while to_visit:
        new = [at for at in callees[to_visit.pop()] if at not in found]
        found.update(new)
        to_visit += new
    return found


def _callers_first(
    functions: Sequence[FunctionTime], asked: Iterable[int]
) -> tuple[list[int], dict[int, tuple[tuple[Call, float], ...]]]:
    order: list[int] = []
    callers: dict[int, tuple[tuple[Call, float], ...]] = {}
    # The stack is a list, as calls may nest deeper than Python lets a function call itself.
    to_visit = [(at, False) for at in asked]
    while to_visit:
        at, has_callers = to_visit.pop()
        if has_callers:
            order.append(at)
        elif at not in callers:
            one = functions[at]
            shows = _waits_for(one) is not None
            callers[at] = () if shows else _parts([call for call in one.callers if call.caller != at])
            to_visit.append((at, True))
            to_visit.extend((call.caller, False) for call, _ in callers[at])
    return order, callers


def _parts(callers: Sequence[Call]) -> tuple[tuple[Call, float], ...]:
    weights = [max(call.cumulative_s, 0.0) for call in callers]
    if not sum(weights):
        weights = [float(max(call.calls, 0)) for call in callers]
    whole = sum(weights)
    return tuple((call, weight / whole) for call, weight in zip(callers, weights, strict=True) if weight)


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
