"""The light meter that runs in every pass: steps, samples and the wait for data."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perfkit.agent.clock import DeviceEvent, accelerator_in_use
from perfkit.extras import is_installed
from perfkit.model import PassName, PassSummary
from perfkit.phases import count_marked_steps, steps_are_announced
from perfkit.profiling.passes.targets import StepLine, call_at


class EnoughSteps(BaseException):
    """Ends the target after the last step asked for; it is no Exception, since a loop may catch those."""


@dataclass(frozen=True)
class _Mark:
    """A moment: on the host's clock, and in the accelerator's queue where one is in use."""

    host_s: float
    event: DeviceEvent | None


class Meter:
    """Counts steps and training samples of this process between ``start`` and ``finish``.

    An optimizer's step ends a step, unless the program marks its steps or ``step_at`` names their last line.
    Watching loaders adds frames to a profile, so it is optional. The accelerator is synchronised once, in
    ``finish``: until then an event a step waits in its queue. ``report`` returns whether it kept the loop
    waiting.
    """

    def __init__(
        self,
        *,
        limit: int | None,
        report: Callable[[int], bool],
        loaders: bool,
        step_at: StepLine | None = None,
    ) -> None:
        self._limit = limit
        self._step_at = step_at
        self._loaders = loaders
        self._report = report
        self._begins = [_Mark(time.perf_counter(), None)]
        self._ends: list[_Mark] = []
        self._batches = BatchesOfSteps()
        self._samples: int | None = 0
        self._wait_s = 0.0
        self._workers: int | None = None

    def prepare(self) -> None:
        """Listen for marked steps; modules that are imported later may mark them."""
        if self._step_at is None:
            count_marked_steps(self._on_step)
        else:
            count_marked_steps(lambda: None)
            call_at(self._step_at, self._on_step)

    def start(self) -> None:
        """Hook the optimizers and loaders, where there is torch, and start the clock."""
        if is_installed("torch"):
            from torch.optim.optimizer import register_optimizer_step_post_hook

            hook = register_optimizer_step_post_hook(self._on_optimizer_step)
            # A forked process that trains by itself is not this training loop.
            os.register_at_fork(after_in_child=hook.remove)
            if self._loaders:
                self._batches.watch_loaders(self._note_fetch)
        self._begins = [_Mark(time.perf_counter(), None)]

    def finish(self, name: PassName, *, result: object, profiled_from: int = 0) -> PassSummary:
        """Wait for the accelerator, stop the clock and return what was seen."""
        last, end_s = _wait_for_accelerator()
        begins, ends = ([_at_s(mark, last, end_s) for mark in marks] for marks in (self._begins, self._ends))
        paused_s = sum(begin - end for begin, end in zip(begins[1:], ends, strict=False))
        return PassSummary(
            name=name,
            total_s=end_s - begins[0] - paused_s,
            step_s=tuple(end - begin for begin, end in zip(begins, ends, strict=False)),
            samples=self._samples_of(result),
            data_wait_s=None if self._workers is None else self._wait_s,
            data_workers=self._workers,
            profiled_from=profiled_from,
            on_device=last is not None,
            marked=self._is_marked,
        )

    @property
    def steps(self) -> int:
        """Steps seen so far."""
        return len(self._ends)

    @property
    def _is_marked(self) -> bool:
        return self._step_at is not None or steps_are_announced()

    def _on_optimizer_step(self, *_: object) -> None:
        if not self._is_marked:
            self._on_step()

    def _on_step(self) -> None:
        end = _Mark(time.perf_counter(), _recorded_event())
        self._ends.append(end)
        self._samples = _sum(self._samples, self._batches.end_step().samples)
        # ``report`` may keep the loop waiting: such a pause belongs to no step.
        paused = self._report(self.steps)
        if self._limit is not None and self.steps >= self._limit:
            raise EnoughSteps
        self._begins.append(_Mark(time.perf_counter(), _recorded_event()) if paused else end)

    def _note_fetch(self, iterator: Any, seconds: float) -> None:  # noqa: ANN401 (torch's private iterator)
        self._wait_s += seconds
        self._workers = max(self._workers or 0, iterator._num_workers)  # noqa: SLF001 (no public name)

    def _samples_of(self, result: object) -> int | None:
        samples = None
        with contextlib.suppress(Exception):
            samples = getattr(result, "samples", None)
        if isinstance(samples, int) and not isinstance(samples, bool):
            return samples
        return self._samples or None


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


def batch_size(batch: object) -> int | None:
    """Return the length of the first tensor in a batch, or of the batch; None where neither has one."""
    # A batch may be any object of the user's, and its methods may raise.
    with contextlib.suppress(Exception):
        tensor = _first_tensor(batch)
        if tensor is not None:
            return int(tensor.shape[0]) if tensor.ndim else None
        return len(batch) if hasattr(batch, "__len__") else None
    return None


def _first_tensor(batch: object) -> Any:  # noqa: ANN401 (a tensor of torch, which may not be imported)
    # A tensor is in no batch of a program that has not imported torch.
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if isinstance(batch, torch.Tensor):
        return batch
    parts = (
        batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    )
    return next((found for part in parts if (found := _first_tensor(part)) is not None), None)


def _recorded_event() -> DeviceEvent | None:
    device = accelerator_in_use()
    event = None if device is None else device.event()
    if event is not None:
        event.record()
    return event


def _wait_for_accelerator() -> tuple[DeviceEvent | None, float]:
    last, device = _recorded_event(), accelerator_in_use()
    if device is not None:
        device.synchronise()
    return last, time.perf_counter()


def _at_s(mark: _Mark, last: DeviceEvent | None, end_s: float) -> float:
    if mark.event is None or last is None:
        return mark.host_s
    return end_s - float(mark.event.elapsed_time(last)) / 1e3


@dataclass(kw_only=True)
class _Given:
    """What an iterator gave since the last backward pass; ``trained``: one followed it before."""

    dies: Any
    batches: int = 0
    samples: int | None = 0
    trained: bool = False


@dataclass(frozen=True, kw_only=True)
class StepBatches:
    """The batches of a step from one loader, the largest number of all loaders, and the samples of all."""

    batches: int
    samples: int | None


class BatchesOfSteps:
    """Separates batches that are trained with from those of evaluations, even with gradients on for both.

    A batch belongs to the next backward pass or optimizer's step. An iterator that ends before, or gave more
    batches since the last backward pass than the latest iterator, is one of an evaluation.
    """

    def __init__(self) -> None:
        self._given: dict[int, _Given] = {}
        self._latest: _Given | None = None
        self._batches: dict[int, int] = {}
        self._samples: int | None = 0

    def watch_loaders(self, note: Callable[[Any, float], None] = lambda *_: None) -> None:
        """Notice from now on each backward pass, and each batch that a loader gives while gradients are on.

        ``note`` is called with a loader's iterator and the seconds in which it gave a batch, or its end. A
        loader inside of another's dataset gives nothing to the loop.
        """
        import torch
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        backward: Any = torch.autograd.backward
        is_compiling = torch.compiler.is_compiling
        fetch: Any = _BaseDataLoaderIter.__next__
        is_nested = False

        @functools.wraps(backward)
        def noticed_backward(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (torch's own signature)
            if not is_compiling():
                self.end_backward()
            return backward(*args, **kwargs)

        @functools.wraps(fetch)
        def noticed_fetch(iterator: Any) -> Any:  # noqa: ANN401 (torch's private iterator, the user's batch)
            nonlocal is_nested
            if is_nested:
                return fetch(iterator)
            is_nested = True
            start_s = time.perf_counter()
            try:
                batch = fetch(iterator)
            except StopIteration:
                self.end(iterator)
                raise
            finally:
                note(iterator, time.perf_counter() - start_s)
                is_nested = False
            if torch.is_grad_enabled():
                self.give(iterator, batch_size(batch))
            return batch

        torch.autograd.backward = noticed_backward
        _BaseDataLoaderIter.__next__ = noticed_fetch  # type: ignore[method-assign,assignment]

    def give(self, iterator: object, samples: int | None) -> None:
        """Note that an iterator gave a batch, while gradients were on."""
        key = id(iterator)
        given = self._given.get(key)
        if given is None:
            dies = weakref.ref(iterator, lambda _: self._end(key))
            given = self._given[key] = _Given(dies=dies)
        given.batches += 1
        given.samples = _sum(given.samples, samples)
        self._latest = given

    def end(self, iterator: object) -> None:
        """Note that an iterator has no more batches."""
        self._end(id(iterator))

    def end_backward(self) -> None:
        """Note a backward pass: what was given before it was trained with."""
        most = self._latest.batches if self._latest is not None else 0
        # An iterator may be collected meanwhile.
        for key, given in list(self._given.items()):
            if 0 < given.batches <= most:
                self._train_with(key, given)
            given.batches, given.samples = 0, 0
        self._latest = None

    def end_step(self) -> StepBatches:
        """Note an optimizer's step, and return what it was made with."""
        self.end_backward()
        found = StepBatches(batches=max(self._batches.values(), default=0), samples=self._samples)
        self._batches, self._samples = {}, 0
        return found

    def _end(self, key: int) -> None:
        given = self._given.pop(key, None)
        # A loop that fetches ahead may see the end before its last backward passes.
        if given is not None and given.trained and given.batches:
            self._train_with(key, given)
        if given is self._latest:
            self._latest = None

    def _train_with(self, key: int, given: _Given) -> None:
        given.trained = True
        self._batches[key] = self._batches.get(key, 0) + given.batches
        self._samples = _sum(self._samples, given.samples)


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right
