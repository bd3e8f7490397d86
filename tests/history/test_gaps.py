"""What is measured next is where a history is least certain."""

from __future__ import annotations

from perfkit.ledger.history.trends import Gaps, Levels

ONE = ("bench", "1")


def _order(count: int, levels: dict[int, float] | None = None) -> list[int]:
    """Return the places in the order in which they are asked for, where each level is known once asked."""
    gaps = Gaps(range(count), margin=0.02)
    asked: list[int] = []
    while (place := gaps.next()) is not None:
        asked.append(place)
        gaps.finish(place)
        if levels:
            gaps.learn(place, {ONE: levels[place]})
    return asked


def _next(count: int, found: dict[int, Levels]) -> int | None:
    gaps = Gaps(range(count), margin=0.02)
    for place, levels in found.items():
        gaps.finish(place)
        gaps.learn(place, levels)
    return gaps.next()


def test_ends_come_first_and_then_the_middles_of_the_largest_gaps() -> None:
    assert [0, 8, 4, 2, 6, 1, 3, 5, 7] == _order(9)


def test_a_gap_whose_ends_differ_comes_before_a_larger_one() -> None:
    levels = {place: 1.0 if place < 7 else 1.1 for place in range(9)}

    assert [0, 8, 4, 6, 7, 2, 1, 3, 5] == _order(9, levels)


def test_what_was_measured_before_parts_gaps() -> None:
    assert 6 == _next(7, {0: {}, 1: {}, 2: {}})
    assert 4 == _next(7, {0: {}, 1: {}, 2: {}, 6: {}})


def test_levels_of_other_versions_and_zero_show_nothing() -> None:
    known: dict[int, Levels] = {0: {ONE: 1.0}, 4: {("bench", "2"): 9.0, ("bytes", "1"): 0.0}, 8: {ONE: 1.0}}

    assert 2 == _next(9, known)


def test_one_commit_and_none_left() -> None:
    assert 0 == _next(1, {})
    assert None is _next(1, {0: {}})
