"""Batches count for the step that they were trained with; those of evaluations count for none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perfkit.profiling.passes.meter import BatchesOfSteps, StepBatches


class Loader:
    """An iterator that records each of its batches of four samples, and of its end."""

    def __init__(self, seen: BatchesOfSteps, batches: int) -> None:
        self._seen, self._left = seen, batches

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if not self._left:
            self._seen.end(self)
            raise StopIteration
        self._left -= 1
        self._seen.give(self, 4)
        return self._left


@pytest.fixture
def seen() -> BatchesOfSteps:
    return BatchesOfSteps()


def step(seen: BatchesOfSteps) -> StepBatches:
    seen.end_backward()
    return seen.end_step()


@pytest.mark.parametrize("whole", [True, False])
def test_an_evaluation_that_ends_counts_for_no_step(seen: BatchesOfSteps, whole: bool) -> None:  # noqa: FBT001 (a parameter of a test)
    training = Loader(seen, 9)
    found = []
    for _ in training:
        found.append(step(seen))
        for number, _ in enumerate(Loader(seen, 5)):
            if not whole and number == 2:
                break

    assert [StepBatches(batches=1, samples=4)] * 9 == found


def test_an_evaluation_whose_iterator_stays_counts_for_no_step(seen: BatchesOfSteps) -> None:
    training, evaluation = Loader(seen, 9), Loader(seen, 100)
    found = []
    for _ in training:
        found.append(step(seen))
        for _, _ in zip(range(3), evaluation, strict=False):
            pass

    assert [StepBatches(batches=1, samples=4)] * 9 == found


def test_loaders_side_by_side_all_count(seen: BatchesOfSteps) -> None:
    found = [step(seen) for _ in zip(Loader(seen, 3), Loader(seen, 3), strict=True)]

    assert [StepBatches(batches=1, samples=8)] * 3 == found


def test_accumulated_and_prefetched_batches_all_count(seen: BatchesOfSteps) -> None:
    ahead = Loader(seen, 12)
    for _ in range(3):
        for _ in [next(ahead) for _ in range(4)]:
            seen.end_backward()
        assert StepBatches(batches=4, samples=16) == seen.end_step()

    ahead = Loader(seen, 3)
    next(ahead)
    total = 0
    for _ in range(3):
        next(ahead, None)
        total += step(seen).samples or 0
    assert 12 == total


def test_a_step_after_the_loop_takes_all_of_its_batches(seen: BatchesOfSteps) -> None:
    for _ in Loader(seen, 5):
        seen.end_backward()

    assert StepBatches(batches=5, samples=20) == seen.end_step()


def test_a_step_without_a_backward_pass_takes_what_was_given(seen: BatchesOfSteps) -> None:
    training = Loader(seen, 2)
    next(training)

    assert StepBatches(batches=1, samples=4) == seen.end_step()
