"""A gate counts benchmarks on real trees and in real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from two_trees import TwoTrees, nodes

from perfkit.compare.counts import count_compared
from perfkit.compare.sequential import ComparedBenchmark
from perfkit.records import Benchmark
from perfkit.verdict.exact import ExactPolicy
from perfkit.verdict.exit_code import exit_code

POLICY = ExactPolicy(gating=("python_calls",), tolerance=0.05)
STEADY = "def test_it(benchmark):\n    benchmark(sorted, [2, 1])\n"
RAISES = "def test_it(benchmark):\n    benchmark(int, 'none')\n"


@pytest.mark.parametrize(("base", "head", "expected"), [(STEADY, RAISES, 4), (RAISES, STEADY, None)])
def test_a_benchmark_that_cannot_be_counted_on_head_alone_is_missed(
    tmp_path: Path, base: str, head: str, expected: int | None
) -> None:
    """Beside times, too, counts that base has are not lost without a word; those it lacks are no loss."""
    trees = TwoTrees(tmp_path)
    trees.benchmarks(base, "base")
    trees.benchmarks(head, "head")
    (name,) = nodes("test_it")
    one = ComparedBenchmark(
        benchmark=Benchmark(name=name, version="v"), margin=0.02, gating=True, limit_s=20.0
    )

    with trees.launcher() as launcher:
        tally = count_compared([one], launcher, say=lambda _: None, decide=False)

    compared = [found for found in tally.compared(POLICY) if found.metric.name == "python_calls"]
    assert expected == (exit_code(compared) if compared else None)
    assert all("counting failed: " in (found.message or "") for found in compared)
