"""Following every step: what it costs, and whether it finds injected drift and leaks.

``python benchmarks/training/follow_study.py [STEPS]`` times a step's end by turns with none, in processor
time, and follows simulated runs of 100,000 steps of 1 ms: 20 that get slower by 1 % in 10,000 steps, 20 that
leak 100 B a step, and 50 without either. Steps scatter by 5 %, one in a hundred takes up to five times as
long, their level wanders by 0.5 %, and memory fills up and fluctuates.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from perfkit.profiling.passes.follow import BLOCK_STEPS, DRIFT_STEPS, Followed, RunFindings
from perfkit.profiling.passes.launch import ratio_of_turns
from perfkit.profiling.passes.target_code import OwnCode

_STEPS, _TURN, _SPIN = 100_000, 500, 20_000
_NOBODY = OwnCode(root=Path("/nowhere"))


def simulated(*, drift: float = 0.0, leak: float = 0.0, seed: int = 0, steps: int = _STEPS) -> RunFindings:
    """Follow a simulated run; ``drift`` is a share in 10,000 steps, ``leak`` bytes a step."""
    source = np.random.default_rng(seed)
    blocks = steps // BLOCK_STEPS
    moves = source.normal(0, 0.005 * math.sqrt(1 - 0.9**2), blocks)
    level = np.zeros(blocks)
    for at in range(1, blocks):
        level[at] = 0.9 * level[at - 1] + moves[at]
    seconds = 1e-3 * np.exp(source.normal(0, 0.05, steps) + np.repeat(level, BLOCK_STEPS))
    seconds *= np.where(source.random(steps) < 0.01, source.uniform(1, 5, steps), 1.0)
    seconds *= 1 + drift * np.arange(steps) / DRIFT_STEPS
    now = iter(
        np.concatenate([[0.0], np.cumsum(np.insert(seconds, slice(BLOCK_STEPS, None, BLOCK_STEPS), 0))])
    )
    made = [0]

    def memory() -> tuple[float, float]:
        made[0] += BLOCK_STEPS
        fill = 2e7 * (1 - math.exp(-made[0] / 5000))
        return 5e8 + fill + source.uniform(-5e5, 5e5) + leak * made[0], 0.0

    followed = Followed(_NOBODY, clock=lambda: float(next(now)), memory=memory)
    for _ in range(steps - 1):
        followed.end_step()
    found = followed.findings()
    assert found is not None
    return found


def cost(steps: int) -> str:
    """Return the ratio of followed to lone steps of about 1 ms, from turns in processor time."""
    followed = Followed(_NOBODY)
    sides: tuple[Callable[[], None], ...] = (lambda: None, followed.end_step)
    logs = []
    for turn in range(steps // _TURN):
        took = [0.0, 0.0]
        for side in (0, 1) if turn % 2 else (1, 0):
            end = sides[side]
            begun = time.process_time()
            for _ in range(_TURN):
                for _ in range(_SPIN):
                    pass
                end()
            took[side] = time.process_time() - begun
        logs.append(math.log(took[1] / took[0]))
    found = ratio_of_turns(logs)
    begun = time.process_time()
    for _ in range(_STEPS):
        followed.end_step()
    alone = (time.process_time() - begun) / _STEPS
    text = f"an end of a step takes {1e9 * alone:.0f} ns"
    return text if found is None else f"{text}; steps {found.ratio:.5f} ({found.low:.5f} to {found.high:.5f})"


def main(steps: int) -> None:
    """Print all figures."""
    drifting = [simulated(drift=0.01, seed=seed) for seed in range(20)]
    leaking = [simulated(leak=100, seed=100 + seed) for seed in range(20)]
    clean = [simulated(seed=200 + seed) for seed in range(50)]
    slopes, leaks = [one.drift for one in drifting], [one.leak for one in leaking]
    print(f"drift found in {sum(map(bool, slopes))} of 20: {min(slopes):.4f} to {max(slopes):.4f}")
    print(f"leak found in {sum(map(bool, leaks))} of 20: {min(leaks):.0f} to {max(leaks):.0f} B")
    for what in ("drift", "leak", "changes"):
        print(f"{what} in {sum(bool(getattr(one, what)) for one in clean)} of 50 clean runs")
    print(cost(steps))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
