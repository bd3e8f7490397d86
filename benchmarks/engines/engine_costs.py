"""Measures what a task of a backfill costs beside its launches: ``make engine-costs`` writes ``costs.json``.

Each cost is the median of some tries on this repository. What a benchmark takes in a launch comes from the
rows of the ledger: the time from one row of a launch to the next.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from perfkit.commands.tasks import Code, Task, encode, own_class
from perfkit.features.cluster.worker import bundle_name, make_bundle, make_clone, perform
from perfkit.ledger.store import Ledger
from perfkit.repo.checkout import add_worktree, worktree_folder
from perfkit.repo.git import run_git

ROOT = Path(__file__).parents[2]
OUT = Path(__file__).with_name("costs.json")
_TRIES = 5


def main() -> int:
    """Measure and write the costs, in seconds, with the load of the machine meanwhile."""
    load = os.getloadavg()[0]
    head = run_git(ROOT, "rev-parse", "HEAD").strip()
    bundle = make_bundle(ROOT, [head])
    code = Code(head=head, bundle=bundle_name([head], ""))
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        costs = {
            "checkout_s": _median(lambda: _check_out(head)),
            "collection_s": _median(_collect),
            "bundle_s": _median(lambda: make_bundle(ROOT, [head])),
            "clone_s": _seconds(lambda: make_clone(code, bundle)),
            "task_s": _median(_do_nothing),
        }
    costs |= _of_launches() | {"bundle_mb": len(bundle) / 1e6}
    rounded = {name: float(f"{value:.3g}") for name, value in costs.items()}
    machine = own_class()
    found = {
        **rounded,
        "load_before": round(load, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "cpus": os.cpu_count(),
        "machine": machine.text,
        "at": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    OUT.write_text(json.dumps(found, indent=2) + "\n")
    print(OUT.read_text())
    return 0


def _check_out(sha: str) -> None:
    with worktree_folder([ROOT]) as folder:
        add_worktree(ROOT, sha, folder / "tree")


def _collect() -> None:
    command = [sys.executable, "-m", "pytest", "benchmarks", "--collect-only", "-q", "-p", "no:cacheprovider"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def _do_nothing() -> None:
    task = Task(
        kind="check", commits=("0" * 40,), machine=own_class(), code=Code(head="0" * 40),
        stamp=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    state, _ = perform(encode(task))
    assert json.loads(state)["state"] == "done", state


def _of_launches() -> dict[str, float]:
    """Return the median and the upper quartile of the seconds that a benchmark takes in a launch."""
    launches: dict[tuple[str, str, int], list[datetime]] = defaultdict(list)
    for source in ("backfill", "pytest"):
        for row in Ledger(ROOT / "benchmarks/ledger").rows_from(source):
            if row.outcome.metric.name == "time" and row.outcome.status == "ok":
                launches[row.run_id, row.commit.sha, row.placement.launch].append(row.recorded_at)
    gaps = [
        (after - before).total_seconds()
        for times in launches.values()
        for before, after in itertools.pairwise(sorted(times))
    ]
    return {
        "benchmark_s": statistics.median(gaps),
        "benchmark_upper_s": statistics.quantiles(gaps, n=4)[2],
        "benchmarks_seen": float(len(gaps)),
    }


def _median(work: Callable[[], object]) -> float:
    return statistics.median(_seconds(work) for _ in range(_TRIES))


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
