"""Tries detectors of steps on levels of known truth: ``python benchmarks/change_points/point_study.py``.

It writes ``outcomes.json`` beside it, and ``docs/measured/change-points.md`` from that. All is drawn from
fixed numbers, so it comes out the same on any machine; in two processes it takes some ten minutes. What
detectors found that are not installed is kept. A series that is not part of this repository may be named, a
JSON file with its ``values``; else that of the last is kept. With ``--render`` it only writes the document.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

# Two processes on two cores: more threads would wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from detectors import DETECTORS, is_installed, missing_packages
from point_tables import render
from series import (
    FIRST_LAUNCHES,
    HELD_OUT,
    NOISES,
    RUNS,
    SD,
    STRIDE,
    TUNED_ON,
    Level,
    Window,
    read_windows,
    simulate,
)

from perfkit.stats.change_points import FloatArray, find_steps

HERE = Path(__file__).parent
OUTCOMES = HERE / "outcomes.json"
DOCUMENT = HERE.parents[1] / "docs" / "measured" / "change-points.md"
SIZES = (0.03, 0.05, 0.1)
# A step is found by a point at most so many runs off; any other point is false.
NEAR = 2
FROM_ENDS = 10
_DRAWS = 10
_OWN_SERIES, _PEERS_SERIES = 10_000, 1_000
_SIZED_SERIES = 500
_SEED = 20261125
Task = tuple[Any, ...]
_INSTALLED = [name for name in DETECTORS if is_installed(name)]


def main() -> None:
    """Run the study and write its outcomes and its document."""
    if sys.argv[1:] != ["--render"]:
        if missing := missing_packages():
            print(f"kept, not tried again: {', '.join(missing)}")
        OUTCOMES.write_text(json.dumps(_outcomes(sys.argv[1:]), indent=1) + "\n")
    DOCUMENT.write_text(render(json.loads(OUTCOMES.read_text())))


def _outcomes(arguments: Sequence[str]) -> dict[str, Any]:
    kept = json.loads(OUTCOMES.read_text())

    def with_kept(part: str, job: Callable[[Task], dict[str, Any]], tasks: Iterable[Task]) -> list[Any]:
        all_tasks = list(tasks)
        others = iter([one for one in kept[part] if one["detector"] not in _INSTALLED])
        own = iter(_run(pool, job, [task for task in all_tasks if task[-1] in _INSTALLED]))
        return [next(own if task[-1] in _INSTALLED else others) for task in all_tasks]

    with ProcessPoolExecutor(2) as pool:
        return {
            "null": with_kept("null", count_real, _real_tasks()),
            "simulated": with_kept("simulated", count_simulated, _simulated_tasks()),
            "stepped": with_kept("stepped", count_stepped, _stepped_tasks()),
            "sizes": _run(pool, count_sizes, _size_tasks()),
            "series": _known_series(arguments),
        }


def _run(
    pool: ProcessPoolExecutor, job: Callable[[Task], dict[str, Any]], tasks: Iterable[Task]
) -> list[dict[str, Any]]:
    print(job.__name__, flush=True)
    return list(pool.map(job, list(tasks)))


@cache
def _windows(study: str, level: Level, stride: int = STRIDE) -> tuple[Window, ...]:
    return tuple(read_windows(study, level, stride=stride))


def _all_series(study: str, level: str, *, without_factor: bool, stride: int) -> list[FloatArray]:
    """Return the series of six benchmarks in each window; of single launches, those of the first three."""
    kinds: list[Any] = (
        [f"launch {one + 1}" for one in range(FIRST_LAUNCHES)] if level == "launch" else [level]
    )
    return [
        window.series(benchmark, without_factor=without_factor)
        for kind in kinds
        for window in _windows(study, kind, stride)
        for benchmark in range(window.table.shape[1])
    ]


def _real_tasks() -> Iterable[Task]:
    return (
        (study, level, without_factor, stride, name)
        for study in (TUNED_ON, HELD_OUT)
        for level in ("quickest", "launch")
        for without_factor in (False, True)
        for stride in (STRIDE, RUNS)
        for name in DETECTORS
    )


def count_real(task: Task) -> dict[str, Any]:
    """Count the windows of identical code in which a detector sees any step."""
    study, level, without_factor, stride, name = task
    series = _all_series(study, level, without_factor=without_factor, stride=stride)
    found = sum(bool(DETECTORS[name](levels)) for levels in series)
    return {
        "study": study,
        "level": level,
        "without_factor": without_factor,
        "stride": stride,
        "detector": name,
        "found": found,
        "of": len(series),
    }


def _simulated_tasks() -> Iterable[Task]:
    return ((noise, name) for noise in NOISES for name in DETECTORS)


def count_simulated(task: Task) -> dict[str, Any]:
    """Count the simulated series without a step in which a detector sees one."""
    noise, name = task
    count = _OWN_SERIES if name == "perfkit" else _PEERS_SERIES
    found = sum(bool(DETECTORS[name](simulate(noise, number))) for number in range(count))
    return {"noise": noise, "detector": name, "found": found, "of": count}


def _stepped_tasks() -> Iterable[Task]:
    return (
        (study, without_factor, size, name)
        for study in (TUNED_ON, HELD_OUT)
        for without_factor in (False, True)
        for size in SIZES
        for name in DETECTORS
    )


def count_stepped(task: Task) -> dict[str, Any]:
    """Count what a detector sees of a step that was put into each window, for each benchmark ten times.

    Levels of one benchmark are multiplied from a run on, at least ten from either end, before the common
    factor is taken off; half of the steps go up. The series are the same for each detector.
    """
    study, without_factor, size, name = task
    right = exact = points = of = 0
    for number, window in enumerate(_windows(study, "quickest")):
        for benchmark in range(window.table.shape[1]):
            source = np.random.default_rng([_SEED, round(1000 * size), number, benchmark])
            for _ in range(_DRAWS):
                run, ratio = int(source.integers(FROM_ENDS, RUNS - FROM_ENDS + 1)), 1 + size
                stepped = window.stepped(
                    benchmark, run=run, ratio=ratio if source.random() < 1 / 2 else 1 / ratio
                )
                found = DETECTORS[name](stepped.series(benchmark, without_factor=without_factor))
                off = min((abs(place - window.place(benchmark, run)) for place in found), default=RUNS)
                right, exact = right + (off <= NEAR), exact + (off <= 1)
                points, of = points + len(found), of + 1
    return {
        "study": study,
        "without_factor": without_factor,
        "size": size,
        "detector": name,
        "right": right,
        "exact": exact,
        "points": points,
        "of": of,
    }


def _size_tasks() -> Iterable[Task]:
    return (
        (noise, deviations, after)
        for noise in ("normal", "heavy tails: t of 3 degrees", "... by 0.5", "... by 0.1")
        for deviations in (1.5, 2.0, 3.0, 5.0, 8.0)
        for after in (50, 10, 6)
    )


def count_sizes(task: Task) -> dict[str, Any]:
    """Count the steps, in sds of single runs, that perfkit finds in noise, and the intervals that hold."""
    noise, deviations, after = task
    right = held = 0
    ratio = math.exp(SD * deviations)
    for number in range(_SIZED_SERIES):
        levels = simulate(noise, 10**6 + number)
        place = RUNS - after
        levels[place:] *= ratio
        near = [step for step in find_steps(levels) if abs(step.place - place) <= NEAR]
        right += bool(near)
        held += sum(step.low <= ratio <= step.high for step in near[:1])
    return {
        "noise": noise,
        "deviations": deviations,
        "after": after,
        "right": right,
        "held": held,
        "of": _SIZED_SERIES,
    }


def _known_series(arguments: Sequence[str]) -> Mapping[str, Any]:
    """Return where each detector sees steps in a series of which people know some."""
    if not arguments:
        return dict(json.loads(OUTCOMES.read_text())["series"])
    values = np.array(json.loads(Path(arguments[0]).read_text())["values"], dtype=np.float64)
    known = dict(json.loads(OUTCOMES.read_text())["series"])
    return known | {name: DETECTORS[name](values) for name in _INSTALLED}


if __name__ == "__main__":
    main()
