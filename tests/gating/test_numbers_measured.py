"""Numbers that benchmarks measure are accused only after as many launches as the error rate takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, cast

import pytest

from perfkit.agent.counters.model import TRACKED, Count, Counts
from perfkit.gating import counters
from perfkit.gating.counters import CountResult
from perfkit.gating.rules import ComparedBenchmark
from perfkit.model import SIDES, Benchmark, Side
from perfkit.runner.lockstep.untimed import CountedSides

NAME = "test_size"


def _measured(
    monkeypatch: pytest.MonkeyPatch, base: Iterator[float], head: Iterator[float], *, has_time: bool = True
) -> CountResult:
    """Return what is found of a tracked value that has these values on both sides, launch by launch."""
    sides: dict[Side, Iterator[float]] = dict(zip(SIDES, (base, head), strict=True))

    def count(*_: object, **__: object) -> CountedSides:
        found = {
            side: {
                NAME: Counts(
                    counts=(Count(metric=TRACKED, unit="1", values=(next(values),), causes=()),),
                    not_counted={},
                )
            }
            for side, values in sides.items()
        }
        return CountedSides(counts=found, failures=(), reports={})

    monkeypatch.setattr(counters, "count_benchmarks", count)
    compared = ComparedBenchmark(
        benchmark=Benchmark(name=NAME, version="v"), margin=0.02, gating=True, limit_s=60.0, number=True
    )
    return counters.measure_numbers(
        [compared], cast("Any", None), error=0.01, has_time=lambda: has_time, log=lambda _: None
    )


def _values(result: CountResult) -> tuple[tuple[float, ...], ...]:
    (pair,) = result.pairs
    return tuple(pair.counts[side].counts[0].values for side in SIDES)


def test_two_launches_that_differ_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _measured(monkeypatch, iter((5.0, 5.0, 6.0, 5.0, 6.0)), iter((6.0, 6.0, 5.0, 5.0, 6.0)))

    assert ((5.0, 5.0, 6.0, 5.0, 6.0), (6.0, 6.0, 5.0, 5.0, 6.0)) == _values(found)


def test_what_is_larger_in_each_launch_has_as_many_as_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _measured(monkeypatch, itertools.repeat(10.0), itertools.repeat(20.0))

    assert ((10.0,) * 5, (20.0,) * 5) == _values(found)


def test_what_is_alike_ends_after_two_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _measured(monkeypatch, itertools.repeat(100.0), itertools.repeat(101.0), has_time=False)

    assert ((100.0,) * 2, (101.0,) * 2) == _values(found)


def test_without_time_a_difference_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _measured(monkeypatch, itertools.repeat(10.0), itertools.repeat(20.0), has_time=False)

    (finding,) = found.findings
    assert ("NOT REACHED", "2 of the 5 launches it needs") == (finding.verdict, finding.message)
