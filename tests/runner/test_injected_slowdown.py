"""An injected slowdown makes a block take the injected share longer."""

from __future__ import annotations

import time

import pytest

from perfkit.agent.timing_loop import slowed

ITERATION_S = 0.0005


class Block:
    """A block that takes as long as it is given, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, iterations: int) -> float:
        """Take the time of so many iterations."""
        self.asked.append(iterations)
        begun = time.perf_counter()
        while (taken := time.perf_counter() - begun) < iterations * ITERATION_S:
            pass
        return taken


@pytest.mark.parametrize(("iterations", "share", "run"), [(100, 0.03, 103), (40, 0.05, 42), (10, 0.25, 12)])
def test_whole_iterations_are_run(iterations: int, share: float, run: int) -> None:
    block = Block()

    slowed(block, share, more_calls=True)(iterations)

    assert [run] == block.asked


@pytest.mark.alone
@pytest.mark.parametrize(("iterations", "share"), [(1, 0.5), (3, 0.2), (10, 0.25)])
@pytest.mark.parametrize("more_calls", [True, False])
def test_the_time_holds_the_share(iterations: int, share: float, more_calls: bool) -> None:  # noqa: FBT001
    plain = min(Block()(iterations) for _ in range(5))
    block = Block()

    taken = min(slowed(block, share, more_calls=more_calls)(iterations) for _ in range(5))

    assert taken >= plain * (1 + share) * 0.999
    assert taken < plain * (1 + share) * 1.2
    if not more_calls:
        assert {iterations} == set(block.asked)
