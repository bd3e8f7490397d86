"""Counts the instructions of both sides' benchmarks, by callgrind in a process for each of them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.model import SIDES, Side
from perfkit.model.counting import INSTRUCTIONS
from perfkit.runner.agent.callgrind import instructions_by_function
from perfkit.runner.agent.counting.model import Cause, Count, Counts
from perfkit.runner.agent.instructed import TURNS, WARM_UP
from perfkit.runner.agent.counting.instructions import (
    TURNS,
    WARM_UP,
    build_requests,
    instructions_by_function,
)
from perfkit.runner.agent.counting.model import INSTRUCTIONS, Cause, Count, Counts
from perfkit.runner.agent.provenance import foreign_in_words
from perfkit.runner.environment import fixed_environment
from perfkit.runner.lockstep.children import Assignment, Child, FreshProcesses
from perfkit.runner.lockstep.launch import Failure, ended, read_report
from perfkit.runner.lockstep.launcher import MeasuredTrees
from perfkit.runner.lockstep.runner import BenchmarkError, Runner

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
        runs = [_Run(self, side, node, limit_s) for side in sides]
        try:
            for run in runs:
                run.begin()
            return {run.side: run.finish() for run in runs}
        finally:
            for run in runs:
                run.end()


class _Run:
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
            plants={},
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
            return "its process ended before it told which code it ran"
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
    """Return the functions that ran the instructions, those with the most first."""
    return tuple(Cause(what=name, place="", amount=amount / calls) for name, amount in found.most_common())
