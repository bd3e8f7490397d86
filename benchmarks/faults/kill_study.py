"""Kills perfkit's commands at random moments and checks what the next command makes of it.

``make faults`` runs it at length; it continues where it stopped.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from journal import Journal
from kills import KINDS, LIMIT_S, Kind, Moment, Outcome, Scene, after, first_moment, kill_once

_ANYWHERE = 0.5
_AGAIN = 0.25
_STOPPED_FIRST = 0.33


def after_beginning(kind: Kind, seconds: float) -> Moment:
    """Return the moment so many seconds after there is something to lose."""

    def wait(scene: Scene, process: subprocess.Popen[bytes]) -> None:
        first_moment(kind)(scene, process)
        after(seconds)(scene, process)

    return wait


def _typical_s(kind: Kind, folder: Path) -> float:
    """Return how long a command takes; known ones are kept beside the journal."""
    known = folder / f"{kind.name}.seconds"
    if not known.exists():
        with tempfile.TemporaryDirectory(prefix="faults-") as place:
            scene = Scene(Path(place).resolve())
            scene.commit(kind)
            begun = time.monotonic()
            scene.start(kind.killed).wait(LIMIT_S)
            known.write_text(f"{time.monotonic() - begun}")
    return float(known.read_text())


def _draw(kind: Kind, number: int, seed: int, typical_s: float) -> dict[str, Any]:
    lot = random.Random(f"{seed} {kind.name} {number}")  # noqa: S311 (moments, not secrets)
    share = lot.uniform(0.0, 1.0) * typical_s
    # Every other one falls where there is something to lose.
    moment = after(share) if lot.random() < _ANYWHERE else after_beginning(kind, share / 2)
    stop = lot.random() < _STOPPED_FIRST
    again = lot.uniform(0.0, 8.0) if lot.random() < _AGAIN else None
    return {"moment": moment, "stop": stop, "again": again}


def main() -> int:
    """Make the kills that are not made yet, and print what came of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=25, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(".faults"), help="keeps the journal")
    parser.add_argument("--kind", choices=[kind.name for kind in KINDS], action="append")
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    journal = Journal(file=given.folder / "journal.jsonl", kind=Outcome)
    kinds = [kind for kind in KINDS if given.kind is None or kind.name in given.kind]
    for number in range(given.kills):
        for kind in kinds:
            done = {(one.kind, one.number, one.seed) for one in journal.outcomes()}
            if (kind.name, number, given.seed) not in done:
                drawn = _draw(kind, number, given.seed, _typical_s(kind, given.folder))
                place = Path(tempfile.mkdtemp(prefix="faults-")).resolve()
                outcome = kill_once(kind, place, number=number, seed=given.seed, **drawn)
                journal.add(outcome)
                print(_line(outcome), flush=True)
                if not outcome.problems:
                    shutil.rmtree(place)
    return _report(journal.outcomes())


def _line(outcome: Outcome) -> str:
    found = "; ".join(outcome.problems) or "well"
    return f"{outcome.kind} {outcome.number} after {outcome.after_s} s, {outcome.staged} rows staged: {found}"


def _report(outcomes: Sequence[Outcome]) -> int:
    for kind in KINDS:
        mine = [one for one in outcomes if one.kind == kind.name]
        staged = sum(bool(one.staged) for one in mine)
        bad = sum(bool(one.problems) for one in mine)
        print(f"{kind.name}: {len(mine)} kills, {staged} of them with rows staged; {bad} with problems")
    return int(any(one.problems for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
