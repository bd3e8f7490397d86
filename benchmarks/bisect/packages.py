"""How often a search among packages names the guilty one: ``python benchmarks/bisect/packages.py``.

60 packages differ, one of them costs 5 %, or two only together cost 10 %, or none costs anything; launches
are recorded ones of identical code. The table goes into docs/measured/bisect.md. It takes a minute or two.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from recorded import BOTH, Hours
from searches import Bench, Range

from perfkit.gating.packages import PackageSearch
from perfkit.gating.pairs import Earlier
from perfkit.model import Benchmark, Environment, Machine
from perfkit.model.bisection import BisectProgress, Level

DOCUMENT = Path(__file__).parents[2] / "docs/measured/bisect.md"
_BEGIN, _END = "<!-- packages -->\n", "<!-- end of packages -->"
_PACKAGES = 60
# What laying out a pair and a launch of it take here.
_OPENING_S, _LAUNCH_S = 3.0, 0.5
_MOST_GROUPS = 2_000
# The name of a case, its ranges, its guilty packages, and what they cost together.
_CASES = (("one costs 5 %", 100, 1, 0.05), ("two together cost 10 %", 20, 2, 0.10), ("none", 100, 0, 0.0))


class _Mixtures:
    """Packages without requirements."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.changes = dict.fromkeys(names, ("1", "2"))

    def problem(self, _: object) -> None:
        return None

    def order(self, group: Sequence[str] = (), names: Sequence[str] | None = None) -> tuple[str, ...]:
        return tuple(one for one in (names or self.names) if one not in group)

    def with_needed(self, group: Sequence[str]) -> frozenset[str]:
        return frozenset(group)


@dataclass
class _Meter:
    """Launches of pairs of groups: recorded ones, and the cost of the guilty packages."""

    bench: Bench
    ids: dict[frozenset[str], int]
    groups: Sequence[frozenset[str]]
    guilty: frozenset[str]
    cost: float
    now: list[float]
    open_pair: tuple[int, int] | None = None
    benchmark: Benchmark | None = None
    machine: Machine = field(default_factory=lambda: Machine(machine_id="", facts={}))
    environment: Environment = field(default_factory=lambda: Environment(env_id="", facts={}))
    runs: list[str] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)

    def open(self, base: int, head: int) -> Mapping[int, str]:
        self.now[0] += _OPENING_S * (self.open_pair != (base, head))
        self.open_pair = base, head
        return {}

    def launch(self) -> float:
        assert self.open_pair is not None
        self.now[0] += _LAUNCH_S
        pair = [self.groups[place] for place in self.open_pair]
        base, head = (self.ids.setdefault(group, len(self.ids)) for group in pair)
        costs = [self.cost * bool(self.guilty and self.guilty <= group) for group in pair]
        return self.bench.measure(base, head)[0] + costs[1] - costs[0]

    def count(self, places: Sequence[int], metric: str) -> Mapping[int, float | str]:
        raise NotImplementedError

    def earlier(self, _: str) -> Earlier:
        return Earlier()

    def name(self, place: int) -> str:
        return str(place)

    def explain(self, *_: int) -> None:
        return None

    def levels(self, *_: int) -> tuple[Level | None, Level | None]:
        return None, None


class _Silent(BisectProgress):
    def begin(self, *_: object, **__: object) -> None:
        """Show nothing."""

    def update(self, *_: object, **__: object) -> None:
        """Show nothing."""

    def info(self, *_: object, **__: object) -> None:
        """Show nothing."""


def judge(number: int, guilty: int, cost: float) -> tuple[bool, int, int, str]:
    """Return whether a search was right, its pairs and launches, and how it ended."""
    hours: Hours = "quiet" if number % 2 else "noisy"
    bench = Bench(Range(study=BOTH, hours=hours, sizes=(), commits=_MOST_GROUPS, number=number))
    names = [f"p{one:02}" for one in range(_PACKAGES)]
    blamed = frozenset(np.random.default_rng([7, number]).choice(names, size=guilty, replace=False).tolist())
    ids: dict[frozenset[str], int] = {}
    now = [0.0]

    @contextmanager
    def opening(groups: Sequence[frozenset[str]]) -> Iterator[_Meter]:
        yield _Meter(bench=bench, ids=ids, groups=groups, guilty=blamed, cost=math.log1p(cost), now=now)

    search = PackageSearch(
        mixtures=_Mixtures(names),  # type: ignore[arg-type]
        opening=opening,
        confidence=0.95,
        deadline=math.inf,
        progress=_Silent(),
        clock=lambda: now[0],
    )
    conclusion, found, _ = search.run()
    named = {part[0].name for one in found for part in one.together}
    exact = all(len(part) == 1 for one in found for part in one.together)
    return named == blamed and exact, len(bench.launches), bench.launched, conclusion.status


def main() -> None:
    """Judge all cases, and fill the table."""
    lines = [
        "| of 60 packages | right | wrong | undecided | pairs, median | 95 of 100 | most | launches |",
        "| :--- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, ranges, guilty, cost in _CASES:
        ended = [judge(number, guilty, cost) for number in range(ranges)]
        wrong = sum(not right and status == "found" for right, _, _, status in ended)
        right = sum(right and (status == "found" or not guilty) for right, _, _, status in ended)
        undecided = sum(status == "undecided" for *_, status in ended)
        pairs = [one for _, one, _, _ in ended]
        launches = statistics.median(one for _, _, one, _ in ended)
        lines.append(
            f"| {name} | {right} of {ranges} | {wrong} | {undecided} |"
            f" {statistics.median(pairs):.0f} | {np.quantile(pairs, 0.95):.0f} | {max(pairs)} |"
            f" {launches:.0f} |"
        )
        print(lines[-1], flush=True)
    head, _, rest = DOCUMENT.read_text().partition(_BEGIN)
    DOCUMENT.write_text(head + _BEGIN + "\n".join(lines) + "\n" + _END + rest.partition(_END)[2])


if __name__ == "__main__":
    main()
