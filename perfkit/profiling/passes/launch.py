"""Passes in processes of their own, seen from the parent: one alone, or two that take turns."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from perfkit.agent.channel import ChannelClosedError, ChannelTimeoutError
from perfkit.errors import NotMeasuredError
from perfkit.model import RatioInterval
from perfkit.profiling.passes.exchange import (
    ENDING,
    OUTPUT_FILE,
    STOPS_FILE,
    PassNews,
    PassResult,
    PassSpec,
    Problem,
)
from perfkit.runner.commands import FAULTHANDLER, SAFE_PATH, ended_in_words, tail_of
from perfkit.runner.fork_server import ForkServer, ForkServerLostError
from perfkit.runner.requests import ANSWER, Child, start_child
from perfkit.stats.interval import location_interval
from perfkit.temporary import short_temporary, temporary_folder

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
            if child.result().summary is None:
                raise
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
