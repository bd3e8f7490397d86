"""A planted slowdown: a block of iterations that takes a known share longer."""

from __future__ import annotations

import time
from collections.abc import Callable

Block = Callable[[int], float]


def slowed(block: Block, share: float, *, more_calls: bool) -> Block:
    """Return a block whose iterations take 1 + ``share`` times as long.

    Where ``more_calls`` allows it, whole extra iterations are run. For the remaining part of an iteration it
    waits busily, for as long as that part took in this very block.
    """

    def run(iterations: int) -> float:
        owed = iterations * share
        extra = int(owed) if more_calls else 0
        seconds = block(iterations + extra)
        return seconds + _wait((owed - extra) * seconds / (iterations + extra))

    return run


def _wait(seconds: float) -> float:
    begun = time.perf_counter()
    while (waited := time.perf_counter() - begun) < seconds:
        pass
    return waited
