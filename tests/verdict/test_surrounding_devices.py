"""Drivers forbid a comparison of times; temperatures and clocks may matter where they differ by much."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic import ENVIRONMENT, MACHINE, START

from perfkit.records.surroundings import Surroundings
from perfkit.verdict.surroundings import surrounding_changes


def _surroundings(*, driver: str = "550", **facts: str) -> Surroundings:
    return Surroundings(
        run_id="r1",
        recorded_at=START,
        source="gate",
        commits=("a" * 40,),
        side=None,
        machine=replace(MACHINE, facts={**MACHINE.facts, **facts}),
        environment=replace(ENVIRONMENT, facts={**ENVIRONMENT.facts, "gpu_driver": driver}),
    )


def test_another_major_version_of_the_driver_forbids() -> None:
    """It is a fact of the environment, and environments that differ are not compared."""
    (change,) = surrounding_changes(_surroundings(), _surroundings(driver="570"))

    assert ("gpu_driver", "forbids") == (change.fact, change.weight)


@pytest.mark.parametrize(
    ("fact", "before", "after", "weight"),
    [
        ("gpu0_temperature_c_before", "40", "44", None),
        ("gpu0_temperature_c_before", "40", "70", "may matter"),
        ("gpu0_sm_mhz_after", "1980", "1965", None),
        ("gpu0_sm_mhz_after", "1980", "1410", "may matter"),
        ("gpu0_power_w_before", "100", "101", None),
        ("gpu0_power_w_before", "100", "300", "means little"),
        ("gpu0_power_cap_w", "700", "699", "may matter"),
        ("gpu0_held_back_after", "at its power cap", "power brake", "may matter"),
        ("gpu_driver", "550.54.15", "550.90.07", "may matter"),
    ],
)
def test_what_moves_with_each_launch_is_told_where_it_moved_far(
    fact: str, before: str, after: str, weight: str | None
) -> None:
    """A few degrees or a step of the clock lie between any two launches."""
    changes = surrounding_changes(_surroundings(**{fact: before}), _surroundings(**{fact: after}))

    assert ([weight] if weight else []) == [change.weight for change in changes]
