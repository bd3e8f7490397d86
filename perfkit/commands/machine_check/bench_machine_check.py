"""Two benchmarks that never change: plain Python on one core, and tensors large enough for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Benchmark = Callable[..., Any]


def count_words() -> dict[str, int]:
    """Return how often each of many words occurs."""
    counts: dict[str, int] = {}
    for number in range(2_000):
        word = f"word{number * 7919 % 61}"
        counts[word] = counts.get(word, 0) + 1
    return counts


def multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the last of a few matrix products."""
    for _ in range(4):
        product = left @ right
    return product


def test_python(benchmark: Benchmark) -> None:
    """Plain Python, about half a millisecond."""
    benchmark(count_words)


def test_tensors(benchmark: Benchmark) -> None:
    """Matrix products, a few milliseconds."""
    left, right = torch.ones(256, 256), torch.ones(256, 256)
    benchmark(multiply, left, right)
