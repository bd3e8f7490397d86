"""How often bisects name the commit: ``python benchmarks/bisect/bisect_study.py``.

Steps are injected at random places of made-up ranges, whose launches are recorded ones of identical code.
What comes of it goes to ``outcomes.json`` beside it, and from there to the tables of
``docs/measured/bisect.md``; with ``--render`` the tables alone are written. All is drawn from fixed numbers,
so it comes out the same on any machine. In two processes it takes some twenty minutes. Fewer ranges of each
kind, for a look, without writing anything: ``--ranges 20``.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Two processes on two cores: more threads would wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from bisect_tables import read_real, render
from recorded import BOTH, HELD_OUT, TUNED_ON, Hours, read_pool
from searches import SEARCHES, Noise, Range, Weights, holds, is_exact

from perfkit.stats.bisection import Costs

HERE = Path(__file__).parent
OUTCOMES = HERE / "outcomes.json"
DOCUMENT = HERE.parents[1] / "docs" / "measured" / "bisect.md"
HOURS: tuple[Hours, ...] = ("quiet", "noisy")
LAUNCHES_ALONE = Costs(opening_s=0.0, launch_s=1.0)
_OPENING = Costs(opening_s=8.0, launch_s=2.0)
_OTHER_NOISES: tuple[Noise, ...] = ("heavy tails", "layout")
_UNEQUAL: tuple[Weights, ...] = ("right", "wrong")
_CHUNK = 50
# Those of the search's making had numbers below this.
_FIRST_NUMBER = 10_000


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Ranges of one kind, and the search that is tried on so many of them."""

    sizes: tuple[float, ...]
    hours: Hours
    ranges: int
    study: str = BOTH
    commits: int = 64
    noise: Noise = "as recorded"
    weights: Weights = "equal"
    search: str = "perfkit"
    costs: Costs = LAUNCHES_ALONE

    def numbered(self, number: int) -> Range:
        """Return one of its ranges."""
        return Range(
            study=self.study,
            hours=self.hours,
            sizes=self.sizes,
            commits=self.commits,
            noise=self.noise,
            weights=self.weights,
            number=_FIRST_NUMBER + number,
        )


def main() -> None:
    """Run the study and write what came of it."""
    if sys.argv[1:2] == ["--ranges"]:
        print(json.dumps(_outcomes(int(sys.argv[2])), indent=1))
        return
    if sys.argv[1:] != ["--render"]:
        OUTCOMES.write_text(json.dumps(_outcomes(None), indent=1) + "\n")
    DOCUMENT.write_text(render(DOCUMENT.read_text(), json.loads(OUTCOMES.read_text()), read_real(HERE)))


def scenarios() -> Iterator[Scenario]:
    """Yield the whole study, its sizes chosen before it runs."""
    for hours in HOURS:
        for search in SEARCHES:
            yield Scenario(sizes=(0.05,), hours=hours, ranges=300, search=search)
            yield Scenario(sizes=(), hours=hours, ranges=1000 if search == "perfkit" else 300, search=search)
        for size in (0.03, 0.1, -0.05):
            yield Scenario(sizes=(size,), hours=hours, ranges=150)
        yield Scenario(sizes=(0.05, 0.03), hours=hours, ranges=100)
        for noise in _OTHER_NOISES:
            yield Scenario(sizes=(0.05,), hours=hours, ranges=150, noise=noise)
        for weights in _UNEQUAL:
            yield Scenario(sizes=(0.05,), hours=hours, ranges=150, weights=weights)
        yield Scenario(sizes=(0.05,), hours=hours, ranges=100, costs=_OPENING)
        yield Scenario(sizes=(0.05,), hours=hours, ranges=40, commits=2000)
        for study, sizes in itertools.product((TUNED_ON, HELD_OUT), ((0.05,), ())):
            yield Scenario(sizes=sizes, hours=hours, ranges=100, study=study)


def _outcomes(ranges: int | None) -> dict[str, Any]:
    chosen = list(scenarios())
    counts = [ranges or scenario.ranges for scenario in chosen]
    tasks = [
        (scenario, range(start, min(start + _CHUNK, count)))
        for scenario, count in zip(chosen, counts, strict=True)
        for start in range(0, count, _CHUNK)
    ]
    # Read before the processes part, so that they share what was read.
    pools = [_pool(study, hours) for study in (BOTH, TUNED_ON, HELD_OUT) for hours in HOURS]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        found: dict[Scenario, list[dict[str, Any]]] = {scenario: [] for scenario in chosen}
        for (scenario, _), endings in zip(tasks, pool.map(_run, tasks), strict=True):
            found[scenario] += endings
            print(".", end="", file=sys.stderr, flush=True)
    return {
        "pools": pools,
        "scenarios": [_summary(scenario, endings) for scenario, endings in found.items()],
    }


def _run(task: tuple[Scenario, range]) -> list[dict[str, Any]]:
    scenario, numbers = task
    return [_one(scenario, number) for number in numbers]


def _one(scenario: Scenario, number: int) -> dict[str, Any]:
    bench, ending = SEARCHES[scenario.search](scenario.numbered(number), scenario.costs)
    return {
        "exact": is_exact(bench, ending),
        "largest": is_exact(bench, ending, largest=True),
        "holds": holds(bench, ending),
        "status": ending.status,
        "launches": ending.launches,
        "pairs": ending.pairs,
        "seconds": ending.seconds,
    }


def _summary(scenario: Scenario, endings: list[dict[str, Any]]) -> dict[str, Any]:
    launches = np.array([ending["launches"] for ending in endings])
    inside = [ending["holds"] for ending in endings if ending["holds"] is not None]
    statuses = [ending["status"] for ending in endings]
    return asdict(scenario) | {
        "ranges": len(endings),
        "exact": sum(ending["exact"] for ending in endings),
        "largest": sum(ending["largest"] for ending in endings),
        "named": statuses.count("found"),
        "undecided": statuses.count("undecided"),
        "intervals": len(inside),
        "intervals_hold": sum(inside),
        "launches": round(float(launches.mean()), 2),
        "launches_median": float(np.median(launches)),
        "launches_95": float(np.percentile(launches, 95)),
        "pairs": round(float(np.mean([ending["pairs"] for ending in endings])), 2),
        "seconds": round(float(np.mean([ending["seconds"] for ending in endings])), 1),
    }


def _pool(study: str, hours: Hours) -> dict[str, Any]:
    pool = read_pool(study, hours)
    return {
        "study": study,
        "hours": hours,
        "gates": pool.gates,
        "least_scatter": pool.least_scatter,
        "most_scatter": pool.most_scatter,
        "launches": sum(len(found) for series in pool.launches.values() for found in series),
    }


if __name__ == "__main__":
    main()
