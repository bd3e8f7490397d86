"""From where on a series is steady, on ones like those of autotuning, growing memory and clocks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from perfkit.stats.summary import WarmUp, warm_from


def _noisy(levels: list[tuple[int, float]], *, sd: float = 0.005, seed: int = 1) -> list[float]:
    """Return a series of levels, each so many values long, with a scatter in proportion."""
    drawn = random.Random(seed)  # noqa: S311 (no secret)
    return [level * (1 + drawn.gauss(0, sd)) for count, level in levels for _ in range(count)]


def test_times_may_be_steady_from_the_beginning() -> None:
    assert 1 == warm_from(_noisy([(40, 1.0)]))


def test_a_compile_and_a_trial_of_kernels_are_left_out() -> None:
    found = warm_from(_noisy([(1, 900.0), (3, 8.0), (40, 1.0)]))

    assert found in range(4, 7)


@pytest.mark.parametrize("seed", range(20))
def test_a_slow_drift_is_steady_where_it_ends(seed: int) -> None:
    rising = [1.3 - 0.01 * place for place in range(30)]
    drawn = random.Random(seed)  # noqa: S311 (no secret)
    found = warm_from([level * (1 + drawn.gauss(0, 0.003)) for level in [*rising, *[1.0] * 60]])

    assert found is not None
    assert 20 <= found <= 34


def test_a_series_that_is_never_steady_has_no_place() -> None:
    assert None is warm_from([1.0 / (1 + place) for place in range(40)])
    assert None is warm_from([1.0] * 8)
    assert None is warm_from([])


def test_a_noisy_series_is_judged_by_its_own_scatter() -> None:
    found = warm_from(_noisy([(60, 1.0)], sd=0.2, seed=3))

    assert found is not None
    assert found <= 10


@pytest.mark.parametrize("unit", [1.0, 2.0**-20, 2.0**10])
@pytest.mark.parametrize(
    ("found", "begin"),
    [(1, [102.0] * 5), (6, [102.5] * 5), (1, [102.0]), (2, [102.5]), (1, [98.0] * 5), (2, [97.5])],
)
def test_two_hundredths_are_no_warm_up(found: int, begin: list[float], unit: float) -> None:
    assert found == warm_from([unit * one for one in [900.0, *begin, *[100.0] * 30]])


def test_the_allocator_grows_no_more_and_clocks_have_risen() -> None:
    steady = _noisy([(60, 1.0)])
    reserved = [*itertools.accumulate([100.0] * 12), *[1200.0] * 48]
    clocks = [1200.0 + 40 * place for place in range(20)] + [1980.0] * 40

    assert 12 == warm_from(steady, reserved=reserved)
    assert 19 == warm_from(steady, clocks=clocks)
    assert 19 == warm_from(steady, reserved=reserved, clocks=clocks)


def _followed(
    seconds: Sequence[float], reserved: Sequence[float | None] = (), clocks: Sequence[float | None] = ()
) -> WarmUp:
    """Return what follows calls until nothing more is waited for."""
    warming = WarmUp()
    for place, one in enumerate(seconds):
        if warming.is_over:
            break
        warming.add(
            one, reserved=reserved[place] if reserved else None, clock=clocks[place] if clocks else None
        )
    return warming


def test_a_warm_up_ends_as_soon_as_times_are_steady() -> None:
    steady = _followed([9.0, *[0.001] * 60])
    tried = _followed([9.0, *[0.008] * 6, *[0.001] * 60])

    assert (11, 1) == (len(steady.seconds), steady.warm_from)
    assert (21, 7) == (len(tried.seconds), tried.warm_from)


@pytest.mark.parametrize(
    "seconds", [(1.0, 9.0), (60.0, 2.5, 2.5), (1.0, 4.5, 0.5), (1.0, 0.5, 4.5), (0.0, 5.0)]
)
def test_a_warm_up_ends_after_five_seconds(seconds: tuple[float, ...]) -> None:
    slow = _followed([*seconds, *[1.0] * 20])

    assert (list(seconds), None) == (slow.seconds, slow.warm_from)


GROWING = [*map(float, range(12)), *[12.0] * 48]
RISING = [*[1500.0] * 3, *[2000.0] * 57]


def test_a_warm_up_waits_for_the_allocator_and_the_clock() -> None:
    grown = _followed([0.001] * 60, reserved=GROWING)
    risen = _followed([0.001] * 60, clocks=RISING)

    assert (13, 3) == (grown.warm_from, risen.warm_from)


def test_a_warm_up_waits_for_nothing_that_some_calls_do_not_show() -> None:
    for few in ([*[None] * 5, *GROWING], [*[None] * 5, *RISING]):
        assert 1 == _followed([0.001] * 60, reserved=few).warm_from
        assert 1 == _followed([0.001] * 60, clocks=few).warm_from
