"""The seam to pytest-benchmark (5.x): everything perfkit reads or sets on its private side is here.

``BenchmarkFixture._timer`` is what its runners call right before and after each timed block;
``fixture.stats.stats.data`` holds seconds per iteration in measured order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_benchmark.fixture import BenchmarkFixture

from perfkit.measure.clock import synchronised

FIXTURE_NAME = "benchmark"
_POLICY_OPTIONS = ("disable_gc", "min_rounds", "max_time", "min_time", "precision", "confidence")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a used fixture holds: seconds per iteration in measured order, and how they were taken."""

    values: tuple[float, ...]
    loops: int | None
    warmup: int | None
    policy: Mapping[str, str]


def synchronise_timer(fixture: object) -> None:
    """Make a fixture wait for the accelerator before each reading of its clock."""
    if isinstance(fixture, BenchmarkFixture):
        fixture._timer = synchronised(fixture._timer)  # noqa: SLF001 (the seam)


def read_fixture(fixture: object) -> Reading | None:
    """Return what a fixture measured, or None where it measured nothing (unused, disabled, failed early)."""
    if not isinstance(fixture, BenchmarkFixture) or fixture.stats is None:
        return None
    metadata = fixture.stats
    options = {name: metadata.options.get(name) for name in _POLICY_OPTIONS}
    return Reading(
        values=tuple(float(value) for value in metadata.stats.data),
        loops=metadata.iterations,
        warmup=_warmup(fixture),
        policy={
            "mode": str(fixture._mode),  # noqa: SLF001 (the seam)
            **{name: str(value) for name, value in options.items() if value is not None},
        },
    )


def group_of(fixture: object) -> str | None:
    """Return the group a benchmark was put in."""
    return fixture.group if isinstance(fixture, BenchmarkFixture) else None


def _warmup(fixture: BenchmarkFixture) -> int | None:
    """Return the untimed iterations; how many a pedantic benchmark asked for is not kept by the host."""
    if "pedantic" in str(fixture._mode):  # noqa: SLF001 (the seam)
        return None
    return int(fixture._warmup)  # noqa: SLF001 (the seam)
