"""Which batches of which loaders a training step was made with."""

from __future__ import annotations

import functools
import weakref
from dataclasses import dataclass
from typing import Any


@dataclass(kw_only=True)
class _Given:
    """What an iterator gave since the last backward pass; ``trained`` says whether one followed it before."""

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
    """Tells batches that are trained with from those of evaluations, even with gradients on for both.

    A batch belongs to the backward pass, or the optimizer's step, that comes next. An iterator that ends
    before any came is one of an evaluation. So is one that gave more batches than the latest iterator did
    since the last backward pass: loaders that a loop takes side by side give equally many.
    """

    def __init__(self) -> None:
        self._given: dict[int, _Given] = {}
        self._latest: _Given | None = None
        self._batches: dict[int, int] = {}
        self._samples: int | None = 0

    def watch_backward(self) -> None:
        """Notice each backward pass from now on."""
        import torch

        backward: Any = torch.autograd.backward
        is_compiling = torch.compiler.is_compiling

        @functools.wraps(backward)
        def noticed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (torch's own signature)
            if not is_compiling():
                self.end_backward()
            return backward(*args, **kwargs)

        torch.autograd.backward = noticed

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
