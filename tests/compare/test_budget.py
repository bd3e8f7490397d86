"""The time that is left, shared out among benchmarks that are not decided yet."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from perfkit.compare.budget import Candidate, share_out


def _candidate(
    node: str, next_look_s: float, decision_s: float | None = None, *, suspect: bool = False
) -> Candidate:
    return Candidate(node=node, next_look_s=next_look_s, decision_s=decision_s, suspect=suspect)


@pytest.mark.parametrize(
    ("candidates", "left_s", "chosen"),
    [
        pytest.param([], 60, set(), id="nobody asks"),
        pytest.param([_candidate("a", 0, 0), _candidate("b", 0, 0)], 1, {"a", "b"}, id="costs not known yet"),
        pytest.param([_candidate("a", 5, 9), _candidate("b", 5)], 60, {"a", "b"}, id="enough for all"),
        pytest.param([_candidate("a", 11, 11)], 10, set(), id="a look that comes too late"),
        pytest.param([_candidate("a", 8, 30)], 10, {"a"}, id="a look without the decision"),
        pytest.param([_candidate("a", 3, 9), _candidate("b", 3, 6)], 10, {"b", "a"}, id="both looks fit"),
        pytest.param([_candidate("a", 6, 9), _candidate("b", 3, 6)], 10, {"b"}, id="the sooner decided"),
        pytest.param([_candidate("a", 6), _candidate("b", 3, 6)], 10, {"b"}, id="hopeless ones wait"),
        pytest.param(
            [_candidate("a", 2, 2), _candidate("b", 3, 9, suspect=True)], 10, {"b"}, id="suspects first"
        ),
        pytest.param(
            [_candidate("a", 2, 8), _candidate("b", 3, 99, suspect=True)],
            10,
            {"a"},
            id="a suspect that cannot be decided in time lets the others go first",
        ),
    ],
)
def test_the_time_goes_where_it_decides(
    candidates: Sequence[Candidate], left_s: float, chosen: set[str]
) -> None:
    """A decision that can be had keeps its time, a possible slowdown before anything else."""
    assert chosen == share_out(candidates, left_s)
    assert chosen == share_out([*reversed(candidates)], left_s)
