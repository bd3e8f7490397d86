"""Two profiles are compared in a unit in which they did the same work, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from explained import function, reading

from perfkit.errors import UsageError
from perfkit.model.readings import Reading, StepTimes
from perfkit.profiling.diff.functions import Work, equal_work

BASE = reading(function("f", own_s=6.0), steps=6, name="base.stat")
HEAD = replace(BASE, name="head.stat")


def test_equal_steps_are_the_unit() -> None:
    """As many on both sides: per step, with nothing to warn of."""
    assert Work(unit="step", base=6, head=6) == equal_work(BASE, HEAD)


def test_other_counts_of_steps_are_compared_per_step() -> None:
    """Each side by its own count; what is done once weighs more in fewer, which is said."""
    work = equal_work(reading(steps=1), reading(steps=2))
    assert ("step", 1, 2) == (work.unit, work.base, work.head)
    assert ("1 step against 2: compared per step, and set-up weighs more in fewer",) == work.warnings


def test_other_batches_are_compared_per_sample() -> None:
    """A step of twice the samples is twice the work."""
    work = equal_work(replace(BASE, samples=600), replace(HEAD, samples=1200))
    assert ("sample", 600, 1200) == (work.unit, work.base, work.head)
    assert ("batches of 100 against 200: compared per sample",) == work.warnings


def test_a_last_batch_that_is_smaller_is_no_other_batch() -> None:
    """Within a hundredth a step is a step."""
    assert "step" == equal_work(replace(BASE, samples=600), replace(HEAD, samples=597)).unit
    assert "step" == equal_work(replace(BASE, samples=600), HEAD).unit


def test_the_warnings_agree_on_the_unit() -> None:
    """Other steps and other batches: both are said, and per sample."""
    few = replace(reading(steps=3), samples=600)
    warnings = equal_work(replace(BASE, samples=600), few).warnings
    assert 2 == len(warnings)
    assert all("per sample" in warning for warning in warnings)


def test_without_steps_totals_are_compared() -> None:
    """Neither says how often it did its work: the whole run is all there is, and that is said."""
    work = equal_work(reading(steps=None), reading(steps=None))
    assert ("whole run", 1, 1) == (work.unit, work.base, work.head)
    assert ("neither profile shows its steps: totals are compared",) == work.warnings


def test_no_steps_are_as_if_none_were_known() -> None:
    """A count of nought divides nothing."""
    assert "whole run" == equal_work(reading(steps=0), reading(steps=None)).unit
    with pytest.raises(UsageError, match="shows none"):
        equal_work(BASE, reading(steps=0))


@pytest.mark.parametrize(
    ("base", "head", "why"),
    [
        (BASE, replace(HEAD, origin="torch trace"), "base.stat is a cProfile and head.stat a torch trace"),
        (replace(BASE, world_size=8), replace(HEAD, world_size=2), "of 8 ranks and head.stat of 2"),
        (BASE, replace(HEAD, world_size=2), "of 1 ranks and head.stat of 2"),
        (BASE, replace(HEAD, steps=None), "base.stat holds 6 training steps, and head.stat shows none"),
        (
            replace(BASE, steps=None),
            replace(HEAD, steps=StepTimes(count=1, sign="run_backward")),
            "head.stat holds 1 training step, and base.stat shows none",
        ),
    ],
    ids=["kinds", "worlds", "a world of one", "steps in base alone", "steps in head alone"],
)
def test_what_cannot_be_compared_is_refused(base: Reading, head: Reading, why: str) -> None:
    """In one line that names both and says why."""
    with pytest.raises(UsageError) as refused:
        equal_work(base, head)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_world_of_one_is_no_world() -> None:
    """A profile that says it was alone is as one that says nothing."""
    assert "step" == equal_work(replace(BASE, world_size=1), HEAD).unit
