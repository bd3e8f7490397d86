"""Following every step: what it costs, and whether it finds injected drift and leaks.

``python benchmarks/training/follow_study.py [STEPS]`` makes steps of 1 ms, followed and alone in turns of ten
steps, and compares their processor time. Then it follows simulated runs of
100,000 steps of 1 ms: 20 that get slower by 1 % in 10,000 steps, 20 that leak 100 B a step, and 50 without
either. Simulated steps scatter by 5 %, one in a hundred takes up to five times as long, their level wanders
by 0.5 %, and memory fills up and fluctuates.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import psutil
import torch

import perfkit
from perfkit.profiling.passes.follow import DRIFT_STEPS, Followed, RunFindings
from perfkit.profiling.passes.target_code import OwnCode

_STEPS, _TURN, _SET_UP = 100_000, 10, 20
# A step turns an empty loop for so long.
_STEP_S = 1e-3
# The level of simulated steps wanders from block to block.
_LEVEL_STEPS = 500
# Groups of turns, and the quantile of Student's t for their mean.
_GROUPS, _T_95 = 20, 2.093
_AUTHOR = ("-c", "user.name=A", "-c", "user.email=a@example.org")
_NOBODY = OwnCode(root=Path("/nowhere"))


def simulated(*, drift: float = 0.0, leak: float = 0.0, seed: int = 0, steps: int = _STEPS) -> RunFindings:
    """Follow a simulated run; ``drift`` is a share in 10,000 steps, ``leak`` bytes a step."""
    source = np.random.default_rng(seed)
    blocks = steps // _LEVEL_STEPS
    moves = source.normal(0, 0.005 * math.sqrt(1 - 0.9**2), blocks)
    level = np.zeros(blocks)
    for at in range(1, blocks):
        level[at] = 0.9 * level[at - 1] + moves[at]
    seconds = 1e-3 * np.exp(source.normal(0, 0.05, steps) + np.repeat(level, _LEVEL_STEPS))
    seconds *= np.where(source.random(steps) < 0.01, source.uniform(1, 5, steps), 1.0)
    seconds *= 1 + drift * np.arange(steps) / DRIFT_STEPS
    now, made = [0.0], [0]

    def memory() -> tuple[float, float]:
        fill = 2e7 * (1 - math.exp(-made[0] / 5000))
        return 5e8 + fill + source.uniform(-5e5, 5e5) + leak * made[0], 0.0

    followed = Followed(_NOBODY, clock=lambda: now[0], memory=memory)
    for step in seconds:
        now[0] += step
        made[0] += 1
        followed.end_step()
    found = followed.findings()
    assert found is not None
    return found


def cost(steps: int) -> str:
    """Return the ratio of followed to lone steps of about 1 ms, which take turns in one process.

    Two processes would differ by more than following takes: by where their code and data lie.
    """
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for arguments in (("init", "--quiet"), (*_AUTHOR, "commit", "--quiet", "--allow-empty", "-m", "One")):
            subprocess.run(["git", *arguments], check=True)
        followed = iter(perfkit.training("cost", warmup=0, steps=3, balance=0)(range(_SET_UP + steps + 1)))
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
        for _ in range(_SET_UP):
            next(followed)
            optimizer.step()
        sides: tuple[Iterator[int], ...] = (iter(range(steps)), followed)
        # No list that grows: it would be a leak, and is looked for.
        took, memory = np.zeros((2, steps // _TURN, 2)), np.zeros(steps // _TURN)
        process, turns = psutil.Process(), _turns_of_a_step()
        for turn in range(steps // _TURN):
            for side in (0, 1) if turn % 2 else (1, 0):
                took[side, turn] = _take_turn(sides[side], turns)
            memory[turn] = process.memory_info().rss
    plain, with_hooks = took
    groups = np.array_split(with_hooks - plain, _GROUPS)
    whole = plain[:, 0].mean()
    between, all_of_it = (
        f"{shares.mean():+.3f} % (± {_T_95 * shares.std(ddof=1) / math.sqrt(_GROUPS):.3f})"
        for shares in (np.array([100 * group[:, at].mean() / whole for group in groups]) for at in (1, 0))
    )
    # Without the ends of blocks, whose code and memory nobody has used for two seconds.
    in_median = 100 * (np.median(with_hooks[:, 1]) - np.median(plain[:, 1])) / np.median(plain[:, 0])
    step_ms = np.median(plain[:, 0]) / _TURN / 1e6
    sizes = f"{memory[len(memory) // 10] / 1e6:.1f} MB at a tenth, {memory[-1] / 1e6:.1f} MB at the end"
    return (
        f"following takes {between} of processor time between steps of {step_ms:.2f} ms,"
        f" {all_of_it} with what it does to them, {in_median:+.3f} % between those of a median turn;"
        f" memory {sizes}"
    )


def _turns_of_a_step() -> int:
    """Return how many turns of an empty loop a step has."""
    tried = 20_000
    took_s = []
    for _ in range(50):
        begun = time.process_time()
        for _ in range(tried):
            pass
        took_s.append(time.process_time() - begun)
    return round(tried * _STEP_S / min(took_s))


def _take_turn(steps: Iterator[int], turns: int) -> tuple[int, int]:
    """Make some steps; return the processor time that they took, and that between them, in ns."""
    between, begun = 0, (ended := time.process_time_ns())
    for _ in islice(steps, _TURN):
        between += time.process_time_ns() - ended
        for _ in range(turns):
            pass
        ended = time.process_time_ns()
    return ended - begun, between


def main(steps: int) -> None:
    """Print all figures."""
    print(cost(steps), flush=True)
    drifting = [simulated(drift=0.01, seed=seed) for seed in range(20)]
    leaking = [simulated(leak=100, seed=100 + seed) for seed in range(20)]
    clean = [simulated(seed=200 + seed) for seed in range(50)]
    slopes, leaks = [one.drift for one in drifting], [one.leak for one in leaking]
    print(f"drift found in {sum(map(bool, slopes))} of 20: {min(slopes):.4f} to {max(slopes):.4f}")
    print(f"leak found in {sum(map(bool, leaks))} of 20: {min(leaks):.0f} to {max(leaks):.0f} B")
    for what in ("drift", "leak", "changes"):
        print(f"{what} in {sum(bool(getattr(one, what)) for one in clean)} of 50 clean runs")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else _STEPS)
