"""What following a training costs: steps alone, timed and watched take turns in one process.

``python benchmarks/training/cost.py [SECONDS]`` prints, for loops with short and long steps, the ratio of
timed to lone steps and that of watched to lone ones, from medians of turns in drawn order, with 99 %
intervals; and what a turn costs besides, in setting hooks and in the first step after that.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from perfkit.profiling.passes.launch import ratio_of_turns
from perfkit.profiling.passes.training import StepPlan, TrainingSteps
from perfkit.units import human_seconds

_Kind = Literal["alone", "timed", "watched"]
_TURN = 10
_KINDS: tuple[_Kind, ...] = ("alone", "timed", "watched")
_SHAPES = {
    "2 layers of 64": (2, 64, 32),
    "12 layers of 256": (12, 256, 64),
}
_ROWS, _WIDTH = 4096, 64


@dataclass(frozen=True)
class _Turn:
    """The median step of a turn, and what setting hooks and the first step took besides, in seconds."""

    step_s: float
    besides_s: float


def main(seconds: float) -> None:
    """Measure each loop for so many seconds."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name, (depth, width, batch) in _SHAPES.items():
        turns = _take_turns(_loop(depth, width, batch), seconds)
        alone = human_seconds(statistics.median(turn.step_s for turn in turns["alone"]))
        print(f"{name}: a step alone takes {alone}, {len(turns['alone'])} turns of {_TURN} steps")
        for kind in ("timed", "watched"):
            found = ratio_of_turns(
                [math.log(b.step_s / a.step_s) for a, b in zip(turns["alone"], turns[kind], strict=True)]
            )
            besides = human_seconds(statistics.median(turn.besides_s for turn in turns[kind]))
            if found is not None:
                print(f"  {kind}: {found.ratio:.4f} ({found.low:.4f} to {found.high:.4f}) times as long, and")
                print(f"    {besides} a turn besides")


def _loop(depth: int, width: int, batch: int) -> Callable[[], None]:
    layers = [
        nn.Linear(_WIDTH, width),
        *(nn.Linear(width, width) for _ in range(depth - 1)),
        nn.Linear(width, 1),
    ]
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


def _take_turns(step: Callable[[], None], seconds: float) -> dict[_Kind, list[_Turn]]:
    """Return turns of each kind; a round has one of each, in drawn order."""
    order, source = list(_KINDS), random.Random(0)  # noqa: S311 (an order, not a secret)
    turns: dict[_Kind, list[_Turn]] = {kind: [] for kind in order}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        source.shuffle(order)
        for kind in order:
            turns[kind].append(_turn(step, kind))
    return turns


def _turn(step: Callable[[], None], kind: _Kind) -> _Turn:
    """Make a turn; the follower's own work is part of each step."""
    followed = _followed(kind)
    begin = time.perf_counter()
    if followed is not None:
        followed.begin()
        if kind == "watched":
            # The one timed step of its plan, so that the next ones are watched.
            followed.end_step()
    opened = time.perf_counter()
    times = [_timed(step, followed) for _ in range(1 + _TURN)]
    closing = time.perf_counter()
    if followed is not None:
        followed.end()
    closed = time.perf_counter()
    first, *others = times
    typical = statistics.median(others)
    return _Turn(step_s=typical, besides_s=opened - begin + closed - closing + first - typical)


def _followed(kind: _Kind) -> TrainingSteps | None:
    if kind == "alone":
        return None
    watched = kind == "watched"
    plan = StepPlan(warmup=0, steps=1 if watched else 2 * _TURN, balance=2 * _TURN if watched else 0)
    return TrainingSteps(plan, Path.cwd())


def _timed(step: Callable[[], None], followed: TrainingSteps | None) -> float:
    begin = time.perf_counter()
    step()
    if followed is not None:
        followed.end_step()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
