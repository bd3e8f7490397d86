"""The same pass on all ranks of a distributed loop, and the rank that the others wait for."""

from __future__ import annotations

import os
import random
import re
import select
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from perfkit.errors import UsageError
from perfkit.model import Balance, PassSummary, Straggler
from perfkit.model.readings import RANKS, RESIDUAL
from perfkit.profiling.passes.exchange import ASKING, STACK_FILE, PassResult, PassSpec, Problem
from perfkit.profiling.passes.launch import PassLauncher, RunningPass, running
from perfkit.units import counted

_ALIVE_EVERY_S = 1.0
# After a failure that another rank may have caused, that one may still report its own.
_GRACE_S = 2.0
_ANSWER_S = 2.0
_POLL_S = 0.02
_HERE = "127.0.0.1"
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
_MOST_STEPS = 0.75
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
            tried.bind((_HERE, port))
            return port


def check_port(port: int) -> None:
    """Refuse a port at which the ranks could not meet."""
    with socket.socket() as tried:
        # As torch does: a port at which connections of an ended process linger can be taken.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((_HERE, port))
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
            until_s = time.monotonic() + _ANSWER_S
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
    if last.count(rank) < _MOST_STEPS * len(last) or waited_s < _WORTH_NAMING * step_s:
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
