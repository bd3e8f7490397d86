"""Launches that are not timed: counters, instructions under callgrind, and cProfile.

Nothing is timed while counting, so both sides are counted at the same time and neither has to be stopped.
"""

from __future__ import annotations

import base64
import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from perfkit.agent.channel import ChannelClosedError, ChannelTimeoutError, Message
from perfkit.agent.counters.instructions import (
    TURNS,
    WARM_UP,
    build_requests,
    instructions_by_function,
)
from perfkit.agent.counters.model import INSTRUCTIONS, MOST_KEPT_S, Cause, Count, Counts
from perfkit.agent.provenance import foreign_in_words
from perfkit.model import SIDES, Side, Status
from perfkit.runner.commands import fixed_environment
from perfkit.runner.lockstep.children import Assignment, Child, FreshProcesses
from perfkit.runner.lockstep.launch import (
    NOT_PROVEN,
    Failure,
    SideReport,
    are_alike,
    ended,
    failure_of,
    joined_report,
    read_report,
)
from perfkit.runner.lockstep.launcher import Launcher, MeasuredTrees
from perfkit.runner.lockstep.runner import BenchmarkError, Runner

# What torch raises on a device without memory left.
_DEVICE_FULL = "OutOfMemoryError"
_IMPORT_LIMIT_S = 30.0
# What was counted in a process that a benchmark ended is counted once more, in a process without that one.
_TRIES = 2
# However little time is left, what a call keeps is looked for in this many CPU seconds.
_LEAST_KEPT_S = 0.5


@dataclass(frozen=True, kw_only=True)
class CountedSides:
    """The counts of each benchmark on each side, what failed, and what the sides reported at their end.

    ``results`` are what calls gave; those that may not be called often enough have to be asked ``later``.
    """

    counts: Mapping[Side, Mapping[str, Counts]]
    failures: tuple[Failure, ...]
    reports: Mapping[Side, SideReport]
    results: Mapping[Side, Mapping[str, Message]] = field(default_factory=dict)
    later: frozenset[str] = frozenset()


def count_benchmarks(
    launcher: Launcher,
    nodes: Sequence[str],
    *,
    limit_s: Callable[[str], float],
    on_benchmark: Callable[[str], None],
    names: Sequence[Side] = SIDES,
    uncounted: AbstractSet[str] = frozenset(),
    results_of: AbstractSet[str] = frozenset(),
    until: float = math.inf,
) -> CountedSides:
    """Count each benchmark on both sides at once, or on one; ``on_benchmark`` receives each node id before.

    What the calls of ``results_of`` give is described before, of those ``uncounted`` nothing else. What calls
    keep is looked for less long where the benchmarks that are left would not end ``until`` then, on the
    monotonic clock.

    A benchmark that kills or hangs its process has no counts on that side; new processes count the others,
    those as well that were counted before it, since the process ended without the proof of its code.
    Where both sides have no room on an accelerator, or need the same port or lock, each is counted alone.
    """
    launcher.draw_layout()
    alone = [node for node in nodes if len(names) > 1 and launcher.residents.are_apart(node)]
    together = [node for node in nodes if node not in alone]
    found: list[CountedSides] = []

    def count(nodes: Sequence[str], names: Sequence[Side]) -> CountedSides:
        sides = [_Side(launcher, side, nodes, uncounted, {node: {} for node in results_of}) for side in names]
        return _count(sides, nodes, limit_s, on_benchmark, until=until)

    if together or not alone:
        found.append(count(together, names))
    crowded = {one.node for part in found for one in part.failures if _needs_all(one) and len(names) > 1}
    alone += [node for node in together if node in crowded]
    if not alone:
        return found[0]
    return _joined(found, [count(alone, [side]) for side in names], crowded)


def ask_results(
    launcher: Launcher,
    nodes: Sequence[str],
    orders: Sequence[tuple[Side, Mapping[str, object]]],
    *,
    limit_s: Callable[[str], float],
) -> list[Mapping[str, Message]]:
    """Return what a call of each benchmark gives in a process for each order, from the inputs drawn last."""
    apart = any(launcher.residents.are_apart(node) for node in nodes)
    found: list[Mapping[str, Message]] = []
    for together in [[one] for one in orders] if apart else [orders]:
        sides = [
            _Side(launcher, side, nodes, frozenset(nodes), dict.fromkeys(nodes, order))
            for side, order in together
        ]
        _count(sides, nodes, limit_s, lambda _: None)
        found += [one.results for one in sides]
    return found


def _needs_all(failure: Failure) -> bool:
    return failure.device_full or failure.in_use


def _joined(
    together: Sequence[CountedSides], apart: Sequence[CountedSides], crowded: AbstractSet[str]
) -> CountedSides:
    """Return what was counted together and apart, without the failures of what was counted once more."""
    parts = (*together, *apart)
    alike = _failed_alike([part.failures for part in apart])
    kept = [one for part in together for one in part.failures if one.node not in crowded]
    kept += [replace(one, both=one.node in alike) for part in apart for one in part.failures]
    reports = {side: [part.reports[side] for part in parts if side in part.reports] for side in SIDES}
    return CountedSides(
        counts={
            side: {node: counts for part in parts for node, counts in part.counts.get(side, {}).items()}
            for side in SIDES
            if any(side in part.counts for part in parts)
        },
        results={
            side: {node: one for part in parts for node, one in part.results.get(side, {}).items()}
            for side in SIDES
        },
        later=frozenset[str]().union(*(part.later for part in parts)),
        failures=tuple(kept),
        reports={side: joined_report(known) for side, known in reports.items() if known},
    )


def _failed_alike(by_side: Sequence[Sequence[Failure]]) -> AbstractSet[str]:
    ends = [{failure.node: failure for failure in failures} for failures in by_side]
    return {node for node in ends[0] if are_alike([one.get(node) for one in ends])} if ends else set()


def _count(
    sides: Sequence[_Side],
    nodes: Sequence[str],
    limit_s: Callable[[str], float],
    on_benchmark: Callable[[str], None],
    *,
    until: float = math.inf,
) -> CountedSides:
    wanted = nodes
    try:
        for _ in range(_TRIES):
            for place, node in enumerate(wanted):
                on_benchmark(node)
                share_s = (until - time.monotonic()) / (len(wanted) - place)
                for one in sides:
                    one.begin(node, limit_s(node), kept_s=min(max(share_s, _LEAST_KEPT_S), MOST_KEPT_S))
                for one in sides:
                    one.finish(node)
                for one in sides[1:]:
                    # What is the same is kept once.
                    if node in one.results and one.results[node] == sides[0].results.get(node):
                        one.results[node] = sides[0].results[node]
            for one in sides:
                one.prove()
            wanted = [node for node in nodes if any(node in one.wanted for one in sides)]
        for one in sides:
            one.give_up()
    finally:
        for one in sides:
            one.end()
    alike = _failed_alike([one.failures for one in sides])
    return CountedSides(
        counts={one.side: one.counts for one in sides},
        failures=tuple(
            replace(failure, both=failure.node in alike) for one in sides for failure in one.failures
        ),
        reports={one.side: joined_report(one.reports) for one in sides if one.reports},
        results={one.side: one.results for one in sides},
        later=frozenset[str]().union(*(one.later for one in sides)),
    )


@dataclass(frozen=True, kw_only=True)
class CountedSteps:
    """A training step's counts in each run of a side, or why there are none, and the files ``loaded``."""

    runs: Mapping[Side, Sequence[Counts | Failure]]
    loaded: frozenset[str]


def count_training(
    launcher: Launcher,
    places: Mapping[Side, str],
    *,
    steps: int,
    runs: int,
    limit_s: float,
    sides: Sequence[Side] = SIDES,
) -> CountedSteps:
    """Count the last of ``steps`` steps of a training loop, in ``runs`` processes of each side at once.

    Each run draws other inputs, which are alike on both sides. Where they have no room on an accelerator
    together, or need the same port or lock, one is counted after the other.
    """
    wanted = [sides] * runs
    counted = _counted_runs(launcher, places, wanted, steps, limit_s)
    failed = [one for each in counted.runs.values() for one in each if isinstance(one, Failure)]
    if not any(_DEVICE_FULL in one.message or one.in_use for one in failed):
        return counted
    parts = [_counted_runs(launcher, places, [[side]], steps, limit_s) for side in SIDES for _ in range(runs)]
    return CountedSteps(
        runs={side: [one for part in parts for one in part.runs.get(side, ())] for side in SIDES},
        loaded=frozenset[str]().union(*(part.loaded for part in parts)),
    )


def _counted_runs(
    launcher: Launcher, places: Mapping[Side, str], runs: Sequence[Sequence[Side]], steps: int, limit_s: float
) -> CountedSteps:
    """Count these runs of sides, all at once; the sides of one run draw the same inputs."""
    children: list[Child] = []
    for sides in runs:
        launcher.draw_layout()
        children += [launcher.start_training(side, places[side], steps=steps) for side in sides]
    found: dict[Side, list[Counts | Failure]] = {child.side: [] for child in children}
    loaded: set[str] = set()
    try:
        for child in children:
            counts = _counted_steps(child, places[child.side], limit_s)
            # Failed processes are checked too, since they may have failed because they ran other code.
            report = read_report(child) if isinstance(counts, Counts) or counts.raised else None
            if report is not None and report.foreign:
                counts = _failure(child, places[child.side], "error", _foreign(report.foreign))
            found[child.side].append(counts)
            loaded.update(report.loaded if report is not None else ())
    finally:
        for child in children:
            child.end()
    return CountedSteps(runs=found, loaded=frozenset(loaded))


def time_imports(launcher: Launcher, files: tuple[str, ...], order: Sequence[Side]) -> Mapping[Side, float]:
    """Return the seconds that each side takes to import what files of benchmarks import of it.

    It has a process of its own. A side that cannot import them alone is left out.
    """
    found: dict[Side, float] = {}
    for side in order:
        child = launcher.start_import(side, files)
        try:
            answer = child.receive(_IMPORT_LIMIT_S)
            report = read_report(child)
        except (ChannelClosedError, ChannelTimeoutError):
            continue
        finally:
            child.end()
        if report is not None and not report.foreign and "seconds" in answer:
            found[side] = answer["seconds"]
    return found


def _failure(child: Child, place: str, status: Status, message: str) -> Failure:
    return Failure(node=place, side=child.side, status=status, message=message)


def _counted_steps(child: Child, place: str, limit_s: float) -> Counts | Failure:
    try:
        answer = child.receive(limit_s)
    except ChannelTimeoutError:
        return _failure(child, place, "timeout", f"was not done within {limit_s:g} s")
    except ChannelClosedError:
        last = child.last_words()
        return _failure(child, place, "error", f"its process ended before its steps were counted; {last}")
    if answer["kind"] == "done":
        return _failure(child, place, "error", _foreign(answer["foreign"]))
    if "problem" in answer:
        return replace(_failure(child, place, "error", answer["problem"]), raised=True)
    return msgspec.convert(answer, Counts)


def _foreign(modules: Mapping[str, str]) -> str:
    return f"{foreign_in_words(modules)}, not from the checkout"


class _Side:
    """One side's process and what it has counted, none of ``uncounted``; ``orders`` ask for results."""

    def __init__(
        self,
        launcher: Launcher,
        side: Side,
        nodes: Sequence[str],
        uncounted: AbstractSet[str],
        orders: Mapping[str, Mapping[str, object]],
    ) -> None:
        self._launcher, self.side = launcher, side
        self._uncounted, self._orders = uncounted, orders
        self.results: dict[str, Message] = {}
        self.later: set[str] = set()
        self._child: Child | None = launcher.start(side, nodes=nodes)
        self._runner: Runner | None = None
        self._unproven: list[str] = []
        self._dropped: list[str] = []
        self.wanted: Sequence[str] = nodes
        self.counts: dict[str, Counts] = {}
        self.failures: list[Failure] = []
        self.reports: list[SideReport] = []

    def begin(self, node: str, limit_s: float, *, kept_s: float) -> None:
        """Order its process to count a benchmark, without waiting; start a process if there is none."""
        self._runner = None
        if node not in self.wanted:
            return
        if self._child is None:
            self._child = self._launcher.start(self.side, nodes=self.wanted[self.wanted.index(node) :])
        self._runner = Runner(self._child, node, limit_s=limit_s)
        try:
            self._runner.arrive()
            self._runner.begin_counting(
                self._launcher.root(self.side),
                counts=node not in self._uncounted,
                result=self._orders.get(node),
                kept_s=kept_s,
            )
        except BenchmarkError as error:
            self._fail(node, error)

    def finish(self, node: str) -> None:
        """Wait for the counts, unless the benchmark has failed already."""
        if self._runner is None:
            return
        try:
            answer = self._runner.finish_counting()
            if node not in self._uncounted:
                self.counts[node] = msgspec.convert(answer, Counts)
            if "result" in answer:
                self.results[node] = answer["result"]
            if "later" in answer:
                self.later.add(node)
            self._unproven.append(node)
        except BenchmarkError as error:
            self._fail(node, error)

    def prove(self) -> None:
        """Keep the report that its process sends at its end; what has none is ``wanted`` once more."""
        if self._child is not None:
            report = read_report(self._child)
            if report is not None:
                self.reports.append(report)
            else:
                self._drop()
            self.end()
        self.wanted, self._dropped = self._dropped, []

    def give_up(self) -> None:
        """Take what no process has proved for failed."""
        self.failures += [
            Failure(node=node, side=self.side, status="error", message=NOT_PROVEN) for node in self.wanted
        ]

    def _drop(self) -> None:
        for node in self._unproven:
            self.counts.pop(node, None)
            self.results.pop(node, None)
        self._dropped += self._unproven

    def end(self) -> int:
        """End its process and return its exit status, 0 where there is none."""
        child, self._child = self._child, None
        self._unproven = []
        return child.end() if child is not None else 0

    def _fail(self, node: str, error: BenchmarkError) -> None:
        self._runner = None
        failure = failure_of(node, error)
        child = self._child
        assert child is not None  # noqa: S101 (it has just failed there)
        if error.fatal:
            self._drop()
        self.failures.append(ended(failure, self.end(), child) if error.fatal else failure)


COMMANDS = ("valgrind", "callgrind_control")
_VARIABLES = {
    # Torch gets one thread: callgrind would not count the work of others in a parallel operation.
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # Python takes memory by malloc: the instructions of its own allocator depend on all earlier allocations.
    "PYTHONMALLOC": "malloc",
}


@dataclass(frozen=True, kw_only=True)
class Callgrind:
    """Counts instructions on two trees; logs and the files of callgrind are written into ``folder``."""

    trees: MeasuredTrees
    folder: Path
    environment: Mapping[str, str]

    def count(self, node: str, *, limit_s: float, sides: Sequence[Side] = SIDES) -> Mapping[Side, Counts]:
        """Return the instructions of a call, or why there are none, of sides that are counted at once.

        A side's process may send nothing for ``limit_s`` seconds at most.
        """
        runs = [_CallgrindRun(self, side, node, limit_s) for side in sides]
        try:
            for run in runs:
                run.begin()
            return {run.side: run.finish() for run in runs}
        finally:
            for run in runs:
                run.end()


class _CallgrindRun:
    """One benchmark in a process of one side."""

    def __init__(self, callgrind: Callgrind, side: Side, node: str, limit_s: float) -> None:
        self.side, self._node, self._limit_s = side, node, limit_s
        self._place = callgrind.folder / f"callgrind-{side}"
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.mkdir()
        self._child = self._start(callgrind)
        self._runner = Runner(self._child, node, limit_s=limit_s)
        self._status: int | None = None
        self._problem: str | None = None

    def _start(self, callgrind: Callgrind) -> Child:
        under = [
            *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no"),
            f"--callgrind-out-file={self._place}/counted",
            f"--vgdb-prefix={self._place}/control",
        ]
        environment = {**fixed_environment(callgrind.environment, hash_seed=0), **_VARIABLES}
        assignment = Assignment(
            root=str(callgrind.trees.roots[self.side]),
            origins=tuple(str(origin) for origin in callgrind.trees.origins),
            paths=(self._node.partition("::")[0],),
            nodes=(self._node,),
            select=None,
            temporary=f"{self._place}/temporary",
            log=f"{self._place}/log",
            slowdowns={},
            caches=f"{self._place}/caches",
            began=callgrind.trees.began,
            oldest=callgrind.trees.oldest,
        )
        return FreshProcesses(
            environment=environment, under=under, interpreters=callgrind.trees.interpreters
        ).start(self.side, assignment)

    def begin(self) -> None:
        """Wait until the benchmark is ready, and order its calls."""
        begin_command = [
            *("callgrind_control", f"--vgdb-prefix={self._place}/control"),
            *("--instr=on", str(self._child.pid)),
        ]
        try:
            self._runner.arrive()
            self._runner.begin_calls(begin_command, build_requests(self._place))
        except BenchmarkError as error:
            self._fail(error)

    def finish(self) -> Counts:
        """Return the counts, once the process has proved which code it ran."""
        calls = self._finish_calls() if self._problem is None else 0
        if self._problem is None:
            return Counts(counts=(self._count(calls),), not_counted={})
        return Counts(counts=(), not_counted={INSTRUCTIONS: self._problem})

    def _finish_calls(self) -> int:
        """Return how many calls a turn had, and keep the problem if there was one."""
        try:
            answer = self._runner.finish_counting()
            self._problem = answer.get("problem") or self._wrong_code()
        except BenchmarkError as error:
            self._fail(error)
            return 0
        return int(answer.get("calls", 0))

    def end(self) -> int:
        """End its process and return its exit status."""
        if self._status is None:
            self._status = self._child.end()
        return self._status

    def _fail(self, error: BenchmarkError) -> None:
        failure = Failure(node=self._node, side=self.side, status=error.status, message=error.message)
        self._problem = ended(failure, self.end(), self._child).message

    def _wrong_code(self) -> str | None:
        """Return why its counts are not those of its side's code, None where they are."""
        report = read_report(self._child, limit_s=self._limit_s)
        if report is None:
            return "its process ended before it proved which code it ran"
        return foreign_in_words(report.foreign) if report.foreign else None

    def _count(self, calls: int) -> Count:
        turns = [self._read(turn) for turn in range(WARM_UP + 1, TURNS + 1)]
        return Count(
            metric=INSTRUCTIONS,
            unit=INSTRUCTIONS,
            values=tuple(turn.total() / calls for turn in turns),
            causes=_causes(turns[-1], calls),
        )

    def _read(self, turn: int) -> Counter[str]:
        with (self._place / f"counted.{turn}").open(encoding="utf-8", errors="replace") as lines:
            return instructions_by_function(lines)


def _causes(found: Counter[str], calls: int) -> tuple[Cause, ...]:
    return tuple(Cause(what=name, place="", amount=amount / calls) for name, amount in found.most_common())


# Other work on the machine makes some functions of a turn look slow; in one of several turns each is quick.
_PROFILED_TURNS = 5


@dataclass(frozen=True, kw_only=True)
class ProfiledTurn:
    """Some calls of a benchmark, and the content of the file that cProfile wrote of them."""

    calls: int
    stats: bytes


def profile_sides(
    node: str, start: Callable[[Side], Child], *, calls: int, limit_s: float, apart: bool = False
) -> Mapping[Side, Sequence[ProfiledTurn]] | None:
    """Return the turns of each side at a benchmark; None where one failed, as nothing can be compared then.

    A benchmark that allows fewer than ``calls`` has fewer turns. Sides that have to be ``apart`` are profiled
    one after the other.
    """
    found: dict[Side, Sequence[ProfiledTurn]] = {}
    for sides in ((side,) for side in SIDES) if apart else (SIDES,):
        profiled = _profiled(node, [start(side) for side in sides], calls, limit_s)
        if profiled is None:
            return None
        found |= profiled
    return found


def _profiled(
    node: str, children: Sequence[Child], calls: int, limit_s: float
) -> Mapping[Side, Sequence[ProfiledTurn]] | None:
    runners = [Runner(child, node, limit_s=limit_s) for child in children]
    try:
        for runner in runners:
            runner.arrive()
        for runner in runners:
            runner.child.stop()
        turns = _by_turns(runners, max(1, round(calls / _PROFILED_TURNS)))
    except BenchmarkError:
        return None
    finally:
        for child in children:
            child.end()
    return turns if all(turns.values()) else None


def _by_turns(runners: Sequence[Runner], calls: int) -> Mapping[Side, list[ProfiledTurn]]:
    turns: dict[Side, list[ProfiledTurn]] = {runner.side: [] for runner in runners}
    for turn in range(_PROFILED_TURNS):
        for runner in runners[:: -1 if turn % 2 else 1]:
            answer = runner.profile(calls)
            if answer["calls"]:
                stats = base64.b64decode(answer["stats"])
                turns[runner.side].append(ProfiledTurn(calls=answer["calls"], stats=stats))
    return turns
