"""What following a training costs: steps alone, timed and watched take turns in one process.

``python benchmarks/training/cost.py [SECONDS]`` prints, for loops with short and long steps, the ratio of timed
to lone steps and that of watched to lone ones, from medians of turns in drawn order, with 99 % intervals.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from perfkit.profiling.side_by_side import ratio_of_turns
from perfkit.profiling.training import StepPlan, TrainingSteps
from perfkit.units import human_seconds

_TURN = 10
_KINDS = {
    "alone": None,
    "timed": StepPlan(warmup=0, steps=2 * _TURN, balance=0),
    "watched": StepPlan(warmup=0, steps=1, balance=2 * _TURN),
}
_ROWS, _WIDTH = 4096, 64


def main(seconds: float) -> None:
    """Measure each loop for so many seconds."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shapes = {"2 layers of 64": (2, 64, 32), "12 layers of 256": (12, 256, 64), "30 layers of 512": (30, 512, 64)}
    for name, (depth, width, batch) in shapes.items():
        turns = _take_turns(_loop(depth, width, batch), seconds)
        alone = human_seconds(statistics.median(turns["alone"]))
        print(f"{name}: a step alone takes {alone}, {len(turns['alone'])} turns of {_TURN} steps")
        for kind in ("timed", "watched"):
            found = ratio_of_turns([math.log(b / a) for a, b in zip(turns["alone"], turns[kind], strict=True)])
            if found is not None:
                print(f"  {kind}: {found.ratio:.4f} ({found.low:.4f} to {found.high:.4f}) times as long")


def _loop(depth: int, width: int, batch: int) -> Callable[[], None]:
    layers = [nn.Linear(_WIDTH, width), *(nn.Linear(width, width) for _ in range(depth - 1)), nn.Linear(width, 1)]
    model = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loss = nn.MSELoss()
    loader = DataLoader(TensorDataset(torch.randn(_ROWS, _WIDTH), torch.randn(_ROWS, 1)), batch_size=batch)
    batches = _forever(loader)

    def step() -> None:
        values, goals = next(batches)
        optimizer.zero_grad()
        loss(model(values), goals).backward()
        optimizer.step()

    return step


def _forever(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def _take_turns(step: Callable[[], None], seconds: float) -> dict[str, list[float]]:
    """Return the median step of each turn; a round has a turn of each kind, in drawn order."""
    order, source = list(_KINDS), random.Random(0)  # noqa: S311 (an order, not a secret)
    turns: dict[str, list[float]] = {kind: [] for kind in order}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        source.shuffle(order)
        for kind in order:
            turns[kind].append(statistics.median(_turn(step, _KINDS[kind])))
    return turns


def _turn(step: Callable[[], None], plan: StepPlan | None) -> list[float]:
    """Return the seconds of each step but the first, which finds cold caches; those of the follower count."""
    followed = None if plan is None else TrainingSteps(plan, Path.cwd())
    if followed is not None:
        followed.begin()
        if plan is not None and plan.balance:
            followed.end_step()
    step()
    found = []
    for _ in range(_TURN):
        begin = time.perf_counter()
        step()
        if followed is not None:
            followed.end_step()
        found.append(time.perf_counter() - begin)
    if followed is not None:
        followed.end()
    return found


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
