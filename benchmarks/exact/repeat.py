"""Counts the suite in fresh processes, each with its own hash seed: ``repeat.py [PROCESSES]``.

Prints the counts that were not the same to the digit in all of them, and exits with 1 where there are any.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from perfkit.agent.counters.model import Counts
from perfkit.agent.training import COUNTED_STEP
from perfkit.model import SIDES
from perfkit.runner.lockstep.collection import list_benchmarks
from perfkit.runner.lockstep.launcher import Launcher, MeasuredTrees
from perfkit.runner.lockstep.untimed import count_benchmarks, count_training

ROOT = Path(__file__).parents[2]
_TRAINING = "benchmarks.workloads.metric_learning.training:main"
_LIMIT_S = 120.0
_Seen = dict[tuple[str, str], set[tuple[float, ...]]]


def main() -> None:
    """Count, and compare what each process reports."""
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seen: _Seen = defaultdict(set)
    not_exact: set[tuple[str, str]] = set()
    with tempfile.TemporaryDirectory(prefix="exactness-") as folder:
        trees = MeasuredTrees(roots=dict.fromkeys(SIDES, ROOT), origins=(ROOT,), paths=("benchmarks",))
        with Launcher(trees, folder=Path(folder), environment=os.environ, seed=0) as launcher:
            launcher.why_no_fork = "fresh processes are what is asked for"
            nodes = tuple(list_benchmarks(launcher.start("head", nodes=None)).found)
            for pair in range(processes // len(SIDES)):
                launcher.renew()
                found = count_benchmarks(
                    launcher, nodes, limit_s=lambda _: _LIMIT_S, on_benchmark=lambda _: None
                )
                steps = count_training(
                    launcher, dict.fromkeys(SIDES, _TRAINING), steps=COUNTED_STEP, runs=1, limit_s=_LIMIT_S
                )
                for side in SIDES:
                    _note(found.counts[side], seen, not_exact)
                    (step,) = steps.runs[side]
                    if isinstance(step, Counts):
                        _note({"train": step}, seen, not_exact)
                print(f"{len(SIDES) * (pair + 1)} processes, {len(found.failures)} failures", flush=True)
    _report(seen, not_exact)


def _note(counts: Mapping[str, Counts], seen: _Seen, not_exact: set[tuple[str, str]]) -> None:
    for name, one in counts.items():
        for count in one.counts:
            if count.metric == "resident":
                continue
            seen[name, count.metric].add(count.values)
            if len(count.values) > 1 and not count.exact:
                not_exact.add((name, count.metric))


def _report(seen: _Seen, not_exact: set[tuple[str, str]]) -> None:
    differing = {key: values for key, values in seen.items() if len(values) > 1}
    for (name, metric), values in differing.items():
        mark = " (reported not to repeat)" if (name, metric) in not_exact else ""
        print(f"{name} {metric}{mark}: {sorted(values)[:4]}")
    names = {name for name, _ in seen}
    print(f"{len(seen)} counts of {len(names)} benchmarks and steps, {len(differing)} of them differ")
    sys.exit(1 if differing.keys() - not_exact else 0)


if __name__ == "__main__":
    main()
