"""pytest-benchmark's private attributes, which the adapter reads, exist and mean what it assumes."""

from __future__ import annotations

import time
from unittest.mock import call

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from perfkit.agent.benchmark_fixture import group_of, read_fixture
from perfkit.agent.functions import source_of


@pytest.mark.benchmark(group="contract", warmup=True, warmup_iterations=3)
def test_a_called_fixture_reports_loops_and_warmup(benchmark: BenchmarkFixture) -> None:
    start = time.perf_counter()
    benchmark(sum, range(100))
    elapsed = time.perf_counter() - start

    reading = read_fixture(benchmark)

    assert reading is not None
    assert reading.loops is not None
    assert 0 < reading.loops * sum(reading.values) < elapsed
    assert (3, "contract") == (reading.warmup, group_of(benchmark))
    assert "benchmark(...)" == reading.mode


def test_a_pedantic_fixture_does_not_know_its_warmup(benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(sum, args=(range(100),), rounds=4, iterations=5, warmup_rounds=2)

    reading = read_fixture(benchmark)

    assert reading is not None
    assert (4, 5, None) == (len(reading.values), reading.loops, reading.warmup)


def test_an_unused_fixture_has_no_reading(benchmark: BenchmarkFixture) -> None:
    before = read_fixture(benchmark)
    benchmark.pedantic(sum, args=([],))

    assert None is before
    assert None is read_fixture(object())


def test_what_makes_its_attributes_up_has_no_source() -> None:
    assert source_of(call).startswith("unittest.mock.")
