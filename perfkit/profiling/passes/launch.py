"""Passes in processes of their own, seen from the parent: one alone, two that take turns, or all ranks."""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import select
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from perfkit.agent.channel import ChannelClosedError, ChannelTimeoutError
from perfkit.errors import NotMeasuredError, UsageError
from perfkit.model import Balance, PassSummary, RatioInterval, Straggler
from perfkit.model.readings import RANKS, RESIDUAL
from perfkit.profiling.passes.exchange import (
    ASKING,
    ENDING,
    HERE,
    OUTPUT_FILE,
    STACK_FILE,
    STOPS_FILE,
    PassNews,
    PassResult,
    PassSpec,
    Problem,
)
from perfkit.runner.commands import FAULTHANDLER, SAFE_PATH, ended_in_words, tail_of
from perfkit.runner.requests import ANSWER, Child, ForkServer, ForkServerLostError, start_child
from perfkit.stats.interval import location_interval
from perfkit.temporary import short_temporary, temporary_folder
from perfkit.units import counted

_CHILD = "perfkit.profiling.passes.child"
# Imports torch and what the first optimizer imports. It takes seconds, once for all forked passes.
WITH_OPTIMIZERS = ("torch", "torch._dynamo")
_ALIVE_EVERY_S = 1.0
_FAREWELL_S = 10.0
# What an ended process sent last is there already.
_ANSWER_S = 0.1
_TURN_S = 0.3
_MOST_STEPS = 50
_FEWEST_TURNS = 12
# The number of steps that is assumed where it is not known.
_UNKNOWN_STEPS = 120
# Turns of this many steps leave out the first one after a switch, when caches are cold.
_FEW_STEPS = 3
_ERROR = 0.01
# Steps of one process are many, and bursts slow some of them: of ten already, one at each end is left out.
_TRIMMED_FROM = 10


class PassLauncher:
    """Starts the processes of passes: forked from one that has imported what is ``shared``, or fresh ones."""

    def __init__(
        self, *, fork: bool = sys.platform == "linux", shared: Sequence[str] = WITH_OPTIMIZERS
    ) -> None:
        self._fork, self._shared = fork, shared
        self._stack, self._around = contextlib.ExitStack(), contextlib.ExitStack()
        self._server: ForkServer | None = None

    def __enter__(self) -> Self:
        """Begin to import torch in the background, where passes can be forked."""
        self._around.enter_context(short_temporary())
        if self._fork:
            self._start_server()
        return self

    def __exit__(self, *_: object) -> None:
        """End the fork server."""
        with self._around:
            self._stack.close()

    def start(self, spec: PassSpec) -> Child[PassNews]:
        """Start a pass; raises NotMeasuredError if two fork servers in a row are lost."""
        if self._server is None:
            return self._start(spec)
        with contextlib.suppress(ForkServerLostError):
            return self._start(spec)
        try:
            self._start_server()
            return self._start(spec)
        except ForkServerLostError as error:
            raise NotMeasuredError(f"two in a row were lost: {error}") from error

    def _start(self, spec: PassSpec) -> Child[PassNews]:
        log = Path(spec.folder) / OUTPUT_FILE
        return start_child(
            f"{_CHILD}:main", spec, PassNews, log=log, folder=spec.started_in, server=self._server
        )

    def _start_server(self) -> None:
        self._stack.close()
        folder = self._stack.enter_context(temporary_folder())
        server = ForkServer.started(
            ANSWER, log=folder / "fork-server.log", options=(*SAFE_PATH, *FAULTHANDLER)
        )
        self._server = self._stack.enter_context(server)
        server.begin_preload([*self._shared, _CHILD])


def run_pass(spec: PassSpec, on_steps: Callable[[int], None], launcher: PassLauncher) -> PassResult:
    """Make a pass and return its result; ``on_steps`` is called with the number of steps done."""
    with running(spec, on_steps, launcher) as child:
        try:
            child.follow()
        except KeyboardInterrupt:
            # It reports what it has, where it has got so far.
            os.kill(child.child.process.pid, ENDING)
            child.follow()
            found = child.result()
            if found.summary is None:
                raise
            # The pass itself may have been over by then.
            return replace(found, summary=replace(found.summary, ended="interrupted"))
        return child.result()


@contextlib.contextmanager
def running(spec: PassSpec, on_steps: Callable[[int], None], launcher: PassLauncher) -> Iterator[RunningPass]:
    """Start a pass, and end all of its processes after the block."""
    child = launcher.start(spec)
    try:
        yield RunningPass(spec, child, on_steps)
    finally:
        child.end()


def output_tail(folder: Path) -> str:
    """Return the last lines that the target of a pass printed."""
    return "\n".join(tail_of(folder / OUTPUT_FILE))


def described(problem: Problem, folder: Path) -> str:
    """Return why a pass failed, with the last line of its output where nothing else shows it."""
    tail = output_tail(folder)
    last = "" if problem.details or not tail else f", saying: {tail.splitlines()[-1].strip()}"
    return f"{problem.message}{last}"


class RunningPass:
    """A running pass: its steps, its turns and its result."""

    def __init__(
        self,
        spec: PassSpec,
        child: Child[PassNews],
        on_steps: Callable[[int], None],
        *,
        most_s: float = math.inf,
    ) -> None:
        self.spec, self.child = spec, child
        self.steps = 0
        self.found: PassResult | None = None
        self._on_steps, self._most_s = on_steps, most_s
        self._stopped_s: float | None = None

    def fileno(self) -> int:
        """Return the descriptor of its messages, so that several passes can be waited for at once."""
        return self.child.fileno()

    def follow(self) -> bool:
        """Follow the steps until the loop waits for its turn (True), or is over or late (False)."""
        until = time.monotonic() + self._most_s
        while (state := self.receive(_ALIVE_EVERY_S)) == "runs" and time.monotonic() < until:
            pass
        return state == "waits"

    def receive(self, limit_s: float) -> Literal["runs", "waits", "over"]:
        """Take the messages that come in time, and return the state of the pass.

        Workers may keep the channel open, so it also checks whether the process of the pass has died.
        """
        try:
            news = self.child.receive(limit_s)
        except ChannelTimeoutError:
            return "runs" if self.child.process.poll() is None else "over"
        except ChannelClosedError:
            return "over"
        steps = [one.steps for one in news if one.steps is not None]
        if steps:
            self.steps = steps[-1]
            self._on_steps(self.steps)
        self.found = next((one.result for one in news if one.result is not None), self.found)
        if any(one.waits for one in news):
            return "waits"
        return "runs" if self.found is None else "over"

    def take_turn(self, steps: int) -> bool:
        """Let the loop make its steps and stop it; return whether it waits for more."""
        self.resume()
        self.child.send(steps)
        waits = self.follow()
        if waits:
            self.stop()
        return waits

    def stop(self) -> None:
        """Stop every process of the pass where it stands."""
        self._stopped_s = time.perf_counter()
        self.child.process.stop()

    def resume(self) -> None:
        """Let them go on, and note how long they were stopped, since their clocks went on meanwhile."""
        if self._stopped_s is not None:
            with (Path(self.spec.folder) / STOPS_FILE).open("a") as stops:
                stops.write(f"[{self._stopped_s!r}, {time.perf_counter()!r}]\n")
            self._stopped_s = None
        self.child.process.resume()

    def result(self) -> PassResult:
        """Return the pass's result, once it is over or has had time to clean up.

        It waits no longer, since threads of the target could keep the process running for ever.
        """
        status = self.child.process.wait(_FAREWELL_S)
        while self.found is None and status is not None and self.receive(_ANSWER_S) == "runs":
            pass
        if self.found is not None:
            return self.found
        how = "did not end" if status is None else ended_in_words(status)
        message = f"the process of {self.spec.target.name} {how} before the harness could read the times"
        return PassResult(problem=Problem(kind="failed", message=message))


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """The results of two passes, and the steps of each of their turns; the first turn has the set-up."""

    results: tuple[PassResult, PassResult]
    turns: tuple[int, ...]

    @property
    def ratio(self) -> RatioInterval | None:
        """The second pass over the first, from pairs of turns; None where a pass failed or was too short."""
        first, second = (result.summary for result in self.results)
        if first is None or second is None:
            return None
        logs = [
            math.log(statistics.median(later) / statistics.median(earlier))
            for earlier, later in zip(
                _by_turns(first.step_s, self.turns), _by_turns(second.step_s, self.turns), strict=True
            )
            if earlier and later
        ]
        return ratio_of_turns(logs)


def run_side_by_side(
    specs: tuple[PassSpec, PassSpec], on_steps: Callable[[int], None], launcher: PassLauncher
) -> SideBySide:
    """Make two passes at once: while one has its turn, every process of the other is stopped."""
    with contextlib.ExitStack() as stack:
        sides = [
            stack.enter_context(running(replace(spec, by_turns=True), listener, launcher))
            for spec, listener in zip(specs, (lambda _: None, on_steps), strict=True)
        ]
        # A short loop must have turns enough to show how they scatter.
        known = [steps for spec in specs for steps in (spec.steps, spec.known_steps) if steps is not None]
        most_steps = max(1, min(_MOST_STEPS, min(known, default=_UNKNOWN_STEPS) // _FEWEST_TURNS))
        turns = _alternate(sides, most_steps=most_steps)
        first, second = (side.result() for side in sides)
    return SideBySide(results=(first, second), turns=tuple(turns))


def _alternate(sides: Sequence[RunningPass], *, most_steps: int) -> list[int]:
    """Give turns until a side has no more steps, then let the other end; return the steps of each turn."""
    waiting = [side.follow() for side in sides]
    for side in sides:
        side.stop()
    turns: list[int] = []
    steps = 1
    while all(waiting):
        order = (0, 1) if len(turns) % 2 == 0 else (1, 0)
        begun = time.monotonic()
        for place in order:
            waiting[place] = sides[place].take_turn(steps)
        turns.append(steps)
        each_s = (time.monotonic() - begun) / (2 * steps)
        steps = max(1, min(most_steps, math.ceil(_TURN_S / each_s)))
    for side, waits in zip(sides, waiting, strict=True):
        side.resume()
        if waits:
            side.child.send(sys.maxsize)
            side.follow()
    return turns


def _by_turns(seconds: Sequence[float], turns: Sequence[int]) -> list[Sequence[float]]:
    parts: list[Sequence[float]] = []
    begin = 0
    for number, steps in enumerate(turns):
        part = seconds[begin : begin + steps]
        begin += steps
        if number > 0:
            parts.append(part[1:] if len(part) >= _FEW_STEPS else part)
    return parts


def ratio_of_turns(logs: Sequence[float]) -> RatioInterval | None:
    """Return a ratio with its interval from its logarithm in each pair of turns; None of too few of them."""
    if len(logs) < _FEW_STEPS:
        return None
    found = location_interval(logs, [0] * len(logs), error=_ERROR, trimmed_from=_TRIMMED_FROM)
    centre, half_width = float(found.centre), float(found.half_width)
    return RatioInterval(
        ratio=math.exp(centre),
        low=math.exp(centre - half_width),
        high=math.exp(centre + half_width),
        confidence=1 - _ERROR,
        pairs=len(logs),
    )


# After a failure that another rank may have caused, that one may still report its own.
_GRACE_S = 2.0
_STACK_S = 2.0
_POLL_S = 0.02
# Below those that Linux and other systems give to connections by themselves.
_PORTS = (20_000, 30_000)
# How the libraries of collectives complain that another rank has gone.
_LOST_OTHERS = re.compile(
    r"closed by peer|reset by peer|broken pipe|connection refused|gloo|nccl|remote process|Dist\w*Error"
    r"|barrier|timed out|timeout",
    re.IGNORECASE,
)
_BLAMES_OTHERS = 3
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)
# It must be last in this many of the steps, and make the others wait for so much of a step.
_MOSTLY_LAST = 0.75
_WORTH_NAMING = 0.05
_FEWEST_RANKS = 2


@dataclass(frozen=True, kw_only=True)
class RanksResult:
    """What the ranks of a pass gave, in their order, or the problem that ended all of them."""

    results: tuple[PassResult, ...]
    problem: Problem | None = None
    failed: int | None = None


def free_port() -> int:
    """Return a port of this machine that nobody has now, of those that no connection is given meanwhile."""
    lot = random.SystemRandom()
    while True:
        port = lot.randrange(*_PORTS)
        with suppress(OSError), socket.socket() as tried:
            tried.bind((HERE, port))
            return port


def check_port(port: int) -> None:
    """Refuse a port at which the ranks could not meet."""
    with socket.socket() as tried:
        # As torch does: a port at which connections of an ended process linger can be taken.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HERE, port))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                f"the ranks cannot meet at port {port}: {why}; give another one with --master-port, or leave"
                " it out to have a free one chosen"
            ) from error


def run_ranks(
    specs: Sequence[PassSpec],
    on_steps: Callable[[int], None],
    launcher: PassLauncher,
    *,
    stall_limit_s: float,
) -> RanksResult:
    """Make a pass on all ranks and return what they gave; no process of theirs outlives the call."""
    group = _Ranks(specs, on_steps, stall_limit_s)
    with ExitStack() as stack:
        for rank, spec in enumerate(specs):
            group.add(stack.enter_context(running(spec, group.listener(rank), launcher)))
        return group.follow()


class _Ranks:
    """The running ranks of a pass."""

    def __init__(
        self, specs: Sequence[PassSpec], on_steps: Callable[[int], None], stall_limit_s: float
    ) -> None:
        self._specs = specs
        self._on_steps = on_steps
        self._stall_limit_s = stall_limit_s
        self._ranks: list[RunningPass] = []
        self._results: dict[int, PassResult] = {}
        self._moved_s = time.monotonic()

    def add(self, rank: RunningPass) -> None:
        self._ranks.append(rank)
        self._moved_s = time.monotonic()

    def listener(self, rank: int) -> Callable[[int], None]:

        def note(steps: int) -> None:
            self._moved_s = time.monotonic()
            if rank == 0:
                self._on_steps(steps)

        return note

    def follow(self) -> RanksResult:
        while len(self._results) < len(self._ranks):
            self._receive(_ALIVE_EVERY_S)
            if any(result.problem for result in self._results.values()):
                return self._failure()
            if time.monotonic() - self._moved_s > self._stall_limit_s:
                return RanksResult(results=(), problem=self._stalled(), failed=self._slowest())
        return RanksResult(results=tuple(self._results[rank] for rank in range(len(self._ranks))))

    def _receive(self, limit_s: float) -> None:
        going = {rank: one for rank, one in enumerate(self._ranks) if rank not in self._results}
        readable, _, _ = select.select(list(going.values()), [], [], limit_s)
        for rank, one in going.items():
            if one.receive(_ALIVE_EVERY_S if one in readable else 0) == "over":
                self._moved_s = time.monotonic()
                self._results[rank] = one.found or one.result()

    def _failure(self) -> RanksResult:
        until_s = time.monotonic() + _GRACE_S
        problems = self._problems()
        while (
            all(self._weight(rank, problem) == _BLAMES_OTHERS for rank, problem in problems.items())
            and len(self._results) < len(self._ranks)
            and time.monotonic() < until_s
        ):
            self._receive(max(0.0, until_s - time.monotonic()))
            problems = self._problems()
        rank = min(problems, key=lambda one: self._weight(one, problems[one]))
        problem = problems[rank]
        if problem.kind != "usage":
            message = f"rank {rank}: {problem.message}{self._ended_before(rank)}"
            problem = replace(problem, message=message)
        return RanksResult(results=tuple(self._results.values()), problem=problem, failed=rank)

    def _problems(self) -> dict[int, Problem]:
        return {rank: result.problem for rank, result in self._results.items() if result.problem}

    def _weight(self, rank: int, problem: Problem) -> int:
        if problem.kind == "usage":
            return 0
        return (
            1
            if self._ranks[rank].found is None
            else _BLAMES_OTHERS
            if _LOST_OTHERS.search(problem.message)
            else 2
        )

    def _ended_before(self, rank: int) -> str:
        well = [other for other, result in self._results.items() if other != rank and not result.problem]
        if not well:
            return ""
        return f"; rank {well[0]} had ended before, after {counted(self._steps(well[0]), 'step')}"

    def _stalled(self) -> Problem:
        name = self._specs[0].target.name
        rank = self._slowest()
        others = [f"rank {one} {self._steps(one)}" for one in range(len(self._ranks)) if one != rank]
        place = self._place(rank)
        message = (
            f"no rank of {name} made a step for {self._stall_limit_s:.0f} s: rank {rank} made"
            f" {counted(self._steps(rank), 'step')} in all ({', '.join(others) or 'it is the only one'})"
            f"{f' and stands at {place}' if place else ''}; --stall-limit SECONDS waits longer"
        )
        return Problem(kind="failed", message=message, status="timeout")

    def _slowest(self) -> int:
        going = [rank for rank in range(len(self._ranks)) if rank not in self._results]
        return min(
            going or range(len(self._ranks)),
            key=lambda rank: (self._steps(rank), "/torch/" in self._innermost(rank), rank),
        )

    def _steps(self, rank: int) -> int:
        result = self._results.get(rank)
        if result is not None and result.summary is not None:
            return result.summary.steps
        return self._ranks[rank].steps

    def _innermost(self, rank: int) -> str:
        found = _FRAME.search(self._stack(rank))
        return found["file"] if found else ""

    def _place(self, rank: int) -> str:
        root = Path(self._specs[rank].root)
        script = Path(self._specs[rank].target.place).parent
        for found in _FRAME.finditer(self._stack(rank)):
            file = Path(found["file"])
            if "site-packages" not in file.parts and (file.is_relative_to(root) or file.parent == script):
                shown = file.relative_to(root) if file.is_relative_to(root) else file
                return f"{shown}:{found['line']} in {found['function']}"
        return ""

    def _stack(self, rank: int) -> str:
        file = Path(self._specs[rank].folder) / STACK_FILE
        if not file.exists():
            return ""
        with suppress(OSError):
            if not file.stat().st_size and rank not in self._results:
                os.kill(self._ranks[rank].child.process.pid, ASKING)
            until_s = time.monotonic() + _STACK_S
            # It is written frame by frame, and whole once nothing more comes.
            before, size = 0, file.stat().st_size
            while not 0 < size == before and time.monotonic() < until_s:
                time.sleep(_POLL_S)
                before, size = size, file.stat().st_size
            return file.read_text(errors="replace")
        return ""


def find_straggler(balances: Sequence[Balance]) -> Straggler | None:
    """Return the rank that keeps the others waiting, None where there is none.

    The rank that comes last to a collective waits least in it: so in each step it is the rank with the least
    time among the other ranks, and what the others have more of it is their wait for that rank.
    """
    steps = min((len(balance.step_s) for balance in balances), default=0)
    if len(balances) < _FEWEST_RANKS or not steps:
        return None
    shortest = min(balances, key=lambda balance: len(balance.step_s))
    kept = range(shortest.typical.start, steps)
    together = [balance.seconds_of(RANKS) for balance in balances]
    last = [min(range(len(balances)), key=lambda rank: together[rank][step]) for step in kept]
    rank = statistics.mode(last)
    others = [other for other in range(len(balances)) if other != rank]
    waited_s = statistics.median(
        statistics.mean(together[other][step] for other in others) - together[rank][step] for step in kept
    )
    step_s = statistics.median(balances[rank].step_s[kept.start : kept.stop])
    if last.count(rank) < _MOSTLY_LAST * len(last) or waited_s < _WORTH_NAMING * step_s:
        return None
    phase, phase_s = _most_above(balances, rank, kept)
    return Straggler(
        rank=rank,
        last=last.count(rank),
        of=len(last),
        waited_s=waited_s,
        share=waited_s / step_s,
        phase=phase,
        phase_s=phase_s,
    )


def slowest_rank(passes: Sequence[PassSummary]) -> int:
    """Return the rank whose typical step takes longest, or whose whole time does where there are no steps."""
    return max(
        range(len(passes)), key=lambda rank: (passes[rank].typical_step_s or 0.0, passes[rank].total_s)
    )


def _most_above(balances: Sequence[Balance], rank: int, kept: range) -> tuple[str, float]:
    names = dict.fromkeys(phase.name for balance in balances for phase in balance.phases)
    above = {
        name: _median(balances[rank], name, kept)
        - statistics.median(_median(one, name, kept) for at, one in enumerate(balances) if at != rank)
        for name in (*names, RESIDUAL)
        if name != RANKS
    }
    return max(above.items(), key=lambda item: item[1])


def _median(balance: Balance, name: str, kept: range) -> float:
    seconds = balance.residual_s if name == RESIDUAL else balance.seconds_of(name)
    return statistics.median(seconds[kept.start : kept.stop])
