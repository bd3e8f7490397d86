"""``perfkit.training``: times the steps of any training loop, and files what they take and wait for."""

from __future__ import annotations

import atexit
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from perfkit.commands.training import TrainingRecord
from perfkit.errors import UsageError
from perfkit.phases import announce_steps, step, steps_are_counted
from perfkit.profiling.passes.training import OptimizerSteps, StepPlan

Batch = TypeVar("Batch")


def _guarded(method: Callable[[training], None]) -> Callable[[training], None]:
    """Let no error of perfkit into the training."""

    @functools.wraps(method)
    def call(run: training) -> None:
        try:
            method(run)
        except Exception as error:  # noqa: BLE001 (a person's training is worth more than its times)
            run._record.give_up(error)  # noqa: SLF001 (its own)

    return call


class training:  # noqa: N801 (used like a keyword: ``run = perfkit.training("resnet")``)
    """Files what the steps of a training loop take: ``for batch in run(loader):`` is all that it needs.

    A step ends with the turn of the loop in which an optimizer made a step, or without optimizers a backward
    pass: accumulated gradients and several optimizers are one step. A loop that iterates over no loader calls
    ``run.step()`` at the end of each. What runs between two loops, or ``with run.pause():``, belongs to no
    step, and neither do evaluations, rollouts and checkpoints. After ``warmup`` steps, ``steps`` are timed,
    ``balance`` others are watched by turns with these, phase by phase, and with ``counts`` three are counted;
    then all is filed. Every later step is timed too, at 0.5 to 2 us each: a few rows are filed
    when the program ends, or by ``finish()``, and lasting changes, drift and leaks are named.

    An ``Accelerator`` gives its rank, its precision and its accumulation. These, the batch's size and what
    ``work`` has are how much work a step is: other amounts begin a new history. No error in here stops the
    training: it is printed in a line. Under ``perfkit profile`` nothing is filed: the steps are those of the
    profile.

    Raises:
        UsageError: the name is empty, or a number makes no sense.
    """

    def __init__(
        self,
        name: str,
        *,
        accelerator: Any = None,  # noqa: ANN401 (Accelerate's own; it is not imported for this)
        warmup: int = 10,
        steps: int = 200,
        balance: int = 40,
        counts: bool = False,
        work: Mapping[str, object] | None = None,
        ledger: str | Path | None = None,
    ) -> None:
        if not name.strip():
            raise UsageError('training needs a name for what is trained: perfkit.training("resnet")')
        plan = StepPlan(warmup=warmup, steps=steps, balance=balance, counts=counts)
        self._record = TrainingRecord(name, plan, ledger=ledger)
        self._record.describe(**(work or {}))
        self._rank: int | None = None
        self._ranks: int | None = None
        if accelerator is not None:
            self._take_from(accelerator)
        self._optimizers = OptimizerSteps()
        self._begun = self._each_turn = False
        self._steps = self._turns = 0
        announce_steps()

    def __call__(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches of a loader; each turn of the loop in which an optimizer stepped ends a step."""
        # What is chained passes through no further generator, which each later turn would pay for.
        return chain.from_iterable(self._turns_of(loader))

    def _turns_of(self, loader: Iterable[Batch]) -> Iterator[Iterable[Batch]]:
        if self._begun:
            self._record.resume()
        self._begin()
        clock, batches = time.perf_counter, iter(loader)
        try:
            while True:
                followed, begun = self._record.followed, clock()
                if followed is not None and self._each_turn:
                    # Where each turn was a step, it goes on to be one, and nothing needs to notice updates.
                    # A loader that is its own iterator may begin anew when it is asked for one again.
                    is_safe = batches is not loader and hasattr(batches, "__iter__")
                    yield followed.turns(batches if is_safe else map(next, repeat(batches)))
                    return
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                if followed is None:
                    self._record.see_batch(batch)
                    self._turns += 1
                else:
                    followed.add_wait(clock() - begun)
                try:
                    yield (batch,)
                finally:
                    self._end_turn()
        finally:
            # What follows, such as an evaluation, belongs to no step.
            self._record.pause()

    @_guarded
    def _end_turn(self) -> None:
        if self._optimizers.taken():
            self.step()

    @_guarded
    def step(self) -> None:
        """End a step by hand, and begin the next one."""
        if self._record.followed is not None:
            self._record.end_step()
            return
        self._begin()
        self._optimizers.taken()
        step()
        self._steps += 1
        self._record.end_step()
        if self._record.is_over:
            self._each_turn = self._steps == self._turns
            if self._each_turn or not self._turns or self._record.followed is None:
                self._optimizers.end()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave what runs inside out of all steps: such as an evaluation or a checkpoint."""
        self._record.pause()
        try:
            yield
        finally:
            self._record.resume()

    def finish(self) -> None:
        """File what was measured until now, unless that was done before, and print that in a line."""
        self._end()
        self._report()
        atexit.unregister(self.finish)

    @_guarded
    def _end(self) -> None:
        self._optimizers.end()
        if not steps_are_counted():
            self._record.finish()

    @_guarded
    def _report(self) -> None:
        self._record.report()

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def _take_from(self, accelerator: Any) -> None:  # noqa: ANN401 (likewise)
        try:
            self._rank, self._ranks = accelerator.process_index, accelerator.num_processes
            work = {
                "accumulate": accelerator.gradient_accumulation_steps,
                "precision": accelerator.mixed_precision,
            }
        except AttributeError as error:
            raise UsageError(
                f"accelerator is an Accelerator of the library accelerate, found {type(accelerator).__name__}"
            ) from error
        self._record.describe(**work)

    @_guarded
    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._optimizers.begin()
            if not steps_are_counted():
                atexit.register(self.finish)
                self._record.begin(rank=self._rank, ranks=self._ranks)
