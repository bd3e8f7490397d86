"""A process that appends, or makes launches, for a day: no memory, open files or temporary files grow."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import psutil
from ledger_files import run_id
from steps import leftovers
from synthetic import START, build_row
from two_trees import TwoTrees, nodes

from perfkit.gating.run import LockstepLaunches
from perfkit.ledger.maintenance import compact
from perfkit.ledger.recording import recover
from perfkit.ledger.soundness import verify
from perfkit.ledger.store import Ledger
from perfkit.runner.lockstep.launch import schedule

_DAY_S = 24 * 3600
# The first share of the appends fills caches, and so does the first compacting.
_WARM = 0.2
_LOOKS = 10
# Of memory that was warm, so much may come and go as the allocator likes.
_GROWTH = 1.25
_WRITES = """
def test_it(benchmark, tmp_path):
    (tmp_path / "much").write_bytes(bytes(100_000))
    benchmark(sum, range(100))
"""


def soak(folder: Path, *, runs: int) -> tuple[Sequence[str], Mapping[str, float]]:
    """Append so many runs, spread over a day, asking and compacting now and then.

    Return what is left to be desired, and memory in MB and open files, once warm and in the end.
    """
    ledger, process = Ledger(folder / "ledger"), psutil.Process()
    begun = time.monotonic()
    looks: list[tuple[float, int]] = []
    for number in range(runs):
        at = START + timedelta(seconds=_DAY_S * number / runs)
        with ledger.run(source="gate", run_id=run_id(number), recorded_at=at) as run:
            row = build_row(
                0.25, 0.5, run=run_id(number), minute=_DAY_S // 60 * number // runs, source="gate"
            )
            run.add([row])
        if (number + 1) % (runs // (_LOOKS * 2)) == 0:
            recover(ledger.path)
            asked = ledger.runs()
            if len(asked) != number + 1:
                return [f"{len(asked)} runs after {number + 1}"], {}
            compact(ledger.path, before=None)
            gc.collect()
            looks.append((process.memory_info().rss / 1e6, process.num_fds()))
    warm = looks[int(len(looks) * _WARM) :]
    (memory, handles), (memory_after, handles_after) = warm[0], warm[-1]
    problems = [f"{one.kind} {one.file}" for one in verify(ledger.path)[0].problems]
    problems += [f"left: {name}" for name in leftovers(ledger.path)]
    if memory_after > _GROWTH * memory:
        problems.append(f"memory grew from {memory:.0f} to {memory_after:.0f} MB")
    if handles_after > handles:
        problems.append(f"open files grew from {handles} to {handles_after}")
    return problems, {
        "runs": runs,
        "memory_mb": round(memory, 1),
        "memory_after_mb": round(memory_after, 1),
        "handles": handles,
        "handles_after": handles_after,
        "files": sum(1 for _ in ledger.path.iterdir()),
        "seconds": round(time.monotonic() - begun, 1),
    }


def soak_launches(folder: Path, *, launches: int) -> tuple[Sequence[str], Mapping[str, float]]:
    """Make so many launches of a benchmark that writes files, in generations and groups as a gate does.

    Return what is left to be desired, and memory in MB, open files, processes and files in the middle of
    the warm part and in the end.
    """
    trees, process = TwoTrees(folder), psutil.Process()
    trees.benchmarks(_WRITES)
    begun = time.monotonic()
    looks: list[tuple[float, int, int, int]] = []
    with trees.launcher(preload=None) as launcher:
        made = LockstepLaunches(launcher, limit_s=lambda _: 20.0)
        for number, slot in enumerate(itertools.islice(schedule(seed=1), launches)):
            made.prepare()
            record = made.make(slot, nodes("test_it"))
            if nodes("test_it") != list(record.timings):
                return [f"launch {number}: {record.failures}"], {}
            if (number + 1) % (launches // (_LOOKS * 2)) == 0:
                gc.collect()
                looks.append(_look(process, trees.folder))
    warm = looks[int(len(looks) * _WARM) :]
    (memory, handles, processes, files), last = warm[0], warm[-1]
    memory_after, handles_after, processes_after, files_after = last
    problems = [f"left: {pid}" for pid in trees.processes()]
    if memory_after > _GROWTH * memory:
        problems.append(f"memory grew from {memory:.0f} to {memory_after:.0f} MB")
    # A look may come between the raising of two groups, and of none.
    if handles_after > max(look[1] for look in warm[: _LOOKS // 2]):
        problems.append(f"open files grew from {handles} to {handles_after}")
    if processes_after > max(look[2] for look in warm[: _LOOKS // 2]):
        problems.append(f"processes grew from {processes} to {processes_after}")
    if files_after > max(look[3] for look in warm[: _LOOKS // 2]):
        problems.append(f"temporary files grew from {files} to {files_after}")
    return problems, {
        "launches": launches,
        "memory_mb": round(memory, 1),
        "memory_after_mb": round(memory_after, 1),
        "handles": handles,
        "handles_after": handles_after,
        "files": files,
        "files_after": files_after,
        "seconds": round(time.monotonic() - begun, 1),
    }


def _look(process: psutil.Process, folder: Path) -> tuple[float, int, int, int]:
    """Return the memory in MB, the open files, the processes, and the files that are no logs."""
    files = sum(path.is_file() and path.suffix != ".log" for path in folder.rglob("*"))
    return process.memory_info().rss / 1e6, process.num_fds(), len(process.children(recursive=True)), files
