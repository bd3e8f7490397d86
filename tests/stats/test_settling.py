"""From where on a series has settled, on ones like those of autotuning, growing memory and clocks."""

from __future__ import annotations

import itertools
import random

import pytest

from perfkit.stats.settling import Settling, settled_from


def _noisy(levels: list[tuple[int, float]], *, sd: float = 0.005, seed: int = 1) -> list[float]:
    """Return a series of levels, each so many values long, with a scatter in proportion."""
    drawn = random.Random(seed)  # noqa: S311 (no secret)
    return [level * (1 + drawn.gauss(0, sd)) for count, level in levels for _ in range(count)]


def test_steady_times_have_settled_from_their_beginning() -> None:
    """But for the first one, which is never taken."""
    assert 1 == settled_from(_noisy([(40, 1.0)]))


def test_a_compile_and_a_trial_of_kernels_are_left_out() -> None:
    """One call of seconds, and then some in which kernels are tried, before all others."""
    found = settled_from(_noisy([(1, 900.0), (3, 8.0), (40, 1.0)]))

    assert found in range(4, 7)


@pytest.mark.parametrize("seed", range(20))
def test_a_slow_drift_settles_where_it_ends(seed: int) -> None:
    """A clock that rises over thirty calls is not settled within its first twenty."""
    rising = [1.3 - 0.01 * place for place in range(30)]
    drawn = random.Random(seed)  # noqa: S311 (no secret)
    found = settled_from([level * (1 + drawn.gauss(0, 0.003)) for level in [*rising, *[1.0] * 60]])

    assert found is not None
    assert 20 <= found <= 34


def test_a_series_that_never_settles_is_told() -> None:
    """Nothing is taken from one that still falls at its end, or that is too short to tell."""
    assert None is settled_from([1.0 / (1 + place) for place in range(40)])
    assert None is settled_from([1.0] * 8)
    assert None is settled_from([])


def test_a_noisy_series_is_judged_by_its_own_scatter() -> None:
    """Twenty per cent of scatter do not keep it from settling."""
    found = settled_from(_noisy([(60, 1.0)], sd=0.2, seed=3))

    assert found is not None
    assert found <= 10


def test_count_and_time_are_kept_apart_at_least() -> None:
    """Whichever of both lasts longer."""
    steady = _noisy([(60, 0.5)])

    assert 7 == settled_from(steady, least_count=7)
    assert settled_from(steady, least_s=10.0) in range(20, 22)


def test_the_allocator_grows_no_more_and_clocks_have_risen() -> None:
    """Times alone may look settled before."""
    steady = _noisy([(60, 1.0)])
    reserved = [*itertools.accumulate([100.0] * 12), *[1200.0] * 48]
    clocks = [1200.0 + 40 * place for place in range(20)] + [1980.0] * 40

    assert 12 == settled_from(steady, reserved=reserved)
    assert settled_from(steady, clocks=clocks) in range(18, 22)


def _followed(seconds: list[float], reserved: list[float] | None = None) -> Settling:
    """Return what follows calls until nothing more is waited for."""
    settling = Settling()
    for place, one in enumerate(seconds):
        if settling.is_over:
            break
        settling.add(one, reserved=None if reserved is None else reserved[place])
    return settling


def test_a_warm_up_ends_as_soon_as_times_have_settled() -> None:
    """Eleven calls say so where the first one alone is slow; more where kernels are tried after it."""
    steady = _followed([9.0, *[0.001] * 60])
    tried = _followed([9.0, *[0.008] * 6, *[0.001] * 60])

    assert (11, 1) == (len(steady.seconds), steady.settled_from)
    assert (21, 7) == (len(tried.seconds), tried.settled_from)


def test_long_calls_are_compared_in_small_windows() -> None:
    """A step of half a second is called five times, not eleven."""
    settling = _followed([30.0, *[0.5] * 60])

    assert (5, 1) == (len(settling.seconds), settling.settled_from)


def test_a_warm_up_has_an_end() -> None:
    """After five seconds, the first call aside, or two hundred calls; it has not settled then."""
    slow = _followed([1.0, 9.0])
    falling = _followed([0.1 / (1 + place) for place in range(500)])

    assert (2, None) == (len(slow.seconds), slow.settled_from)
    assert (200, None) == (len(falling.seconds), falling.settled_from)


def test_a_warm_up_waits_for_the_allocator() -> None:
    """Where each call says what is reserved, it has to have grown for the last time."""
    grown = _followed([0.001] * 60, reserved=[*map(float, range(12)), *[12.0] * 48])

    assert grown.settled_from is not None
    assert grown.settled_from >= 12
