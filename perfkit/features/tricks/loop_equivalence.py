"""Whether a loop takes the same first step with tricks as without them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perfkit.features.tricks.choosing import trick_named
from perfkit.features.tricks.loops import run_first_step, using
from perfkit.features.tricks.records import Equivalence

if TYPE_CHECKING:
    from torch import Tensor

# Gradients this close come from the same loss, so a difference in the update comes from the optimizer.
_SAME_GRADIENTS = 1e-3


class _FirstStep:
    """The gradients of a loop's first step, and by how much it changed the parameters."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.gradients: list[Tensor] = []
        self.update: list[Tensor] = []
        self._before: list[Tensor] = []
        run_first_step(run, before=self._begin, after=self._end)

    def _begin(self, optimizer: Any) -> None:  # noqa: ANN401 (torch's own type)
        self.gradients = _gradients(optimizer)
        self._before = [_copy(one) for one in _parameters(optimizer)]

    def _end(self, optimizer: Any) -> None:  # noqa: ANN401 (torch's own type)
        # A closure, as LBFGS and Lightning have it, makes the gradients within the step.
        self.gradients = self.gradients or _gradients(optimizer)
        after = [_copy(one) for one in _parameters(optimizer)]
        self.update = [new - old for new, old in zip(after, self._before, strict=True)]


class LoopComparison:
    """A loop's first step without tricks, which is taken once for all tricks that are compared with it."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run

    def with_tricks(self, tricks: Sequence[str]) -> Equivalence:
        """Return how far the gradients of the first step are from those without the tricks.

        The distance is a share of their length. Where it is next to nothing, that of the updates is returned.
        """
        once, again = self._plain
        with using(tricks) as used:
            new = _FirstStep(self._run)
        tolerance = max(trick_named(name).loop_tolerance for name in tricks)
        if not once.update:
            return _unknown("the loop takes no step of an optimizer: there is nothing to compare")
        if not once.gradients:
            return _unknown(
                "the first step of the loop's optimizer has no gradients: there is nothing to compare"
            )
        if _apart(once, again) > tolerance:
            return _unknown(
                "two runs without it differ as well: let the loop draw from torch's global generator"
            )
        if not used():
            return Equivalence(equal=True, used=False)
        apart = _apart(once, new)
        return Equivalence(equal=apart <= tolerance, largest=apart / tolerance)

    @cached_property
    def _plain(self) -> tuple[_FirstStep, _FirstStep]:
        """Two first steps without tricks: a loop that does not repeat itself cannot be compared."""
        return _FirstStep(self._run), _FirstStep(self._run)


def _unknown(problem: str) -> Equivalence:
    return Equivalence(equal=False, problem=problem)


def _apart(one: _FirstStep, other: _FirstStep) -> float:
    gradients = _distance(one.gradients, other.gradients)
    return gradients if gradients > _SAME_GRADIENTS else max(gradients, _distance(one.update, other.update))


def _distance(some: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    """Return the length of the difference as a share of that of the first."""
    if [values.shape for values in some] != [values.shape for values in others]:
        return math.inf
    between = _length([new - old for new, old in zip(others, some, strict=True)])
    length = _length(some)
    if between == 0:
        return 0.0
    return between / length if length and math.isfinite(between) else math.inf


def _length(values: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(one.square().sum()) for one in values))


def _parameters(optimizer: Any) -> list[Any]:  # noqa: ANN401 (torch's own types)
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _gradients(optimizer: Any) -> list[Tensor]:  # noqa: ANN401 (torch's own types)
    return [_copy(one.grad) for one in _parameters(optimizer) if one.grad is not None]


def _copy(values: Tensor) -> Tensor:
    return values.detach().cpu().double().clone()
