"""A loop with each trick and without any, by turns, in processes forked from one that has its imports."""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from perfkit.errors import NotMeasuredError, UsageError
from perfkit.features.experiments.trial import TrialProcesses
from perfkit.features.tricks.loop_child import FIRST_STEP_FILE, LoopNews, LoopPass, LoopResult
from perfkit.features.tricks.suite import FirstStep, compare_steps, node_of
from perfkit.features.tricks.trick import Equivalence, Loop, TrickCase, trick_named
from perfkit.gating.counters import CountedPair, CountResult
from perfkit.gating.rules import ComparedBenchmark
from perfkit.model import PassSummary, Side
from perfkit.profiling.passes.exchange import OUTPUT_FILE, PassSpec, Problem
from perfkit.profiling.passes.launch import RunningPass, described
from perfkit.profiling.passes.targets import Target
from perfkit.runner.commands import fixed_environment
from perfkit.runner.lockstep.launch import Failure, LaunchRecord, Slot
from perfkit.runner.lockstep.turns import LoopPlan, Timing
from perfkit.runner.requests import start_child
from perfkit.temporary import temporary_folder

_CHILD = "perfkit.features.tricks.loop_child"
# A run that sends nothing for this long hangs.
_LIMIT_S = 120.0
# Tricks that matter between steps are measured over whole runs, of which no more than this is followed.
WHOLE_S = 2.0
# A process has so many turns of this length, after one of steps that warm up: a single one where it is long.
_TURNS, _TURN_S, _WARM_STEPS = 12, 0.05, 3
# In a turn of so many steps the first one, which finds cold caches, is left out.
_MANY_STEPS = 4
# So many tricks take turns with one run without any; on an accelerator, whose memory they share, just one.
_TOGETHER = 8
_LOOKS_AT_ONCE = 3
_EVERY = "every trick"
_NO_STEPS = Problem(kind="failed", message="it made fewer steps than the loop had made before")


@dataclass(frozen=True, kw_only=True)
class _Looked:
    """What a look at the loop with some tricks showed."""

    result: LoopResult
    first: FirstStep


@dataclass(frozen=True, kw_only=True)
class _Turns:
    """How many turns of how many steps each run has, after ``warm`` ones; without turns each is run whole."""

    warm: int
    turns: int
    steps: int
    most_steps: int | None

    @classmethod
    def of(cls, summary: PassSummary, *, whole: bool) -> Self:
        """Return the turns for a loop of which a look saw so much."""
        step_s = summary.typical_step_s or _TURN_S
        warm = _WARM_STEPS if step_s < _TURN_S else 1
        most = sys.maxsize if summary.ended else max(summary.steps - warm, 0)
        # Pairs of turns, since it changes which side begins.
        turns = min(_TURNS, most // 2 * 2)
        if whole or not turns:
            return cls(warm=0, turns=0, steps=1, most_steps=summary.steps if summary.ended else None)
        steps = max(1, min(round(_TURN_S / step_s), most // turns))
        return cls(warm=warm, turns=turns, steps=steps, most_steps=warm + turns * steps)

    @property
    def orders(self) -> list[int]:
        """The steps of each turn; in the last one a run only ends, since it has had its steps."""
        return [self.warm, *[self.steps] * self.turns, 1] if self.turns else [sys.maxsize]

    def seconds(self, result: LoopResult) -> tuple[float, ...]:
        """Return the mean step of each whole turn, or the whole run."""
        if not self.turns:
            return (sum(result.own_s),)
        # The last value is of what came after the last step.
        ends = range(self.warm + self.steps, len(result.own_s), self.steps)
        parts = (result.own_s[end - self.steps : end] for end in ends)
        return tuple(statistics.fmean(part[1:] if len(part) >= _MANY_STEPS else part) for part in parts)


@dataclass
class LoopLaunches:
    """Makes launches of cases on a loop that were looked at before; a launch is a turn of each side.

    Turns of the same processes are a group.
    """

    loop: Loop
    seed: int
    group: int = -1
    group_s: float = 0.0
    next_s: float = 0.0
    torch: Mapping[str, str] = field(default_factory=dict)
    _cases: dict[str, TrickCase] = field(default_factory=dict)
    _looked: dict[str, _Looked] = field(default_factory=dict)
    # What processes have measured already.
    _turns: dict[str, list[Timing]] = field(default_factory=dict)
    _failures: dict[str, Failure] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._stack = contextlib.ExitStack()
        self._processes = self._stack.enter_context(TrialProcesses(os.environ, child=_CHILD))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def prepare(self) -> None:
        """No-op."""

    def expect(self, shared_variance: float) -> None:
        """No-op."""

    def learn(self, libraries: Sequence[str]) -> None:
        """Have later launches forked from a process that has imported these libraries."""
        self._processes.learn(libraries, Path(self.loop.root))

    def check(self, cases: Sequence[TrickCase]) -> dict[str, Equivalence]:
        """Return whether the loop's first step is the same with the tricks of each case as without any."""
        if not self._looked:
            # Twice, since a loop that does not repeat itself cannot be compared; and with all tricks at once,
            # since those that it does not use then need no look of their own.
            every = tuple(dict.fromkeys(name for case in cases for name in case.tricks))
            self._look([("", (), False), ("again", (), True), (_EVERY, every, True)])
            for one in (self._looked[""], self._looked["again"]):
                if one.result.problem is not None:
                    kind = UsageError if one.result.problem.kind == "usage" else NotMeasuredError
                    raise kind(one.result.problem.message)
                self.learn(one.result.libraries)
            self.torch = self._looked[""].result.torch
        self._cases |= {node_of(case): case for case in cases}
        unused = set(self._looked[_EVERY].result.unused)
        looked = [case for case in cases if not unused.intersection(case.tricks)]
        self._look([(case.name, case.tricks, is_whole(case)) for case in looked])
        found = dict.fromkeys((case.name for case in cases), Equivalence(equal=True, used=False))
        return found | {case.name: self._equivalence(case) for case in looked}

    def counted(self, compared: Mapping[str, ComparedBenchmark]) -> CountResult:
        """Return the counts of a step of each case, as its look saw them."""
        base = self._looked[""].result.counts
        heads = {node: self._looked[self._cases[node].name].result.counts for node in compared}
        return CountResult(
            pairs=tuple(
                CountedPair(
                    benchmark=compared[node].benchmark,
                    counts={"base": base, "head": head},
                    training=True,
                    gating=False,
                )
                for node, head in heads.items()
                if base is not None and head is not None
            )
        )

    def make(self, slot: Slot, nodes: Sequence[str]) -> LaunchRecord:
        """Return the next turn of each case and of the loop without tricks, from new processes if needed."""
        empty = [self._cases[node] for node in nodes if not self._turns.get(node)]
        # The first turn of processes has the seconds of all of theirs.
        seconds = dict.fromkeys(nodes, 0.0)
        if empty:
            self.group += 1
            random.Random(f"{self.seed} {slot.launch}").shuffle(empty)  # noqa: S311 (an order, not a secret)
            for group in _groups(empty, 1 if "gpus" in self.torch else _TOGETHER):
                begun = time.monotonic()
                self._run_together(group, begins=slot.begins)
                share_s = (time.monotonic() - begun) / len(group)
                seconds |= dict.fromkeys(map(node_of, group), share_s)
        failures = tuple(self._failures[node] for node in nodes if node in self._failures)
        made = {node: self._turns[node].pop(0) for node in nodes if node not in self._failures}
        return LaunchRecord(
            timings=made, failures=failures, reports={}, seconds={node: seconds[node] for node in made}
        )

    def _run_together(self, cases: Sequence[TrickCase], begins: Side) -> None:
        known = self._looked["again"].result.summary
        assert known is not None  # noqa: S101 (a run without a problem has one)
        plan = _Turns.of(known, whole=is_whole(cases[0]))
        with contextlib.ExitStack() as stack:
            base = self._start(stack, (), steps=plan.most_steps)
            heads = {case: self._start(stack, case.tricks, steps=plan.most_steps) for case in cases}
            order = [base, *heads.values()] if begins == "base" else [*heads.values(), base]
            for one in order:
                one.follow()
                one.stop()
            for turn in plan.orders:
                for one in order:
                    if one.found is None:
                        one.take_turn(turn)
                order.reverse()
            without = _result(base)
            for case, head in heads.items():
                found = _timings(plan, without, _result(head))
                if isinstance(found, Failure):
                    self._failures[node_of(case)] = replace(found, node=node_of(case))
                else:
                    self._turns[node_of(case)] = found

    def _look(self, wanted: Sequence[tuple[str, tuple[str, ...], bool]]) -> None:
        """Run the loop with tricks until a step is counted, or a whole run until the limit."""
        for first in range(0, len(wanted), _LOOKS_AT_ONCE):
            with contextlib.ExitStack() as stack:
                running = {
                    name: self._start(stack, tricks, look="run" if whole else "count")
                    for name, tricks, whole in wanted[first : first + _LOOKS_AT_ONCE]
                }
                for name, one in running.items():
                    one.follow()
                    file = Path(one.spec.folder) / FIRST_STEP_FILE
                    self._looked[name] = _Looked(result=_result(one), first=FirstStep.read(file))

    def _start(
        self,
        stack: contextlib.ExitStack,
        tricks: tuple[str, ...],
        *,
        look: Literal["", "count", "run"] = "",
        steps: int | None = None,
    ) -> RunningPass:
        folder = stack.enter_context(temporary_folder())
        spec = PassSpec(
            name="clean",
            target=Target(name=self.loop.name, place=self.loop.place),
            arguments=(),
            root=self.loop.root,
            own=(),
            folder=str(folder),
            artifact="",
            steps=steps,
            limit_s=WHOLE_S if look else None,
            by_turns=not look,
        )
        child: Any = start_child(
            f"{_CHILD}:main",
            LoopPass(spec=spec, loop=self.loop, tricks=tricks, look=look),
            LoopNews,
            log=folder / OUTPUT_FILE,
            folder=Path(self.loop.folder),
            environment=fixed_environment(os.environ, hash_seed=self.group + 1),
            server=self._processes.server_for(self.group),
        )
        stack.callback(child.end)
        return RunningPass(spec, child, lambda _: None, most_s=_LIMIT_S)

    def _equivalence(self, case: TrickCase) -> Equivalence:
        found = self._looked[case.name]
        if found.result.problem is not None:
            return Equivalence(equal=False, problem=found.result.problem.message)
        if found.result.unused:
            return Equivalence(equal=True, used=False)
        tolerance = max(trick_named(name).loop_tolerance for name in case.tricks)
        plain = self._looked[""].first, self._looked["again"].first
        return compare_steps(plain, found.first, tolerance)


def is_whole(case: TrickCase) -> bool:
    """Return whether a case is measured over whole runs."""
    return any(trick_named(name).between_steps for name in case.tricks)


def _groups(cases: Sequence[TrickCase], most: int) -> Iterator[list[TrickCase]]:
    for whole in (False, True):
        found = [case for case in cases if is_whole(case) == whole]
        yield from (found[first : first + most] for first in range(0, len(found), most))


def _result(one: RunningPass) -> LoopResult:
    found = one.result()
    problem = found.problem
    if problem is not None:
        message = described(problem, Path(one.spec.folder))
        return LoopResult(problem=Problem(kind=problem.kind, message=message, status=problem.status))
    assert isinstance(found, LoopResult)  # noqa: S101 (that is what its messages hold)
    return found


def _timings(plan: _Turns, base: LoopResult, head: LoopResult) -> list[Timing] | Failure:
    """Return each pair of turns, as many as both runs have; the node of a failure is not known here."""

    def failed(side: Side, problem: Problem) -> Failure:
        return Failure(node="", side=side, status=problem.status, message=problem.message, raised=True)

    results: dict[Side, LoopResult] = {"base": base, "head": head}
    for side, one in results.items():
        if one.summary is None:
            return failed(side, one.problem or _NO_STEPS)
    pairs = [*zip(plan.seconds(base), plan.seconds(head), strict=False)]
    if not pairs:
        return failed("head", _NO_STEPS)
    loops = LoopPlan(loops=plan.steps, rounds=1, untimed=0, turns=1, most_turns=1, first_untimed=plan.warm)
    return [
        Timing(base_s=(old,), head_s=(new,), plan=loops, faults_per_iteration={"base": 0.0, "head": 0.0})
        for old, new in pairs
    ]
