"""A process that appends for a day: neither its memory, nor its open files, nor temporary files grow."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import psutil
from ledger_files import run_id
from steps import leftovers
from synthetic import START, build_row

from perfkit.ledger.recording import recover
from perfkit.ledger.soundness import verify
from perfkit.ledger.store import Ledger
from perfkit.ledger.upkeep import compact

_DAY_S = 24 * 3600
# The first share of the appends fills caches, and so does the first compacting.
_WARM = 0.2
_LOOKS = 10
# Of memory that was warm, so much may come and go as the allocator likes.
_GROWTH = 1.25


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
