"""How much sooner two workers are done than one, with tasks that only take time: ``make engine-speed``."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from cluster import Pile, cluster, recorded, simulated_tasks

from perfkit.features.cluster.dask import DaskEngine

_TASKS = 12
_SECONDS = 5.0


def main() -> int:
    """Print the wall times of one worker and of two in turn, and their ratio."""
    with tempfile.TemporaryDirectory(prefix="engine-speed-") as place:
        folder = Path(place)
        taken, rows = {}, {}
        for workers in (1, 2):
            with cluster(folder / f"cluster-{workers}", workers=workers) as made:
                made.wait_for_workers(workers)
                pile = Pile(waiting=simulated_tasks(_TASKS, seconds=_SECONDS), ledger=folder / str(workers))
                with DaskEngine(made.url) as engine:
                    engine.classes()
                    begun = time.perf_counter()
                    engine.perform(pile)
                    taken[workers] = time.perf_counter() - begun
                rows[workers] = recorded(pile.ledger)
        print(
            f"{_TASKS} tasks of {_SECONDS:g} s: one worker {taken[1]:.1f} s, two {taken[2]:.1f} s,"
            f" {taken[1] / taken[2]:.2f} times as fast; rows equal: {rows[1] == rows[2]}"
        )
    return int(rows[1] != rows[2])


if __name__ == "__main__":
    sys.exit(main())
