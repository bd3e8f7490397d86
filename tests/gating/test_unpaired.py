"""Commits that were measured unpaired are judged by sessions, and identical code is hardly accused."""

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

from perfkit.gating.judge import compare_unpaired, session_levels
from perfkit.model import Row
from perfkit.model.comparisons import Comparison, Policy
from perfkit.stats.interval import upper_bound
from perfkit.units import counted

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


@pytest.mark.parametrize("runs", [3, 5])
@pytest.mark.parametrize(
    ("draw", "known"), [(_any_hours, 0), (_any_hours, 4), (_same_hours, 0), (_past_and_present, 4)]
)
def test_identical_code_at_three_hours_is_hardly_accused(draw: Draw, known: int, runs: int) -> None:
    output = _verdicts(draw, runs, draws=DRAWS, known=known)

    assert upper_bound(output["REGRESSED"] + output["IMPROVED"], output.total()) < 0.01
    assert output["refused"] < output.total() * (1 if draw is _past_and_present else 0.1)


def test_a_night_shows_that_levels_are_steady_within_an_hour() -> None:
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


BASE, HEAD, OTHER = "a" * 40, "b" * 40, "c" * 40


def _runs(
    sha: str, seconds: float, runs: int, *, noise: float = 0.01, seed: int = 0, every: int = 120
) -> list[Row]:
    """Return rows of a commit's runs, three rounds each, ``every`` so many minutes, at scattered levels."""
    levels = seconds * np.exp(np.random.default_rng([seed, int(sha[0], 16)]).normal(0, noise, runs))
    return [
        build_row(level * 0.9, level, level * 1.5, sha=sha, run=f"{sha[0]}-{number}", minute=every * number)
        for number, level in enumerate(levels)
    ]


def _compare(base: list[Row], head: list[Row], *others: Row, margin: float = 0.05) -> Comparison:
    return compare_unpaired(
        base[0].outcome.benchmark,
        base=base,
        head=head,
        history=[*base, *head, *others],
        policy=POLICY,
        margin=margin,
        gating=True,
    )


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.3, "REGRESSED"), (0.7, "IMPROVED"), (1.0, "UNCHANGED"), (1.06, "INCONCLUSIVE")]
)
def test_the_interval_alone_decides(factor: float, verdict: str) -> None:
    found = _compare(_runs(BASE, 0.01, 6), _runs(HEAD, 0.01 * factor, 6))

    assert verdict == found.verdict
    assert found.estimate is not None
    assert ("occasions", 12) == (found.estimate.unit, found.estimate.launches)
    assert pytest.approx(factor, rel=0.03) == found.estimate.ratio
    assert pytest.approx(1 - POLICY.alpha) == found.estimate.confidence


def test_swapping_the_commits_mirrors_the_verdict() -> None:
    fast, slow = _runs(BASE, 0.01, 5), _runs(HEAD, 0.012, 5)
    there, back = _compare(fast, slow).estimate, _compare(slow, fast).estimate

    assert there is not None
    assert back is not None
    assert pytest.approx((1 / there.ratio, 1 / there.high, 1 / there.low)) == (
        back.ratio,
        back.low,
        back.high,
    )


def _later(rows: list[Row], hours: float) -> list[Row]:
    return [replace(row, recorded_at=row.recorded_at + timedelta(hours=hours)) for row in rows]


def test_noise_of_other_commits_widens_the_interval() -> None:
    base, head = (_runs(sha, 0.01, 3, noise=0.0001) for sha in (BASE, HEAD))
    alone = _compare(base, head).estimate
    informed = _compare(base, head, *_runs(OTHER, 0.02, 10, noise=0.05)).estimate

    assert alone is not None
    assert informed is not None
    assert informed.high - informed.low > 10 * (alone.high - alone.low)


def test_runs_within_an_hour_are_one_session() -> None:
    found = _compare(_runs(BASE, 0.01, 40, every=59), _runs(HEAD, 0.05, 40, every=59))

    assert ("INCONCLUSIVE", None) == (found.verdict, found.estimate)
    assert [0.01, 0.05] == pytest.approx([found.base_s, found.head_s], rel=0.01)
    assert (
        "base was measured in 1 session and head in 1 (runs less than an hour apart are one); 3 of each"
        " are needed, since the machine's speed changes from hour to hour: repeat"
        f" `perfkit backfill {BASE[:10]} {HEAD[:10]}` at other hours, or"
        f" `perfkit gate --base {BASE[:10]} --head {HEAD[:10]}`"
    ) == found.message
    assert _compare(_runs(BASE, 0.01, 40, every=60), _runs(HEAD, 0.05, 40, every=60)).estimate is not None


@pytest.mark.parametrize(("base", "head"), [(2, 5), (5, 2), (1, 5), (5, 1)])
def test_either_commit_needs_three_sessions(base: int, head: int) -> None:
    found = _compare(_runs(BASE, 0.01, base), _runs(HEAD, 0.05, head), *_runs(OTHER, 0.01, 12))

    assert ("INCONCLUSIVE", None) == (found.verdict, found.estimate)
    assert f"base was measured in {counted(base, 'session')} and head in {head} " in str(found.message)


@pytest.mark.parametrize(("head_first", "verdict"), [(False, "REGRESSED"), (True, "IMPROVED")])
def test_commits_of_two_days_are_not_judged_by_the_hours_of_one(verdict: str, *, head_first: bool) -> None:
    fast, slow = _runs(BASE, 0.01, 5), _later(_runs(HEAD, 0.05, 5), 24 + 8.5)
    fast_again = [*fast, *_later(_runs(BASE, 0.01, 1), 24 + 9)]

    far = _compare(slow, fast) if head_first else _compare(fast, slow)
    again = _compare(slow, fast_again) if head_first else _compare(fast_again, slow)

    assert far.estimate is None
    assert "(runs less than 25 hours apart, as base and head lie, are one)" in str(far.message)
    assert verdict == again.verdict


def _scattered(sha: str) -> list[Row]:
    """Return rows of three sessions whose levels have a deviation of 0.2 on the log scale."""
    return [
        build_row(0.01 * math.exp(log), sha=sha, run=f"{sha[0]}-{number}", minute=120 * number)
        for number, log in enumerate((-0.2, 0.0, 0.2))
    ]


def test_what_is_left_open_states_how_many_sessions_would_close_it() -> None:
    """The number is of each commit; where none in reason would do, the gate is named.

    Ten of each have 18 degrees of freedom and a half-width of 2.878 x 0.2 x sqrt(2 / 10), below log 1.3.
    """
    near, hopeless = (_compare(_scattered(BASE), _scattered(HEAD), margin=margin) for margin in (0.3, 0.01))

    assert (
        "sessions of the same code differ by 20.0 % (sd): about 7 more sessions of each commit would decide"
    ) == near.message
    assert (
        "sessions of the same code differ by 20.0 % (sd):"
        " no reasonable number of them would decide, `perfkit gate` may"
    ) == hopeless.message


def test_an_session_counts_once_however_many_launches_it_has() -> None:
    hour = [build_row(0.01, 0.02, 0.03, run=f"run-{number}", minute=30 * number) for number in range(5)]
    others = [
        build_row(seconds, run="other", minute=minute) for seconds, minute in ((0.04, 180), (0.16, 239))
    ]

    levels = session_levels([*others, *hour], timedelta(hours=1))

    assert pytest.approx([np.log(0.02), np.log(0.08)]) == levels
