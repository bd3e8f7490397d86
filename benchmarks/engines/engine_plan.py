"""A plan on paper: 1,000 commits, 1,000 benchmarks and 20 classes of machines, from measured unit costs.

The scheduling is simulated as the engine does it: each class has its own workers, a free worker gets the
commit of which the history knows least, and a worker that is lost loses the task that it does. It is
deterministic.
``make engine-plan`` prints the table of ``docs/measured/cluster.md``.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from perfkit.ledger.history.trends import Gaps

COSTS = Path(__file__).with_name("costs.json")
COMMITS, BENCHMARKS, CLASSES, LAUNCHES = 1000, 1000, 20, 5
STEPS = 12
_MARGIN = 0.02
# A worker is lost once in so many hours of its own: spot machines, restarts, and the like.
_LOSS_HOURS = 100.0
_HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """Which commits are measured: all, each n-th, or in the engine's order until all steps are known."""

    name: str
    every: int = 1
    until_known: bool = False
    share: float = 1.0
    launches: int = LAUNCHES


STRATEGIES = (
    Strategy(name="every commit, all benchmarks"),
    Strategy(name="each 10th commit, all benchmarks", every=10),
    Strategy(name="until each step has its commit", until_known=True),
    Strategy(name="the same, a tenth of the benchmarks", until_known=True, share=0.1),
    Strategy(name="the same, and 3 launches", until_known=True, share=0.1, launches=3),
)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What one class of machines does: tasks, hours until the end, hours of all its workers, hours lost."""

    tasks: int
    wall_h: float
    worker_h: float
    lost_h: float
    named: int


def task_seconds(costs: Mapping[str, float], strategy: Strategy) -> float:
    """Return what a task takes: its process, a checkout, and launches, each of a session and benchmarks."""
    launch_s = costs["collection_s"] + costs["benchmark_s"] * BENCHMARKS * strategy.share
    return costs["task_s"] + costs["checkout_s"] + strategy.launches * launch_s


def steps(seed: int) -> dict[int, int]:
    """Return the commits that make a step, each with the benchmark that it slows by a tenth."""
    lot = random.Random(seed)  # noqa: S311 (a made history, not a secret)
    return {place: number for number, place in enumerate(sorted(lot.sample(range(1, COMMITS), STEPS)))}


def simulate(seconds: float, strategy: Strategy, *, workers: int, seed: int) -> Planned:
    """Simulate one class of machines."""
    lot = random.Random(seed)  # noqa: S311 (moments of losses, not secrets)
    made = steps(seed)
    gaps = Gaps({*range(0, COMMITS, strategy.every), COMMITS - 1}, margin=_MARGIN)
    known: set[int] = set()
    running: list[tuple[float, int]] = []
    free = [0.0] * workers
    lost_s = busy_s = end_s = 0.0
    # Where all are measured, their order changes nothing.
    rest = None if strategy.until_known else iter(sorted({*range(0, COMMITS, strategy.every), COMMITS - 1}))
    while True:
        begin = heapq.heappop(free)
        while running and running[0][0] <= begin:
            _learn(heapq.heappop(running)[1], gaps, known, made)
        place = gaps.next() if rest is None else next(rest, None)
        if place is None or (strategy.until_known and _is_known(gaps, known)):
            break
        gaps.finish(place)
        wasted = sum(_losses(lot, seconds))
        over = begin + wasted + seconds
        lost_s, busy_s, end_s = lost_s + wasted, busy_s + wasted + seconds, max(end_s, over)
        heapq.heappush(running, (over, place))
        heapq.heappush(free, over)
    for _, place in running:
        _learn(place, gaps, known, made)
    return Planned(
        tasks=gaps.done,
        wall_h=end_s / _HOUR,
        worker_h=busy_s / _HOUR,
        lost_h=lost_s / _HOUR,
        named=sum(place in known and place - 1 in known for place in made),
    )


def _learn(place: int, gaps: Gaps, known: set[int], made: Mapping[int, int]) -> None:
    known.add(place)
    gaps.learn(place, {(str(number), "1"): 1.1 if place >= begin else 1.0 for begin, number in made.items()})


def _is_known(gaps: Gaps, known: set[int]) -> bool:
    """Return whether both ends are known, and no two commits that differ have another between them."""
    return {0, COMMITS - 1} <= known and not any(
        gaps.differ(one, other) for one, other in itertools.pairwise(sorted(known)) if other - one > 1
    )


def _losses(lot: random.Random, seconds: float) -> Iterator[float]:
    """Yield the seconds that each loss of a worker wastes before a task is done."""
    while (until := lot.expovariate(1 / (_LOSS_HOURS * _HOUR))) < seconds:
        yield until


def table(costs: Mapping[str, float]) -> str:
    """Return the plan as a table of Markdown."""
    lines = [
        "| what is measured | workers a class | tasks | s a task | days | worker-days | lost | steps named |",
        "| :--- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for strategy in STRATEGIES:
        seconds = task_seconds(costs, strategy)
        for workers in (1, 4, 16):
            done = [simulate(seconds, strategy, workers=workers, seed=number) for number in range(CLASSES)]
            days = max(one.wall_h for one in done) / 24
            worker_days = sum(one.worker_h for one in done) / 24
            lost = sum(one.lost_h for one in done) / sum(one.worker_h for one in done)
            named = sum(one.named for one in done)
            lines.append(
                f"| {strategy.name} | {workers} | {sum(one.tasks for one in done):,} | {seconds:,.0f} |"
                f" {days:,.1f} | {worker_days:,.0f} | {100 * lost:.1f} % | {named} of {STEPS * CLASSES} |"
            )
    return "\n".join(lines)


def main() -> int:
    """Print the table."""
    print(table(json.loads(COSTS.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
