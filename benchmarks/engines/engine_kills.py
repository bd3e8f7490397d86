"""Kills workers and schedulers of a real cluster at moments drawn by lot, and counts what is filed then.

``make engine-faults`` runs it at length; it goes on where it stood.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from cluster import Cluster, Pile, cluster, kill, recorded, simulated_tasks

from perfkit.commands.tasks import Task, run_of
from perfkit.errors import NotMeasuredError
from perfkit.features.cluster.dask import DaskEngine
from perfkit.ledger.store import Ledger

_TASKS = 6
_SECONDS = 0.3
_WORKERS = 2
# Six tasks of two workers take about so long, with the start of their processes.
_SPAN_S = 8.0
_MOST_COMMANDS = 5
_ROWS = 3


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One kill: after how many seconds, how many commands it took until all was filed, and what was wrong."""

    kind: str
    number: int
    seed: int
    after_s: float
    filed_before: int
    commands: int
    lost_shown: int
    problems: tuple[str, ...]


def kill_once(kind: str, made: Cluster, folder: Path, *, number: int, seed: int) -> Outcome:
    """Kill a worker or the scheduler while tasks are done, and repeat the command until it ends well."""
    lot = random.Random(f"{seed} {kind} {number}")  # noqa: S311 (moments, not secrets)
    after_s = lot.uniform(0.0, _SPAN_S)
    ledger = folder / f"{kind}-{number}"
    tasks = simulated_tasks(_TASKS, seconds=_SECONDS)
    logged: list[str] = []
    before: list[int] = []

    def strike() -> None:
        time.sleep(after_s)
        before.append(len(list(ledger.glob("*.parquet"))))
        if kind == "scheduler":
            made.kill_scheduler()
        else:
            victim = made.workers.pop(lot.randrange(len(made.workers)))
            kill(victim)

    killer = threading.Thread(target=strike)
    killer.start()
    commands, failures = 0, ["never ended"]
    while failures and commands < _MOST_COMMANDS:
        commands += 1
        failures = _command(made, tasks, ledger, logged)
        if commands == 1:
            killer.join()
        _mend(made, kind)
    lost = sum("is lost" in line for line in logged)
    problems = (*failures, *_wrong_rows(tasks, ledger))
    return Outcome(
        kind=kind,
        number=number,
        seed=seed,
        after_s=round(after_s, 2),
        filed_before=before[0],
        commands=commands,
        lost_shown=lost,
        problems=problems,
    )


def _command(made: Cluster, tasks: Sequence[Task], ledger: Path, logged: list[str]) -> list[str]:
    """Do what a command does: the tasks that are not in the ledger; return why it did not end well."""
    known = {row.run_id for row in Ledger(ledger).rows()} if ledger.is_dir() else set()
    rest = [task for task in simulated_tasks(len(tasks), seconds=_SECONDS) if run_of(task) not in known]
    pile = Pile(waiting=rest, ledger=ledger)
    try:
        with DaskEngine(made.url, log=logged.append) as engine:
            engine.classes()
            engine.perform(pile)
    except NotMeasuredError as error:
        logged.append(str(error))
        return [str(error)]
    return pile.failures


def _mend(made: Cluster, kind: str) -> None:
    """Start anew what was killed."""
    if kind == "scheduler" and made.scheduler is not None and made.scheduler.poll() is not None:
        made.start_scheduler()
    while len(made.workers) < _WORKERS:
        made.start_worker()
    made.wait_for_workers(_WORKERS)


def _wrong_rows(tasks: Sequence[Task], ledger: Path) -> list[str]:
    """Return a line for each row that is lost, and for each that is there twice."""
    expected = sorted(
        (run_of(task), task.commits[0], f"simulated[{number}]")
        for task in simulated_tasks(len(tasks), seconds=_SECONDS)
        for number in range(_ROWS)
    )
    found = recorded(ledger)
    lost = [f"lost: {row}" for row in expected if row not in found]
    return lost + [f"twice: {row}" for row in set(found) if found.count(row) > 1]


def main() -> int:
    """Make the kills that are not made yet, and print what came of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=50, help="kills of workers")
    parser.add_argument("--schedulers", type=int, default=10, help="kills of schedulers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(".faults"), help="keeps the journal")
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    journal = given.folder / "engines.jsonl"
    with (
        tempfile.TemporaryDirectory(prefix="engine-faults-") as place,
        cluster(Path(place) / "cluster", workers=_WORKERS) as made,
    ):
        made.wait_for_workers(_WORKERS)
        for kind, count in (("worker", given.workers), ("scheduler", given.schedulers)):
            for number in range(count):
                if (kind, number, given.seed) in {(o.kind, o.number, o.seed) for o in _known(journal)}:
                    continue
                outcome = kill_once(kind, made, Path(place), number=number, seed=given.seed)
                with journal.open("ab") as stream:
                    stream.write(msgspec.json.encode(outcome) + b"\n")
                print(_line(outcome), flush=True)
    return _report(_known(journal))


def _known(journal: Path) -> list[Outcome]:
    lines = journal.read_bytes().splitlines() if journal.exists() else []
    return [msgspec.json.decode(line, type=Outcome) for line in lines]


def _line(one: Outcome) -> str:
    found = "; ".join(one.problems) or "well"
    return (
        f"{one.kind} {one.number} after {one.after_s} s, {one.filed_before} of {_TASKS} filed by then,"
        f" {one.commands} commands: {found}"
    )


def _report(outcomes: Sequence[Outcome]) -> int:
    for kind in ("worker", "scheduler"):
        mine = [one for one in outcomes if one.kind == kind]
        amid = sum(one.filed_before < _TASKS for one in mine)
        hit = sum(one.lost_shown > 0 or one.commands > 1 for one in mine)
        bad = sum(bool(one.problems) for one in mine)
        print(
            f"{kind}s: {len(mine)} kills, {amid} before all was filed, {hit} that the command noticed;"
            f" {bad} with problems"
        )
    return int(any(one.problems for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
