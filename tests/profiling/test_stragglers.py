"""Of ranks that wait for each other in every step, the one that waits least is waited for."""

from __future__ import annotations

import pytest

from perfkit.model import Balance, PassSummary, PhaseSeconds
from perfkit.model.phases import FORWARD, RANKS
from perfkit.profiling.passes.ranks import find_straggler, slowest_rank


def _balance(forward: list[float], together: list[float], residual: float = 0.0) -> Balance:
    phases = (
        PhaseSeconds(name=FORWARD, seconds=tuple(forward)),
        PhaseSeconds(name=RANKS, seconds=tuple(together)),
    )
    whole = tuple(a + b + residual for a, b in zip(forward, together, strict=True))
    return Balance(step_s=whole, phases=phases)


def test_the_straggler_is_named_with_its_phase() -> None:
    """The first step is the set-up's; in the others rank 1 comes last by 2, and by 1 where it was quicker."""
    quick = _balance([9.0, 1.0, 1.0, 1.0, 1.0], [0.0, 2.5, 2.5, 2.5, 1.5])
    slow = _balance([1.0, 3.0, 3.0, 3.0, 2.0], [8.0, 0.5, 0.5, 0.5, 0.5])

    found = find_straggler([quick, slow, quick])

    assert found is not None
    assert (1, 4, 4, 2.0) == (found.rank, found.last, found.of, found.waited_s)
    assert pytest.approx(2 / 3.5) == found.share
    assert (FORWARD, 2.0) == (found.phase, found.phase_s)


def test_time_that_no_hook_saw_is_a_straggler_s_too() -> None:
    """A rank that loses its time between the phases loses it to the residual."""
    quick = _balance([1.0] * 4, [2.0] * 4)
    slow = _balance([1.0] * 4, [0.0] * 4, residual=2.0)
    found = find_straggler([slow, quick])
    assert found is not None
    assert (0, "residual", 2.0) == (found.rank, found.phase, found.phase_s)


@pytest.mark.parametrize(
    "together",
    [
        [[0.0, 0.5, 0.0, 0.5], [0.5, 0.0, 0.5, 0.0]],
        [[0.03] * 4, [0.0] * 4],
        [[0.0] * 4],
        [[], []],
        [],
    ],
    ids=["by turns", "by little", "one rank", "no steps", "no ranks"],
)
def test_no_straggler_is_invented(together: list[list[float]]) -> None:
    """Ranks that are late by turns or by less than one step in twenty keep nobody waiting."""
    assert find_straggler([_balance([1.0] * len(times), times) for times in together]) is None


def test_ranks_that_made_different_numbers_of_steps_are_compared_over_the_common_ones() -> None:
    """The longer loop's last steps have no counterpart."""
    found = find_straggler([_balance([1.0] * 6, [2.0] * 6), _balance([3.0] * 4, [0.0] * 4)])
    assert found is not None
    assert (1, 3) == (found.rank, found.of)


def test_the_slowest_rank_is_that_of_the_longest_typical_step() -> None:
    """Without steps, the whole time decides."""
    steps = [
        PassSummary(name="clean", total_s=total, step_s=step_s, samples=None)
        for total, step_s in ((9.0, (5.0, 1.0, 1.0)), (8.0, (1.0, 2.0, 2.0)))
    ]
    without = [PassSummary(name="clean", total_s=total, step_s=(), samples=None) for total in (1.0, 2.0, 1.5)]
    assert [1, 1] == [slowest_rank(steps), slowest_rank(without)]
