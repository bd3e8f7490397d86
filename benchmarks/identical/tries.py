"""Tries a trick that is none again and again: ``tries.py [TIMES]``.

Both of its sides are the same code. Prints what each try came to, and exits with 1 where one found that it
helps or hurts.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from perfkit.config import load_project
from perfkit.features.tricks.catalogue.operators import IDENTICAL
from perfkit.features.tricks.command import TricksRequest, run_tricks
from perfkit.features.tricks.report import bounds_text
from perfkit.model.comparisons import Quiet

_BUDGET_S = 40.0


def main() -> None:
    """Try, and count the answers."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    answers: Counter[str] = Counter()
    project = load_project(Path(__file__).parents[2])
    with tempfile.TemporaryDirectory(prefix="identical-") as folder:
        for seed in range(times):
            request = TricksRequest(
                only=(IDENTICAL.name,),
                sizes=(),
                sweep=False,
                margin=None,
                alpha=None,
                budget_s=_BUDGET_S,
                ledger=Path(folder) / "ledger",
                seed=seed,
            )
            (found,) = run_tricks(request, project=project, progress=Quiet()).results
            answers[found.answer] += 1
            print(f"{seed + 1} of {times}: {found.answer}, {bounds_text(found)}", flush=True)
    print(", ".join(f"{answer}: {count}" for answer, count in answers.most_common()))
    if answers["helps"] or answers["hurts"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
