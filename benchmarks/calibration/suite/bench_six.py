"""The six works as benchmarks."""

from __future__ import annotations

import pytest
import torch
import work
from pytest_benchmark.fixture import BenchmarkFixture


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def test_tensor(benchmark: BenchmarkFixture) -> None:
    """A tensor operation."""
    assert benchmark(work.dosed("tensor", work.tensor_work())) is not None


def test_loss(benchmark: BenchmarkFixture) -> None:
    """A loss."""
    assert benchmark(work.dosed("loss", work.loss_work())) is not None


def test_training(benchmark: BenchmarkFixture) -> None:
    """A training step."""
    assert benchmark(work.dosed("training", work.training_work())) is not None


def test_loading(benchmark: BenchmarkFixture) -> None:
    """Batches from a loader."""
    assert len(benchmark(work.dosed("loading", work.loading_work()))) >= 20


def test_python(benchmark: BenchmarkFixture) -> None:
    """Plain Python."""
    assert benchmark(work.dosed("python", work.python_work())) is not None


def test_allocation(benchmark: BenchmarkFixture) -> None:
    """Allocations."""
    assert benchmark(work.dosed("allocation", work.allocation_work())) is not None
