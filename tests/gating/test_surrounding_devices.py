"""Drivers forbid a comparison of times; temperatures and clocks may matter where they differ by much."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic import ENVIRONMENT, MACHINE, START

from perfkit.model import Environment, Machine
from perfkit.model.surroundings import Surroundings, lasting_changes, surrounding_changes


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
    (change,) = surrounding_changes(_surroundings(), _surroundings(driver="570"))

    assert ("gpu_driver", "forbids") == (change.fact, change.weight)


@pytest.mark.parametrize(
    ("fact", "before", "after", "weight"),
    [
        ("gpu0_temperature_c_before", "40", "45", None),
        ("gpu0_temperature_c_before", "40", "45.5", "may matter"),
        ("gpu0_temperature_c_before", "40", "70", "may matter"),
        ("gpu0_sm_mhz_after", "1980", "1965", None),
        ("gpu0_sm_mhz_after", "2000", "1960", None),
        ("gpu0_sm_mhz_after", "1980", "1410", "may matter"),
        ("gpu0_power_w_before", "100", "101", None),
        ("gpu0_power_w_before", "100", "300", "means little"),
        ("gpu0_power_cap_w", "700", "699", "may matter"),
        ("gpu0_held_back_after", "at its power cap", "power brake", "may matter"),
        ("gpu_driver", "550.54.15", "550.90.07", "may matter"),
    ],
)
def test_what_moves_with_each_launch_is_reported_where_it_moved_far(
    fact: str, before: str, after: str, weight: str | None
) -> None:
    changes = surrounding_changes(_surroundings(**{fact: before}), _surroundings(**{fact: after}))

    assert ([weight] if weight else []) == [change.weight for change in changes]


@pytest.mark.parametrize(
    ("fact", "weight"),
    [("kernel", "may matter"), ("gpu0_sm_mhz_after", "may matter"), ("load_1min", "means little")],
)
def test_what_is_known_of_one_machine_alone_is_reported(fact: str, weight: str) -> None:
    known, unknown = _surroundings(**{fact: "1980"}), _surroundings()

    assert [("1980", None, weight)] == [
        (one.before, one.after, one.weight) for one in surrounding_changes(known, unknown)
    ]
    assert [(None, "1980", weight)] == [
        (one.before, one.after, one.weight) for one in surrounding_changes(unknown, known)
    ]


@pytest.mark.parametrize(
    ("fact", "lasts"),
    [
        ("cpu", True),
        ("kernel", True),
        ("gpu_driver", True),
        ("node", False),
        ("load_1min", False),
        ("gpu0_temperature_c_before", False),
        ("gpu0_sm_mhz_after", False),
        ("gpu0_reserved_bytes", False),
    ],
)
def test_what_passes_explains_no_lasting_change(fact: str, lasts: bool) -> None:  # noqa: FBT001
    before, after = (Machine(machine_id="m", facts={fact: value}) for value in ("1", "100"))

    found = lasting_changes((before, ENVIRONMENT), (after, ENVIRONMENT))

    assert ([("machine", fact, "1", "100")] if lasts else []) == [
        (one.of, one.fact, one.before, one.after) for one in found
    ]


def test_software_comes_first_of_what_may_explain_a_lasting_change() -> None:
    newer = Environment(env_id="e2", facts={**ENVIRONMENT.facts, "torch": "2.14.0"})
    other = Machine(machine_id="m2", facts={**MACHINE.facts, "cpu": "Other CPU"})

    assert [("environment", "torch", "2.13.0", "2.14.0"), ("machine", "cpu", "Test CPU", "Other CPU")] == [
        (one.of, one.fact, one.before, one.after)
        for one in lasting_changes((MACHINE, ENVIRONMENT), (other, newer))
    ]
