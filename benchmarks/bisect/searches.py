"""Bisects of a made-up range whose launches are recorded ones: by perfkit, and by the rules of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from recorded import Hours, read_pool

from perfkit.stats.bisection import Conclusion, Costs, FloatArray, MeasuredPair, Rules, next_move

Noise = Literal["as recorded", "heavy tails", "layout", "normal"]
Weights = Literal["equal", "right", "wrong"]

# Every tenth launch has a burst on either side, of 20 % on average.
_BURSTS, _BURST = 0.1, 0.2
# The deviation of what the layout of its code adds to all launches of a commit.
_LAYOUT = 0.005
_NORMAL_SD = {"quiet": 0.01, "noisy": 0.02}
_FAVOUR = 10.0
_FAVOURED = 8
_LONGEST = 1_000
# The step that a threshold is made for where there is none.
_LOOKED_FOR = 0.05


@dataclass(frozen=True, kw_only=True)
class Range:
    """A range of commits with steps injected at random places, and whose launches they are measured with.

    ``sizes`` are relative changes (0.05 is 5 %), ``weights`` has which commits the prior favours ten to one:
    the first step's and seven others, or eight others. ``unusable`` commits cannot be built. ``number`` is
    that of the range: all searches see the same steps and launches.
    """

    study: str
    hours: Hours
    sizes: tuple[float, ...]
    commits: int = 64
    noise: Noise = "as recorded"
    weights: Weights = "equal"
    number: int = 0

    @property
    def seed(self) -> list[int]:
        """What everything about it is drawn from, the same for all weights."""
        sizes = [round(1000 * abs(size)) for size in self.sizes]
        return [self.number, self.commits, *sizes]


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a search ended: the places that it named, the largest step first, and what it took.

    ``status`` is perfkit's; rules that always name a place have "found". ``interval`` is that of the first
    step's logarithm.
    """

    status: str
    places: tuple[tuple[int, ...], ...]
    launches: int
    pairs: int
    seconds: float
    interval: tuple[float, float] | None = None


@dataclass
class Bench:
    """Measures pairs of a range: launches of one gate of one benchmark in their order, from a random one on.

    Each pair has a gate of its own, drawn from the third that is quiet or noisy, so a group's launches
    stay together. Where a pair uses up all launches of a gate, it goes on with another one.
    """

    range: Range
    steps: tuple[int, ...] = field(init=False)
    levels: FloatArray = field(init=False)
    launches: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    opened: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        source = np.random.default_rng([1, *self.range.seed])
        commits = self.range.commits
        drawn = source.choice(commits, size=len(self.range.sizes), replace=False) + 1
        self.steps = tuple(int(place) for place in drawn)
        self.levels = np.zeros(commits + 1)
        for place, size in zip(self.steps, self.range.sizes, strict=True):
            self.levels[place:] += math.log1p(size)
        if self.range.noise == "layout":
            self.levels[1:] += _LAYOUT * source.standard_normal(commits)
        self._benchmark = int(source.integers(6))
        self._streams: dict[tuple[int, int], Callable[[], float]] = {}

    def measure(self, base: int, head: int, count: int = 1) -> list[float]:
        """Return the next launches of a pair."""
        pair = base, head
        if pair not in self._streams:
            self._streams[pair] = self._stream(base, head)
        if not self.opened or self.opened[-1] != pair:
            self.opened.append(pair)
        draw = self._streams[pair]
        shift = float(self.levels[head] - self.levels[base])
        new = [shift + draw() for _ in range(count)]
        self.launches.setdefault(pair, []).extend(new)
        return new

    @property
    def launched(self) -> int:
        """How many launches there are in all."""
        return sum(len(found) for found in self.launches.values())

    def ending(
        self,
        places: tuple[tuple[int, ...], ...],
        costs: Costs,
        *,
        status: str = "found",
        interval: tuple[float, float] | None = None,
    ) -> Ending:
        """Return how a search ended, with what it took."""
        return Ending(
            status=status,
            places=places,
            launches=self.launched,
            pairs=len(self.opened),
            seconds=costs.opening_s * len(self.opened) + costs.launch_s * self.launched,
            interval=interval,
        )

    def prior(self) -> list[float]:
        """Return the weights of the commits."""
        weights = np.ones(self.range.commits)
        if self.range.weights == "equal":
            return list(weights)
        source = np.random.default_rng([2, *self.range.seed])
        others = np.setdiff1d(np.arange(1, self.range.commits + 1), self.steps)
        favoured = source.choice(others, size=_FAVOURED, replace=False)
        if self.range.weights == "right":
            favoured[0] = self.steps[0]
        weights[favoured - 1] = _FAVOUR
        return list(weights)

    def _stream(self, base: int, head: int) -> Callable[[], float]:
        source = np.random.default_rng([3, *self.range.seed, base, head])
        if self.range.noise == "normal":
            sd = _NORMAL_SD[self.range.hours]
            return lambda: float(source.normal(0, sd))
        gates = list(read_pool(self.range.study, self.range.hours).launches.values())[self._benchmark]
        left: list[float] = []

        def draw() -> float:
            if not left:
                found = gates[int(source.integers(len(gates)))]
                left.extend(np.roll(found, int(source.integers(len(found)))))
            value = float(left.pop())
            if self.range.noise == "heavy tails" and source.random() < _BURSTS:
                value += source.choice([-1, 1]) * math.log1p(source.exponential(_BURST))
            return value

        return draw


def search_perfkit(given: Range, costs: Costs) -> tuple[Bench, Ending]:
    """Return how perfkit's search ends, by its usual rules."""
    bench = Bench(given)
    rules = Rules(most_launches=_LONGEST)
    weights = bench.prior()
    while True:
        pairs = [
            MeasuredPair(base=base, head=head, log_ratios=tuple(found))
            for (base, head), found in bench.launches.items()
        ]
        move = next_move(
            pairs,
            weights=weights,
            unusable=(),
            costs=costs,
            rules=rules,
            open_pair=bench.opened[-1] if bench.opened else None,
        )
        if isinstance(move, Conclusion):
            interval = (move.steps[0].low, move.steps[0].high) if move.steps else None
            places = tuple(step.places for step in move.steps)
            return bench, bench.ending(places, costs, status=move.status, interval=interval)
        bench.measure(move.base, move.head, move.launches)


def search_asv(given: Range, costs: Costs) -> tuple[Bench, Ending]:
    """Return how ``asv find`` ends: one result for each commit, and on to where it differs most."""
    bench = Bench(given)
    results = {0: 0.0}

    def result(place: int) -> float:
        if place not in results:
            results[place] = bench.measure(0, place)[0]
        return results[place]

    low, high = 0, given.commits
    while high - low > 1:
        middle = (low + high) // 2
        if result(middle) - result(low) >= result(high) - result(middle):
            high = middle
        else:
            low = middle
    return bench, bench.ending(((high,),), costs)


def search_threshold(given: Range, costs: Costs, *, launches: int) -> tuple[Bench, Ending]:
    """Return how ``git bisect run`` ends whose script compares a commit with the good one.

    A commit is bad where the median of its launches lies above half of the step that is looked for, which
    the script is given. The end is measured too: where it is not bad, nothing is searched.
    """
    bench = Bench(given)
    threshold = math.log1p(given.sizes[0] if given.sizes else _LOOKED_FOR) / 2

    def bad(place: int) -> bool:
        return float(np.median(bench.measure(0, place, launches))) > threshold

    low, high = 0, given.commits
    if not bad(high):
        return bench, bench.ending((), costs, status="no change")
    while high - low > 1:
        middle = (low + high) // 2
        if bad(middle):
            high = middle
        else:
            low = middle
    return bench, bench.ending(((high,),), costs)


Search = Callable[[Range, Costs], tuple[Bench, Ending]]
SEARCHES: dict[str, Search] = {
    "perfkit": search_perfkit,
    "asv find": search_asv,
    "git bisect run, 1 launch": lambda given, costs: search_threshold(given, costs, launches=1),
    "git bisect run, median of 3": lambda given, costs: search_threshold(given, costs, launches=3),
}


def is_exact(bench: Bench, ending: Ending, *, largest: bool = False) -> bool:
    """Return whether a search named the steps that are there and nothing else, or the largest one first."""
    named = ending.places if ending.status == "found" else ()
    by_size = sorted(
        zip(bench.range.sizes, bench.steps, strict=True), key=lambda step: -abs(math.log1p(step[0]))
    )
    wanted = [(place,) for _, place in by_size]
    return list(named[:1]) == wanted[:1] if largest else sorted(named) == sorted(wanted)


def holds(bench: Bench, ending: Ending) -> bool | None:
    """Return whether the interval of a rightly named step holds its size; None where there is none."""
    if ending.interval is None or not bench.range.sizes or not is_exact(bench, ending, largest=True):
        return None
    (low, high), place = ending.interval, ending.places[0][0]
    return bool(low <= bench.levels[place] - bench.levels[place - 1] <= high)
