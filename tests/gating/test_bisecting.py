"""The search for a commit is tested with a clock that is set by hand and a meter that knows the answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from perfkit.errors import NotMeasuredError
from perfkit.gating.bisecting import CountSearch, TimeSearch, growth, weigh
from perfkit.model.bisection import SearchState
from perfkit.model.profiles import Amount, Part, Section
from perfkit.repo.commits import CommitChange
from perfkit.stats.bisection import MeasuredPair, Rules

OPENING_S, LAUNCH_S = 8.0, 1.0
WOBBLE = 0.002


@dataclass
class FakeMeter:
    """Knows the level of each place and which places fail, and turns its clock by what measuring takes.

    ``steps`` has by how much the logarithm of the level rises at places, or the count; ``raises`` are places
    that fail only when they are launched or counted.
    """

    steps: Mapping[int, float]
    broken: frozenset[int] = frozenset()
    raises: frozenset[int] = frozenset()
    open_pair: tuple[int, int] | None = None
    seconds: float = 1000.0
    opened: list[tuple[int, int]] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    launches: int = 0

    def clock(self) -> float:
        """Return what its clock shows."""
        return self.seconds

    def level(self, place: int) -> float:
        """Return the level of a place."""
        return sum(rise for at, rise in self.steps.items() if at <= place)

    def open(self, base: int, head: int) -> Mapping[int, str]:
        """Open a pair, if neither place is broken."""
        if self.open_pair == (base, head):
            return {}
        self.seconds += OPENING_S
        self.opened.append((base, head))
        failed = {place: f"place {place} is broken" for place in (base, head) if place in self.broken}
        self.open_pair = None if failed else (base, head)
        return failed

    def launch(self) -> float | Mapping[int, str]:
        """Return the log ratio of both places, with a small scatter that repeats."""
        assert self.open_pair is not None
        failed = {place: f"place {place} raises" for place in self.open_pair if place in self.raises}
        self.seconds += LAUNCH_S
        self.launches += 1
        if failed:
            self.open_pair = None
            return failed
        base, head = self.open_pair
        return self.level(head) - self.level(base) + WOBBLE * math.sin(7.0 * self.launches)

    def count(self, places: Sequence[int], metric: str) -> Mapping[int, float | str]:
        """Return the counts of places."""
        assert metric == "operators"
        failed = self.open(places[0], places[-1])
        if failed:
            return failed
        self.counted += places
        return {
            place: f"place {place} raises" if place in self.raises else 100 + self.level(place)
            for place in places
        }


def _time(meter: FakeMeter, last: int, *, budget_s: float = 10000.0) -> TimeSearch:
    return TimeSearch(
        meter=meter,
        last=last,
        deadline=meter.seconds + budget_s,
        on_state=lambda _: None,
        clock=meter.clock,
        rules=Rules(),
    )


def _count(meter: FakeMeter, last: int, *, budget_s: float = 10000.0) -> CountSearch:
    return CountSearch(
        meter=meter,
        last=last,
        deadline=meter.seconds + budget_s,
        on_state=lambda _: None,
        clock=meter.clock,
        metric="operators",
        tolerance=0.0,
    )


@pytest.mark.parametrize("place", [1, 23, 64])
def test_the_commit_that_slowed_it_down_is_found(place: int) -> None:
    meter = FakeMeter(steps={place: 0.1})
    search = _time(meter, 64)
    search.open_ends()
    search.begin()

    found = search.run([1.0] * 64)

    assert ("found", (place,)) == (found.status, found.steps[0].places)
    assert found.steps[0].low < 0.1 < found.steps[0].high
    assert len(meter.opened) <= 16


def test_equal_ends_are_no_change() -> None:
    meter = FakeMeter(steps={})
    search = _time(meter, 64)
    search.open_ends()
    search.begin()

    assert "no change" == search.run([1.0] * 64).status
    assert [(0, 64)] == meter.opened


def test_commits_that_cannot_be_measured_share_the_blame() -> None:
    meter = FakeMeter(steps={5: 0.1}, broken=frozenset({4, 5}), raises=frozenset({6}))
    search = _time(meter, 9)
    search.open_ends()
    search.begin()

    found = search.run([1.0] * 9)

    assert (4, 5, 6, 7) == found.steps[0].places
    assert {4, 5, 6} == set(search.unusable)


def test_ends_that_cannot_be_measured_move_inward() -> None:
    meter = FakeMeter(steps={23: 0.1}, broken=frozenset({*range(20), 30}))
    search = _time(meter, 30)
    search.open_ends()

    assert (20, 29) == (search.first, search.last)
    assert len(meter.opened) <= 12

    search.begin()
    assert (23,) == search.run([1.0] * 30).steps[0].places


def test_a_range_in_which_nothing_can_be_measured_is_an_error() -> None:
    search = _time(FakeMeter(steps={}, broken=frozenset(range(9))), 8)

    with pytest.raises(NotMeasuredError, match=r"place \d is broken"):
        search.open_ends()


def test_a_spent_budget_leaves_a_range() -> None:
    meter = FakeMeter(steps={23: 0.1})
    search = _time(meter, 64, budget_s=20.0)
    search.open_ends()
    search.begin()

    found = search.run([1.0] * 64)
    begin, end, many, share = search.left([1.0] * 64)

    assert "undecided" == found.status
    assert begin <= 23 <= end
    assert 1 < many < 64
    assert 0.5 < share <= 1.0
    assert meter.seconds - 1000.0 < 20.0 + OPENING_S + LAUNCH_S


def test_a_search_goes_on_from_what_was_measured() -> None:
    meter = FakeMeter(steps={23: 0.1})
    search = _time(meter, 64)
    search.open_ends()
    search.begin()
    search.run([1.0] * 64)
    again = FakeMeter(steps={23: 0.1})
    resumed = _time(again, 64)
    resumed.open_ends()
    pairs = [
        MeasuredPair(base=base, head=head, log_ratios=tuple(logs))
        for (base, head), logs in search.pairs.items()
    ]
    resumed.resume(pairs, {64: "it was broken then"})
    resumed.begin()

    assert (23,) == resumed.run([1.0] * 64).steps[0].places
    assert 0 == again.launches


def test_suspected_commits_that_failed_earlier_are_tried_again() -> None:
    meter = FakeMeter(steps={5: 0.1})
    search = _time(meter, 9)
    search.open_ends()
    search.resume([], {4: "no module", 5: "no module", 8: "no module"})
    search.begin()

    assert (5,) == search.run([1.0] * 9).steps[0].places
    assert {8} == set(search.unusable)


def test_what_is_measured_is_reported() -> None:
    states: list[SearchState] = []
    meter = FakeMeter(steps={3: 0.1})
    search = _time(meter, 8)
    search.on_state = states.append
    search.open_ends()
    search.begin()
    search.run([1.0] * 8)

    assert (0, 8) == (states[0].base, states[0].head)
    assert states[-1].left < states[0].left
    assert all(state.left_s > 0 for state in states)


@pytest.mark.parametrize("place", [1, 23, 64])
def test_a_count_is_found_by_counting_few_commits(place: int) -> None:
    meter = FakeMeter(steps={place: 1})
    search = _count(meter, 64)
    search.open_ends()

    (step,) = search.run([1.0] * 64)

    assert ("found", place - 1, place) == (search.status, step.base, step.head)
    assert (100, 101) == (step.before, step.after)
    assert len(meter.opened) <= 5
    assert len(meter.counted) == len(set(meter.counted))


def test_the_largest_steps_of_a_count_are_found_first() -> None:
    meter = FakeMeter(steps={5: 2, 20: 40, 40: -7, 60: 1})
    search = _count(meter, 64)
    search.open_ends()

    steps = search.run([1.0] * 64)

    assert [(20, 40), (40, 7), (5, 2)] == [(step.head, abs(step.after - step.before)) for step in steps]
    assert 1 == search.more()


def test_a_count_without_time_is_undecided() -> None:
    meter = FakeMeter(steps={23: 1})
    search = _count(meter, 64, budget_s=20.0)
    search.open_ends()

    assert [] == search.run([1.0] * 64)
    left = search.left()
    assert "undecided" == search.status
    assert left is not None
    assert left.base < 23 <= left.head


def test_suspicion_follows_what_commits_change() -> None:
    changes = [
        CommitChange(touches_code=False, code={}),
        CommitChange(touches_code=True, code={"tool.py": ("describe",)}),
        CommitChange(touches_code=True, code={"losses.py": ("Loss.forward",)}),
        CommitChange(touches_code=True, code={"losses.py": None}),
        CommitChange(touches_code=True, code={}, touches_more=True),
    ]
    ran = [("losses.py", "Loss.forward")]

    plain = weigh(changes)
    known = weigh(changes, ran=ran)
    grown = weigh(changes, ran=ran, grown={("losses.py", "forward"): 0.5})
    stepped = weigh(changes, steps=[(0, 2)])

    assert plain == [0.1, 1.0, 1.0, 1.0, 1.0]
    assert known[2] == known[3] > plain[4] == known[4] > 10 * max(known[:2])
    assert grown[2] > 5 * known[2]
    assert stepped == [0.5, 5.0, 1.0, 1.0, 1.0]


def test_growth_is_shared_among_the_functions_that_grew() -> None:
    section = Section(
        title="functions",
        whole=Amount(base_s=1.0, head_s=2.0),
        parts=(
            Part(
                name="Loss.forward",
                kind="own code",
                place="losses.py:3",
                amount=Amount(base_s=0.1, head_s=0.4),
            ),
            Part(name="step", kind="own code", place="train.py:9", amount=Amount(base_s=0.1, head_s=0.2)),
            Part(name="pull", kind="own code", place="losses.py:30", amount=Amount(base_s=0.2, head_s=0.1)),
            Part(name="a wait", kind="wait", amount=Amount(base_s=0.0, head_s=1.0)),
        ),
    )

    shares = growth(section)

    assert pytest.approx({("losses.py", "forward"): 0.75, ("train.py", "step"): 0.25}) == shares
