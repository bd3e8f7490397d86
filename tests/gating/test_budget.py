"""The time that is left is divided among benchmarks that are not decided yet."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from synthetic import build_comparison

from perfkit.gating import explain
from perfkit.gating.design import Candidate, Forecast, share_out
from perfkit.model.comparisons import Quiet


def _candidate(
    node: str,
    next_look_s: float,
    decision_s: float | None = None,
    *,
    suspect: bool = False,
    changed: bool = True,
    begun: bool = True,
    swept: bool = True,
) -> Candidate:
    return Candidate(
        node=node,
        next_look_s=next_look_s,
        decision_s=decision_s,
        suspect=suspect,
        changed=changed,
        begun=begun,
        swept=swept,
    )


@pytest.mark.parametrize(
    ("candidates", "left_s", "chosen"),
    [
        pytest.param([], 60, set(), id="nobody asks"),
        pytest.param([_candidate("a", 0, 0), _candidate("b", 0, 0)], 1, {"a", "b"}, id="costs not known yet"),
        pytest.param([_candidate("a", 5, 9), _candidate("b", 5)], 60, {"a", "b"}, id="enough for all"),
        pytest.param([_candidate("a", 11, 11)], 10, set(), id="a look that comes too late"),
        pytest.param([_candidate("a", 10, 10)], 10, {"a"}, id="just in time"),
        pytest.param(
            [_candidate("a", 3), _candidate("b", 4, 10)], 10, {"b"}, id="a decision that comes just in time"
        ),
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
        pytest.param(
            [_candidate("a", 2, 6, changed=False), _candidate("b", 3, 9)], 10, {"b"}, id="changed code first"
        ),
    ],
)
def test_the_time_goes_where_it_decides(
    candidates: Sequence[Candidate], left_s: float, chosen: set[str]
) -> None:
    assert chosen == share_out(candidates, left_s)
    assert chosen == share_out([*reversed(candidates)], left_s)


def test_a_first_look_at_all_comes_before_the_rest_where_there_is_no_time_for_all() -> None:
    suspects = [_candidate(f"suspect{number}", 1, 30, suspect=True) for number in range(4)]
    unseen = [_candidate(f"unseen{number:02}", 1, 30, swept=False) for number in range(20)]

    first = share_out([*suspects, *unseen], 60)

    assert 10 == len(first)
    assert first < {one.node for one in unseen}
    # It would take too much of the time that is left.
    assert {one.node for one in suspects} == share_out([*suspects, *unseen], 40)


def test_few_benchmarks_are_measured_together_those_of_changed_code_first() -> None:
    others = [_candidate(f"other{number:02}", 0, 0, changed=False, begun=False) for number in range(40)]
    begun = [_candidate(f"begun{number}", 1, 1, changed=False) for number in range(5)]
    changed = [_candidate(f"changed{number}", 0, 0, begun=False) for number in range(3)]

    chosen = share_out([*others, *begun, *changed], 60)

    assert {*(one.node for one in (*changed, *begun))} < chosen
    assert 10 == len(chosen)


def test_a_forecast_states_what_it_takes_and_what_the_budget_leaves_out() -> None:
    enough = Forecast(costs_s=[10.0] * 8 + [5.0], left_s=100.0, after_s=10.0)
    short = Forecast(costs_s=[10.0] * 9 + [5.0], left_s=41.0)

    assert "measuring 9 benchmarks: about 95 s at a margin of 2 %" == enough.announced(
        "a margin of 2 %", budget_s=100
    )
    assert (
        "measuring 10 benchmarks: about 95 s at a margin of 2 %; the 41 s that are left are enough for about"
        " 4, those of changed code first (--budget 110 for all, or --select to measure fewer)"
    ) == short.announced("a margin of 2 %", budget_s=50)


def test_where_measuring_goes_on_nothing_is_left_out() -> None:
    short = Forecast(costs_s=[10.0] * 9 + [5.0], left_s=41.0)

    assert (
        "measuring 10 benchmarks: about 95 s at a margin of 2 %; the 41 s that are left are enough for about"
        " 4, those of changed code first (after which measuring goes on for the others)"
    ) == short.announced("a margin of 2 %", budget_s=50, goes_on=True)
    assert (
        "the budget of 50.0 s is over: going on with 10 undecided benchmarks, which takes about 95 s and"
        ' 3600 s at most (inconclusive = "go on")'
    ) == short.going_on(budget_s=50, most_s=3600)


def test_the_end_states_what_was_not_reached_and_what_that_takes() -> None:
    forecast = Forecast(costs_s=[10.0, 10.0], left_s=1.0)

    assert (
        "2 of 9 benchmarks were not reached, since the budget of 60.0 s was over"
    ) == forecast.not_reached(2, of=9, changed=None, budget_s=60.0)


def test_no_profile_begins_that_would_end_after_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]

    def profile(*_: object, **__: object) -> None:
        now[0] += 6.0

    monkeypatch.setattr(explain, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(explain, "explain_benchmark", profile)
    slower = [build_comparison(name, "REGRESSED", 1.1, 1.05, 1.2) for name in "abc"]
    surveyed: Any = SimpleNamespace(
        compared=[SimpleNamespace(benchmark=one.benchmark) for one in slower], changed=object()
    )
    sides: Any = None

    _, notes = explain.explain_benchmarks(slower, (), surveyed, sides, Quiet(), budget_s=60.0)

    assert 6.0 == now[0]
    assert 1 == len(notes)
