"""What stands for the two benchmarks where torch is not installed: plain Python, and products of arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Benchmark = Callable[..., Any]
Matrix = npt.NDArray[np.float32]


def count_words() -> Counter[str]:
    """Return how often each of many words occurs."""
    return Counter(f"word{number * 7919 % 61}" for number in range(2_000))


def multiply(left: Matrix, right: Matrix) -> Matrix:
    """Return the last of a few matrix products."""
    for _ in range(4):
        product = left @ right
    return product


def test_python(benchmark: Benchmark) -> None:
    """Plain Python, about half a millisecond."""
    benchmark(count_words)


def test_arrays(benchmark: Benchmark) -> None:
    """Matrix products, a few milliseconds."""
    left, right = (np.ones((256, 256), dtype=np.float32) for _ in range(2))
    benchmark(multiply, left, right)
