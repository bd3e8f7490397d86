"""Bisects real ranges of 64 commits, each by the real command, and keeps what came out: ``real.py``.

A small training module is committed 64 times, as texts, tools and losses change; one of these commits, drawn
by lot, adds an operation to a loss. Ten ranges are searched by time: the operation takes about 10 % of a step
in five of them, and about 5 % in the other five. Twenty are searched by counts: an operator, a host sync or
an allocation more. Each search adds a line to ``real.jsonl`` beside this file; those that are there already
are not made again, and the table in ``docs/measured/bisect.md`` is made of all of them. It exits with 1 where
another commit than that one was named, or none.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import bisect_study
from bisect_tables import read_real, render
from bisected import NODE, SYNC, TENTH, history

KEPT = Path(__file__).with_name("real.jsonl")
_COMMITS = 64
# With so many layers a step is about 10 and 5 times as long as an operation of the loss.
_LAYERS = {"+10 %": 8, "+5 %": 18}
_ALLOCATION = "    total = total + torch.zeros(64, 64)[0, 0]"
# Each count with the work that moves it.
_COUNTS = {"operators": TENTH, "syncs": SYNC, "allocated": _ALLOCATION}
_TIMED, _COUNTED = 10, 20


@dataclass(frozen=True, kw_only=True)
class Case:
    """One search: its seed, the metric, what was added, and the place of the commit that added it."""

    number: int
    metric: str
    kind: str
    work: str
    layers: int
    place: int


def cases() -> list[Case]:
    """Return all searches; the places are drawn from a fixed seed."""
    places = random.Random(20261125)  # noqa: S311 (an experiment's lot, not a secret)
    found = []
    for number in range(_TIMED + _COUNTED):
        if number < _TIMED:
            kind = list(_LAYERS)[number % len(_LAYERS)]
            metric, work, layers = "time", TENTH, _LAYERS[kind]
        else:
            metric = kind = list(_COUNTS)[number % len(_COUNTS)]
            work, layers = _COUNTS[metric], 8
        place = places.randint(1, _COMMITS)
        found.append(Case(number=number, metric=metric, kind=kind, work=work, layers=layers, place=place))
    return found


def search(case: Case, folder: Path) -> dict[str, object]:
    """Make the range, search it by the command, and return what that printed and how long it took."""
    project, shas = history(folder, commits=_COMMITS, changed=case.place, work=case.work, layers=case.layers)
    command = [sys.executable, "-m", "perfkit", "bisect", shas[0], shas[-1], "--benchmark", NODE]
    command += ["--metric", case.metric, "--json", "-", "--ledger", str(folder / "ledger")]
    begun = time.monotonic()
    done = subprocess.run(
        command,
        cwd=project.root,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - begun
    if done.returncode not in (0, 3):
        sys.exit(f"{done.stdout}\n{done.stderr}")
    report = json.loads(done.stdout)
    named = [[one["commit"]["sha"] for one in step["suspects"]] for step in report["steps"]]
    return {
        **asdict(case),
        "seconds": round(seconds, 1),
        "answer": report["answer"],
        "exact": named == [[shas[case.place]]],
        "largest_exact": named[:1] == [[shas[case.place]]],
        "steps": [
            {name: step[name] for name in ("ratio", "low", "high", "probability")} for step in report["steps"]
        ],
        "measured": report["measured"],
        "launches": report["launches"],
    }


def main() -> None:
    """Make the searches that are missing, and print how many named the commit."""
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    for case in cases()[len(lines) :]:
        with tempfile.TemporaryDirectory(prefix="bisected-") as folder:
            lines.append(json.dumps(search(case, Path(folder))))
        KEPT.write_text("\n".join(lines) + "\n")
        print(lines[-1], flush=True)
    document = bisect_study.DOCUMENT
    outcomes = json.loads(bisect_study.OUTCOMES.read_text())
    found = read_real(KEPT.parent)
    document.write_text(render(document.read_text(), outcomes, found))
    right = sum(one["exact"] for one in found)
    print(f"{right} of {len(found)} searches named the commit, and no other")
    if right < len(found):
        sys.exit(1)


if __name__ == "__main__":
    main()
