"""Identical code is not accused by real levels at real times, however the ledger came by them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from synthetic import build_row

from perfkit.gating.unpaired import compare_unpaired
from perfkit.model import Row
from perfkit.model.comparisons import Policy
from perfkit.stats.distributions import upper_bound

RECORDED = Path(__file__).with_name("recorded_levels.npz")
POLICY = Policy(alpha=0.01, family=1, looks=(1,))
HOUR = 3600
DRAWS = 65
_FEW_DRAWS = 10
_TRIES = 20

# The runs of base and head, as indices of a series' levels in the order of time; None where it has no such.
Drawn = tuple[Sequence[int], Sequence[int]] | None
Draw = Callable[[np.random.Generator, npt.NDArray[np.int32], int], Drawn]


@cache
def _series() -> dict[str, tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]]:
    with np.load(RECORDED) as arrays:
        names = dict.fromkeys(name.rpartition("/")[0] for name in arrays)
        return {name: (arrays[f"{name}/seconds"], arrays[f"{name}/level"]) for name in names}


def _one_after_another(source: np.random.Generator, seconds: npt.NDArray[np.int32], runs: int) -> Drawn:
    first = int(source.integers(len(seconds) - 2 * runs))
    return range(first, first + runs), range(first + runs, first + 2 * runs)


def _in_turns(source: np.random.Generator, seconds: npt.NDArray[np.int32], runs: int) -> Drawn:
    first = int(source.integers(len(seconds) - 2 * runs))
    return range(first, first + 2 * runs, 2), range(first + 1, first + 2 * runs, 2)


def _each_at_its_hour(source: np.random.Generator, seconds: npt.NDArray[np.int32], runs: int) -> Drawn:
    """All of base within minutes, and all of head within some minutes of any other hour."""
    base, head = (int(first) for first in source.integers(len(seconds) - runs, size=2))
    return range(base, base + runs), range(head, head + runs)


def _hours(source: np.random.Generator, seconds: npt.NDArray[np.int32], hours: int) -> Sequence[int] | None:
    """Return so many moments, each at least an hour after the one before."""
    span = seconds[-1] - seconds[0] - (hours - 1) * HOUR
    for _ in range(_TRIES if span > 0 else 0):
        moments = seconds[0] + np.sort(source.uniform(0, span, hours)) + HOUR * np.arange(hours)
        found = np.searchsorted(seconds, moments)
        if np.diff(seconds[found]).min() >= HOUR:
            return [int(index) for index in found]
    return None


def _filled(hours: Sequence[int], runs: int) -> Sequence[int]:
    """Return so many runs, which follow one another in each of the hours."""
    each = np.array_split(np.arange(runs), len(hours))
    return [first + number for first, some in zip(hours, each, strict=True) for number in range(len(some))]


def _any_hours(source: np.random.Generator, seconds: npt.NDArray[np.int32], runs: int) -> Drawn:
    """Each commit at two or three hours of its own."""
    base, head = (_hours(source, seconds[:-runs], min(runs, 3)) for _ in range(2))
    return None if base is None or head is None else (_filled(base, runs), _filled(head, runs))


def _same_hours(source: np.random.Generator, seconds: npt.NDArray[np.int32], runs: int) -> Drawn:
    """Both commits at the same two or three hours, one right after the other."""
    hours = _hours(source, seconds[: -2 * runs], min(runs, 3))
    if hours is None:
        return None
    both = _filled(hours, 2 * runs)
    return both[::2], both[1::2]


def _past_and_present(source: np.random.Generator, seconds: npt.NDArray[np.int32], runs: int) -> Drawn:
    hours = _hours(source, seconds[:-runs], 2 * min(runs, 3))
    if hours is None:
        return None
    half = len(hours) // 2
    return _filled(hours[:half], runs), _filled(hours[half:], runs)


def _verdicts(draw: Draw, runs: int, *, draws: int, known: int = 0) -> Counter[str]:
    """Count what is reported of identical code, with ``known`` other commits, each at three hours."""
    output: Counter[str] = Counter()
    for number, (name, (seconds, _)) in enumerate(_series().items()):
        source = np.random.default_rng([number, runs])
        for _ in range(draws):
            drawn = draw(source, seconds, runs)
            others = [_hours(source, seconds, 3) or () for _ in range(known)]
            if drawn is None:
                continue
            base, head, *more = (
                [_rows(name, commit)[index] for index in chosen]
                for commit, chosen in enumerate((*drawn, *others))
            )
            found = compare_unpaired(
                base[0].outcome.benchmark,
                base=base,
                head=head,
                history=[*base, *head, *(row for rows in more for row in rows)],
                policy=POLICY,
                margin=0.02,
                gating=True,
            )
            output[found.verdict if found.estimate else "refused"] += 1
    return output


@cache
def _rows(name: str, commit: int) -> list[Row]:
    """Return a row for each level of a series, as if it were all of that commit."""
    rows = []
    for second, level in zip(*_series()[name], strict=True):
        row = build_row(float(level), sha=f"{commit:040x}", run=f"{commit}-{second}", name=name)
        rows.append(replace(row, recorded_at=row.recorded_at + timedelta(seconds=int(second))))
    return rows


@pytest.mark.parametrize("runs", [2, 3, 5])
@pytest.mark.parametrize("draw", [_one_after_another, _in_turns, _each_at_its_hour])
def test_runs_within_an_hour_are_refused(draw: Draw, runs: int) -> None:
    output = _verdicts(draw, runs, draws=_FEW_DRAWS)

    assert {"refused": len(_series()) * _FEW_DRAWS} == output


@pytest.mark.parametrize("draw", [_any_hours, _same_hours, _past_and_present])
def test_two_hours_of_each_commit_are_refused(draw: Draw) -> None:
    assert {"refused"} == set(_verdicts(draw, 2, draws=_FEW_DRAWS, known=4))


@pytest.mark.parametrize("runs", [2, 5])
def test_hours_of_other_commits_do_not_replace_those_of_these(runs: int) -> None:
    assert {"refused"} == set(_verdicts(_each_at_its_hour, runs, draws=_FEW_DRAWS, known=10))


@pytest.mark.parametrize("runs", [3, 5])
@pytest.mark.parametrize(
    ("draw", "known"), [(_any_hours, 0), (_any_hours, 4), (_same_hours, 0), (_past_and_present, 4)]
)
def test_identical_code_at_three_hours_is_hardly_accused(draw: Draw, known: int, runs: int) -> None:
    output = _verdicts(draw, runs, draws=DRAWS, known=known)

    assert upper_bound(output["REGRESSED"] + output["IMPROVED"], output.total()) < 0.01
    assert output["refused"] < output.total() * (1 if draw is _past_and_present else 0.1)


def test_a_night_shows_that_levels_settle_within_an_hour() -> None:
    for name, (seconds, levels) in _series().items():
        if name.startswith("night"):
            apart = np.abs(np.subtract.outer(seconds, seconds)) / HOUR
            differ = np.subtract.outer(np.log(levels), np.log(levels)) ** 2 / 2
            minute, hour, longer = (
                math.sqrt(differ[(apart > low) & (apart <= high)].mean())
                for low, high in ((0, 1 / 40), (1 / 2, 1), (1, 4))
            )
            assert minute < 0.7 * hour
            assert longer < 1.05 * hour
