"""The hard works as benchmarks: what workers and threads make of a call depends on the scheduler."""

from __future__ import annotations

import pytest
import torch
import work
from pytest_benchmark.fixture import BenchmarkFixture


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def test_workers(benchmark: BenchmarkFixture) -> None:
    """Batches from two worker processes."""
    assert len(benchmark(work.dosed("workers", work.workers_work()))) == 20


def test_threads(benchmark: BenchmarkFixture) -> None:
    """A long step in threads."""
    assert benchmark(work.dosed("threads", work.threads_work())) is not None
