"""A session is compared with the last runs here, and what is least certain is measured next."""

from __future__ import annotations

from dataclasses import replace

from synthetic import build_row
from synthetic_history import sha_of, trend

from perfkit.ledger.history.change_points import moved_since_last
from perfkit.ledger.history.trends import Gaps, Levels
from perfkit.model.history import Moved
from perfkit.report.history import last_runs_lines

NAME = "bench_a.py::test_a"


def _moved(name: str, ratio: float, *, spread: float | None, commit: int = 1) -> Moved:
    return Moved(benchmark=name, ratio=ratio, commit=sha_of(commit), spread=spread)


def test_the_last_run_counts_and_what_sessions_differ_by() -> None:
    known = replace(trend(NAME, runs=6), levels=(1.0, 1.02, 0.98, 1.0, 1.0, 0.5))
    row = build_row(1.5, 1.25, 2.0, name=NAME, version=known.version, run=known.run_ids[-1])

    (moved,) = moved_since_last([row], [known])

    assert (NAME, 1.25, known.commits[-2]) == (moved.benchmark, moved.ratio, moved.commit)
    assert moved.spread is not None
    assert 0 <= moved.spread < 0.03
    assert moved.is_beyond


def test_what_cannot_be_compared_is_left_out() -> None:
    known = trend(NAME, runs=2)
    row = build_row(2.0, name=NAME, version=known.version, run="0199-new")

    assert 1 == len(moved_since_last([row], [known]))
    assert [] == moved_since_last([row], [replace(known, version="other")])
    assert [] == moved_since_last([row], [replace(known, lockstep=True)])
    assert [] == moved_since_last([replace(row, run_id=known.run_ids[0])], [trend(NAME, runs=1)])
    assert [] == moved_since_last([build_row(name=NAME, version=known.version, status="error")], [known])


def test_only_what_moved_farther_than_its_runs_is_reported_with_what_decides() -> None:
    moved = [
        _moved("bench_a.py::test_b[10-x]", 2.5, spread=0.02),
        _moved("bench_a.py::test_a", 0.9, spread=0.03),
        _moved("bench_a.py::test_c", 1.08, spread=0.05),
        _moved("bench_a.py::test_d", 1.07, spread=None),
    ]

    assert [
        "against the last runs here (not interleaved, so no verdict):",
        "  +150.0 %  test_b[10-x]  (its runs differ by 2.0 %)",
        "  -10.0 %  test_a  (its runs differ by 3.0 %)",
        f"  to decide: perfkit gate --base {sha_of(1)[:10]} --select 'test_a or test_b'",
    ] == list(last_runs_lines(moved, measured=None))


def test_few_runs_are_reported_with_that() -> None:
    moved = [_moved(f"bench_a.py::test_{name}", 1.2, spread=None) for name in "abcd"]

    lines = list(last_runs_lines(moved, measured=sha_of(1)))

    assert "  +20.0 %  test_c  (too few runs to estimate their noise)" == lines[3]
    assert "  the commit is the same: the machine changed, or it is chance" == lines[-1]
    assert 5 == len(lines)


def test_nothing_to_report() -> None:
    still = [_moved("bench_a.py::test_a", 1.03, spread=0.02), _moved("bench_a.py::test_b", 1.01, spread=None)]

    assert [] == list(last_runs_lines([], measured=None))
    assert ["against the last runs here (not interleaved) none of 2 benchmarks moved far"] == list(
        last_runs_lines(still, measured=None)
    )


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
