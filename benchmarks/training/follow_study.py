"""Following every step: what it costs, and whether it finds injected drift and leaks.

``python benchmarks/training/follow_study.py [STEPS]`` makes steps of 1 ms in two processes, one of them
followed, that take turns of ten steps, and compares their processor time. Then it follows simulated runs of
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
from pathlib import Path

import numpy as np
import psutil
import torch

import perfkit
from perfkit.profiling.passes.follow import BLOCK_STEPS, DRIFT_STEPS, Followed, RunFindings
from perfkit.profiling.passes.launch import ratio_of_turns
from perfkit.profiling.passes.target_code import OwnCode

_STEPS, _TURN, _SPIN, _SET_UP = 100_000, 10, 60_000, 20
# The turn of each block in which it is summed up, after the set-up.
_CLOSES = 48
_SIDES = ("alone", "followed")
_AUTHOR = ("-c", "user.name=A", "-c", "user.email=a@example.org")
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
    """Return the ratio of followed to lone steps of about 1 ms, of two processes that take turns."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as around:
        repository = Path(folder)
        for arguments in (("init", "--quiet"), (*_AUTHOR, "commit", "--quiet", "--allow-empty", "-m", "One")):
            subprocess.run(["git", *arguments], cwd=repository, check=True)
        sides = [
            around.enter_context(
                subprocess.Popen(
                    [sys.executable, __file__, side, str(steps)],
                    cwd=repository,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for side in _SIDES
        ]
        for process in sides:
            _answer(process)
        # Turns in which a block of steps is summed up are few, and their ratios are others.
        logs: dict[bool, list[float]] = {False: [], True: []}
        turns, memory = BLOCK_STEPS // _TURN, []
        for turn in range(steps // _TURN):
            took = [0, 0]
            for side in (0, 1) if turn % 2 else (1, 0):
                _ask(sides[side])
                took[side] = _answer(sides[side])
            logs[turn % turns == _CLOSES].append(math.log(took[1] / took[0]))
            memory.append(psutil.Process(sides[1].pid).memory_info().rss)
        for process in sides:
            process.communicate("\n")
    plain, closing = (ratio_of_turns(logs[closes]) for closes in (False, True))
    assert plain is not None
    assert closing is not None
    point, low, high = (
        100 * ((getattr(plain, name) - 1) * (turns - 1) + getattr(closing, name) - 1) / turns
        for name in ("ratio", "low", "high")
    )
    return (
        f"following takes {point:+.4f} % ({low:+.4f} to {high:+.4f}) of processor time, {len(memory)} turns;"
        f" those that end a block {100 * (closing.ratio - 1):+.2f} %;"
        f" memory {memory[len(memory) // 10] / 1e6:.1f} MB at a tenth, {memory[-1] / 1e6:.1f} MB at the end"
    )


def _ask(side: subprocess.Popen[str]) -> None:
    assert side.stdin is not None
    side.stdin.write("\n")
    side.stdin.flush()


def _answer(side: subprocess.Popen[str]) -> int:
    assert side.stdout is not None
    return int(side.stdout.readline())


def take_turns(side: str, steps: int) -> None:
    """Be one of the two processes: make a few steps when asked, and print their processor time in ns."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    follow = perfkit.training("cost", warmup=0, steps=3, balance=0) if side == _SIDES[1] else iter
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    begun = 0
    for step in follow(range(_SET_UP + steps + 1)):
        if step < _SET_UP:
            optimizer.step()
        elif step % _TURN == 0:
            print(time.process_time_ns() - begun, flush=True)
            sys.stdin.readline()
            begun = time.process_time_ns()
        for _ in range(_SPIN):
            pass


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
    if sys.argv[1:2] and sys.argv[1] in _SIDES:
        take_turns(sys.argv[1], int(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else _STEPS)
