"""Benchmarks of an accelerator, which `make gpu` gates against themselves; else the CPU runs them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from torch import nn

DEVICE = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
# A rehearsal on the CPU is about whether it works.
SIZE = 2048 if DEVICE.type != "cpu" else 64


def _step(model: nn.Module, inputs: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def test_matmul(benchmark: BenchmarkFixture) -> None:
    """One large product: the device decides."""
    left, right = (torch.randn(SIZE, SIZE, device=DEVICE) for _ in range(2))
    benchmark(torch.matmul, left, right)


def test_layer_norm(benchmark: BenchmarkFixture) -> None:
    """The device's memory decides."""
    inputs = torch.randn(SIZE, SIZE, device=DEVICE)
    benchmark(nn.functional.layer_norm, inputs, (SIZE,))


def test_attention(benchmark: BenchmarkFixture) -> None:
    """Attention of eight heads."""
    query = torch.randn(4, 8, SIZE // 4, 64, device=DEVICE)
    benchmark(nn.functional.scaled_dot_product_attention, query, query, query)


def test_convolution_step(benchmark: BenchmarkFixture) -> None:
    """A training step of a small convolutional net."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.Flatten()).to(DEVICE)
    benchmark(_step(model, torch.randn(16, 3, max(SIZE // 32, 8), max(SIZE // 32, 8), device=DEVICE)))


@pytest.mark.perfkit(flush_l2=True)
def test_sum_without_cache(benchmark: BenchmarkFixture) -> None:
    """A reduction of what lies outside of the second-level cache."""
    benchmark(torch.randn(SIZE, SIZE, device=DEVICE).sum)


def test_many_small_layers_step(benchmark: BenchmarkFixture) -> None:
    """A training step of a deep and narrow net: the host decides."""
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(32))).to(DEVICE)
    benchmark(_step(model, torch.randn(8, 8, device=DEVICE)))
