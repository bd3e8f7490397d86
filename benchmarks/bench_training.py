"""The training loop as a user runs it."""

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from workloads.metric_learning.training import Training, TrainingConfig


@pytest.fixture
def training(digits: Path) -> Training:
    """Return a net with its data, ready for the first epoch."""
    return Training(TrainingConfig(data=digits))


@pytest.mark.benchmark(group="training")
def test_training_epoch(benchmark: BenchmarkFixture, training: Training) -> None:
    """One epoch of P-K batches, the measurements of the loggers included."""
    benchmark.pedantic(training.run_epoch, args=(0,), rounds=3, iterations=1, warmup_rounds=0)
    result = training.result()
    assert 200 * result.steps == result.samples
    assert result.losses[0] > result.losses[-1]
