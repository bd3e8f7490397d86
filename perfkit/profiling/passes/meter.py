"""The light meter that runs in every pass: steps, samples and the wait for data."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal
from weakref import WeakSet

from perfkit.agent.clock import DeviceEvent, accelerator_in_use
from perfkit.agent.training import StepEnds
from perfkit.extras import is_installed
from perfkit.model import PassName, PassSummary, PeriodTime
from perfkit.phases import announce_steps, count_marked_steps, steps_are_announced
from perfkit.profiling.passes.balance import Moment, moment_on
from perfkit.profiling.passes.periods import Periods
from perfkit.profiling.passes.target_code import calling_loop, optimizer_exists
from perfkit.profiling.passes.targets import TURN, StepLine, Unit, call_at

# After so many backward passes without a step, it is looked whether there is an optimizer at all.
_BY_HAND = 20
# A set-up or a compilation may make so many first steps as long as the limit.
_LONG = 2


class EnoughSteps(BaseException):
    """Ends the target after the last step asked for; it is no Exception, since a loop may catch those."""


@contextlib.contextmanager
def until_enough() -> Iterator[None]:
    """Let a target end early; its frames would keep loaders alive, and these their workers."""
    try:
        yield
    except EnoughSteps as enough:
        traceback.clear_frames(enough.__traceback__)


class Meter:
    """Counts steps and training samples of this process between ``start`` and ``finish``.

    ``unit`` is what an earlier pass found of the ends of steps. Watching loaders adds frames to a profile, so
    it is optional. The accelerator is synchronised once, in ``finish``: until then an event a step waits in
    its queue. ``report`` returns whether it kept the loop waiting, ``extend`` is called for a step that was
    not over. The first step that ends ``limit_s`` seconds after the second is the last one.
    """

    def __init__(
        self,
        *,
        limit: int | None,
        report: Callable[[int], bool],
        loaders: bool,
        unit: Unit | None = None,
        extend: Callable[[], None] = lambda: None,
        limit_s: float | None = None,
    ) -> None:
        self._limit, self._limit_s = limit, math.inf if limit_s is None else limit_s
        self._unit = unit or Unit()
        self._loaders = loaders or self._unit.next_batch or self._unit.loader
        self._report, self._on_extended = report, extend
        self._begins = [Moment(time.perf_counter())]
        self._ends: list[Moment] = []
        self._updated = self._begins[0]
        self._step_ends = StepEnds(lambda: self._end_step(self._updated), self._extend, self._unit.last)
        self._loop: StepLine | None = None
        self._is_in_loop = self._has_optimizer = False
        # The iterators that gave the present step a batch, where each batch is a step.
        self._gave: WeakSet[object] = WeakSet()
        self._backwards, self._batches = 0, 0
        self.periods = Periods(_now, on_batch=self._on_batch, on_backward=self._on_backward)
        self.periods.only_batches = self._unit.loader
        self.ended: Literal["", "limit", "interrupted"] = ""
        self._hooks: list[Any] = []
        self.cuts: list[tuple[Moment, Moment]] = []

    def prepare(self) -> None:
        """Listen for marked steps; modules that are imported later may mark them."""
        if self._unit.line is None:
            count_marked_steps(self._on_mark)
        else:
            count_marked_steps(lambda: None)
            call_at(self._unit.line, self._on_line)
        if self._unit.marked:
            announce_steps()

    def start(self) -> None:
        """Hook the optimizers and loaders, where there is torch, and start the clock."""
        if is_installed("torch"):
            from torch.optim import optimizer

            for hook in (
                optimizer.register_optimizer_step_pre_hook(self._on_update),
                optimizer.register_optimizer_step_post_hook(self._on_updated),
            ):
                self._hooks.append(hook)
                # A forked process that trains by itself is not this training loop.
                os.register_at_fork(after_in_child=hook.remove)
            if self._loaders:
                self.periods.watch()
                os.register_at_fork(after_in_child=self.periods.close)
        self._begins = [Moment(time.perf_counter())]

    def finish(self, name: PassName, *, result: object, profiled_from: int = 0) -> PassSummary:
        """Wait for the accelerator, stop the clock and return what was seen."""
        device = accelerator_in_use()
        last = moment_on(device).event
        if device is not None:
            device.synchronise()
        end_s = time.perf_counter()
        for hook in self._hooks:
            hook.remove()
        begins, ends = ([_at_s(mark, last, end_s) for mark in marks] for marks in (self._begins, self._ends))
        paused_s = sum(begin - end for begin, end in zip(begins[1:], ends, strict=False))
        off_s = [0.0] * (self.steps + 1)
        steps = zip(begins, ends, off_s, strict=False)
        periods: dict[str, list[float]] = {}
        for period in self.periods.found(self.steps):
            seconds = _at_s(period.end, last, end_s) - _at_s(period.begin, last, end_s)
            self.cuts.append((period.begin, period.end))
            off_s[period.step] += seconds
            periods.setdefault(period.name, []).append(seconds)
        workers = self.periods.workers
        return PassSummary(
            name=name,
            total_s=end_s - begins[0] - paused_s,
            step_s=tuple(max(0.0, end - begin - off) for begin, end, off in steps),
            samples=self._samples_of(result),
            data_wait_s=None if workers is None else self.periods.wait_s,
            data_workers=workers,
            profiled_from=profiled_from,
            on_device=last is not None,
            marked=self.is_marked,
            unit=self._title,
            ended=self.ended,
            periods=tuple(PeriodTime(name=one, seconds=sum(s), times=len(s)) for one, s in periods.items()),
        )

    @property
    def steps(self) -> int:
        """Steps seen so far."""
        return len(self._ends)

    @property
    def is_marked(self) -> bool:
        """Whether no optimizer ends a step."""
        return self._unit.line is not None or self._unit.loader or steps_are_announced()

    def found(self) -> Unit:
        """Return what ends the steps, for later passes; without a step, what could."""
        if not self.steps and not self.is_marked:
            return Unit(line=self._loop, loader=self._loop is None and self._batches > 0)
        ends, marked = self._step_ends, steps_are_announced()
        # Of several that each end their own steps, the one that was last does not end those of the others.
        last = ends.last if ends.most > 1 else None
        return replace(self._unit, marked=marked, last=last, next_batch=ends.is_late)

    @property
    def _title(self) -> str:
        if self._unit.line is not None:
            return self._unit.line.title
        if self.is_marked:
            return "a batch of a loader" if self._unit.loader else "marked"
        return "all optimizers' steps" if self._step_ends.most > 1 else "an optimizer's step"

    def _on_update(self, optimizer: object, *_: object) -> None:
        if not self.is_marked:
            self._step_ends.begin_update(optimizer)

    def _on_updated(self, optimizer: object, *_: object) -> None:
        self.periods.train()
        if not self.is_marked:
            self._updated = self.periods.now()
            self._step_ends.end_update(optimizer)

    def _on_mark(self) -> None:
        if not self._unit.marked:
            # What ended before the program marked its first step was no step.
            self._unit = replace(self._unit, marked=True)
            self._begins, self._ends = self._begins[:1], []
        self._end_step(self.periods.now())

    def _on_line(self, what: str = "") -> None:
        is_turn_over = self._is_in_loop
        self._is_in_loop = what == TURN
        if not what or is_turn_over:
            self._end_step(self.periods.now())

    def _on_batch(self, iterator: object) -> None:
        self._batches += 1
        if self._unit.loader:
            if iterator in self._gave and (self.periods.has_trained or not self._backwards):
                self._gave = WeakSet()
                self._end_step(self.periods.now())
            self._gave.add(iterator)
        elif not self.is_marked:
            self._step_ends.give(iterator)
        self._end_in_time()

    def _on_backward(self) -> None:
        self._backwards += 1
        if not (self.steps or self._loop or self._step_ends.optimizers or self.is_marked):
            self._loop = calling_loop()
        self._end_in_time()

    def _end_in_time(self) -> None:
        # Where nothing else ends a step, this pass only finds out what does.
        if self.steps or self.is_marked or self._step_ends.optimizers or self._has_optimizer:
            return
        if self._backwards > _BY_HAND or self._is_late(self._begins[0], time.perf_counter()):
            self._has_optimizer = optimizer_exists()
            if not self._has_optimizer:
                raise EnoughSteps

    def _is_late(self, since: Moment, now_s: float) -> bool:
        return now_s - since.at_s > self._limit_s

    def _extend(self) -> None:
        self._begins[-1] = self._ends[-1] = self._updated
        self.periods.end_step(self.steps - 1, self._updated)
        self._on_extended()

    def _end_step(self, end: Moment) -> None:
        self._ends.append(end)
        self.periods.end_step(self.steps - 1, end)
        # ``report`` may keep the loop waiting: such a pause belongs to no step.
        paused = self._report(self.steps)
        if self.steps > _LONG and self._is_late(self._begins[_LONG], end.at_s):
            self.ended = "limit"
        if self.ended or (self._limit is not None and self.steps >= self._limit):
            raise EnoughSteps
        self._begins.append(self.periods.now() if paused else end)

    def _samples_of(self, result: object) -> int | None:
        with contextlib.suppress(Exception):
            if type(samples := getattr(result, "samples", None)) is int:
                return samples
        return self.periods.samples or None


def import_torch() -> None:
    """Import torch, and what it imports with the first optimizer: seconds that are no part of the loop.

    To be called before the target's folder is searched for modules: a ``glob.py`` there must not break torch.
    Where torch is not installed there is nothing to import.
    """
    if not is_installed("torch"):
        return
    importlib.import_module("torch")
    with contextlib.suppress(ImportError):
        importlib.import_module("torch._dynamo")


def _now() -> Moment:
    return moment_on(accelerator_in_use())


def _at_s(mark: Moment, last: DeviceEvent | None, end_s: float) -> float:
    if mark.event is None or last is None:
        return mark.at_s
    return end_s - float(mark.event.elapsed_time(last)) / 1e3
