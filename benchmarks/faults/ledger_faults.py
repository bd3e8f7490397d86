"""Tries the ledger at length: kills and failures at drawn system calls, damage, writers at once, a soak.

``make faults`` runs it after the kills of whole commands. What is done is kept in a journal, a line a case:
it goes on where it stood. ``--report`` puts the sums into a file and into a table of the document.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calls import CHANGES, Plan
from damage import damaged_once
from journal import Journal, replace_table
from repositories import long_history
from soak import soak, soak_launches
from steps import FAILURES, STEPS, Failure, Step, calls_of, do, problems_after, scene_of
from writers import write_at_once

from perfkit.repo.commits import read_commit

RESULTS = Path(__file__).with_name("results.json")
DOCUMENT = Path(__file__).parents[2] / "docs/measured/reliability.md"
_KILLS = 500
_FLIPS = 1000
# Reads are many and much alike: of a failure's places in one step so many are drawn.
_PLACES = 12
_ANOTHER_KILL = 0.25
_TORN = 0.5
_COUNTS = ("cases", "reached", "bad")
# So many states of the ledger are drawn for each step.
_SCENES = 12
_LOOKS = 7
_LONGEST_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Case:
    """What came of one case; all is well without ``problems``. ``reached`` if the fault came at all."""

    part: str
    number: int
    reached: bool = True
    problems: tuple[str, ...] = ()
    facts: Mapping[str, float] = field(default_factory=dict)


def kill_drawn(step: Step, number: int, folder: Path) -> Case:
    """Kill a step at a drawn call, now and then the next one too, and see what is left to be desired."""
    lot = random.Random(f"kill {step.name} {number}")  # noqa: S311 (places, not secrets)
    seed = number % _SCENES
    calls = sum(call.kind in CHANGES for call in calls_of(step, seed))
    scene = scene_of(step, folder / "killed", seed)
    plan = Plan(kill_at=lot.randint(1, calls), torn=lot.random() if lot.random() < _TORN else None)
    ended = do(step, scene, plan)
    if lot.random() < _ANOTHER_KILL:
        do(step, scene, Plan(kill_at=lot.randint(1, calls)))
    problems = tuple(problems_after(step, scene, ended))
    return Case(part=f"kill {step.name}", number=number, reached=ended.killed, problems=problems)


def fail_drawn(step: Step, failure: Failure, number: int, folder: Path) -> Case:
    """Let calls of a step fail from a drawn one on, and see what is left to be desired."""
    lot = random.Random(f"{failure.name} {step.name} {number}")  # noqa: S311 (places, not secrets)
    seed = number % _SCENES
    places = sum(map(failure.plan.meant, calls_of(step, seed))) or 1
    scene = scene_of(step, folder / "failed", seed)
    ended = do(step, scene, replace(failure.plan, first=lot.randint(1, places)))
    problems = tuple(problems_after(step, scene, ended, passes=failure.passes))
    reached = bool(ended.failed or failure.plan.delay_s)
    return Case(part=f"{failure.name}: {step.name}", number=number, reached=reached, problems=problems)


def _parts(kills: int) -> Iterator[tuple[str, int, Callable[[int, Path], Case]]]:
    """Yield each part, how many cases it has, and what does one."""
    for step in STEPS:
        yield f"kill {step.name}", kills, lambda number, folder, step=step: kill_drawn(step, number, folder)  # type: ignore[misc]
    yield "damage", _FLIPS, lambda number, folder: _case("damage", number, damaged_once(number, folder))
    for failure in FAILURES:
        for step in STEPS:
            yield (
                f"{failure.name}: {step.name}",
                1 if failure.passes else _PLACES,
                lambda number, folder, step=step, failure=failure: fail_drawn(step, failure, number, folder),  # type: ignore[misc]
            )
    for store in (False, True):
        name = "writers on a store" if store else "writers in a folder"
        yield (
            name,
            1,
            lambda number, folder, store=store, name=name: _case(  # type: ignore[misc]
                name, number, write_at_once(folder, writers=8, runs=200, store=store)
            ),
        )
    yield (
        "HEAD of 50,000 commits",
        1,
        lambda number, folder: _case("HEAD of 50,000 commits", number, head_of_many(folder, commits=50_000)),
    )
    yield "soak", 1, lambda number, folder: _case("soak", number, soak(folder, runs=10_000))
    yield (
        "soak of launches",
        1,
        lambda number, folder: _case("soak of launches", number, soak_launches(folder, launches=1_000)),
    )


def _case(part: str, number: int, found: tuple[Sequence[str], Mapping[str, float]]) -> Case:
    return Case(part=part, number=number, problems=tuple(found[0]), facts=found[1])


def main() -> int:
    """Do the cases that are not done yet, and print what came of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".faults"), help="keeps the journal")
    parser.add_argument("--kills", type=int, default=_KILLS, help="of each step")
    parser.add_argument("--part", action="append", help="the beginning of a part's name; all by default")
    parser.add_argument("--report", action="store_true", help=f"write {RESULTS.name}, and do nothing else")
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    journal = Journal(file=given.folder / "ledger.jsonl", kind=Case)
    if not given.report:
        chosen = [
            one for one in _parts(given.kills) if given.part is None or one[0].startswith(tuple(given.part))
        ]
        done = {(one.part, one.number) for one in journal.outcomes()}
        # Who is cut off has some of each part.
        for number in range(max(cases for _, cases, _ in chosen)):
            for part, cases, work in chosen:
                if number < cases and (part, number) not in done:
                    _do(journal, number, work)
    return _report(journal.outcomes(), write=given.report)


def _do(journal: Journal[Case], number: int, work: Callable[[int, Path], Case]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    case = work(number, folder)
    journal.add(case)
    if case.problems:
        print(f"{case.part} {number}: {'; '.join(case.problems)} ({folder})", flush=True)
    else:
        shutil.rmtree(folder)


def _report(cases: Sequence[Case], *, write: bool) -> int:
    found: dict[str, dict[str, Any]] = defaultdict(lambda: {"cases": 0, "reached": 0, "bad": 0})
    for case in cases:
        part = found[case.part]
        part["cases"] += 1
        part["reached"] += case.reached
        part["bad"] += bool(case.problems)
        part.update(case.facts)
    for name, part in found.items():
        print(f"{name}: {', '.join(f'{what} {number}' for what, number in part.items())}")
    if write:
        about = {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": f"{platform.system()} {platform.machine()}",
        }
        # What other studies found stands beside it, under keys of its own.
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results = {**known, **about, "parts": found}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        replace_table(DOCUMENT, "study", table_of(results))
    return int(any(case.problems for case in cases))


def seconds_for_head(folder: Path) -> float:
    """Return the least of some times that it takes to find which commit is checked out, and what differs."""
    times = []
    for _ in range(_LOOKS):
        begun = time.perf_counter()
        read_commit(folder)
        times.append(time.perf_counter() - begun)
    return min(times)


def head_of_many(folder: Path, *, commits: int) -> tuple[Sequence[str], Mapping[str, float]]:
    """Look for HEAD among so many commits; return what is left to be desired, and how long it took."""
    long_history(folder, commits=commits)
    seconds = seconds_for_head(folder)
    problems = [f"HEAD took {seconds:.2f} s"] if seconds > _LONGEST_S else []
    return problems, {"commits": commits, "head_s": round(seconds, 3)}


def table_of(results: Mapping[str, Any]) -> str:
    """Return the results as a table in Markdown: a line a part, all steps that a failure met together."""
    together: dict[str, dict[str, Any]] = {}
    for name, part in results["parts"].items():
        failure, _, step = name.partition(": ")
        known = together.setdefault(f"{failure}, each step" if step else name, dict.fromkeys(_COUNTS, 0))
        known.update({what: known.get(what, 0) + amount for what, amount in part.items()})
    # Parts that follow one another with equal counts and without figures share a line.
    shared: list[tuple[list[str], tuple[Any, ...], str]] = []
    for name, part in together.items():
        facts = ", ".join(f"{what} {value:g}" for what, value in part.items() if what not in _COUNTS)
        counts = tuple(part[what] for what in _COUNTS)
        if shared and not facts and shared[-1][1:] == (counts, ""):
            shared[-1][0].append(name)
        else:
            shared.append(([name], counts, facts))
    lines = ["| part | cases | reached | problems | figures |", "| :--- | ---: | ---: | ---: | :--- |"]
    for names, (cases, *others), facts in shared:
        each = f"{cases} each" if len(names) > 1 else cases
        lines.append(f"| {'; '.join(names)} | {each} | {' | '.join(map(str, others))} | {facts} |")
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    raise SystemExit(main())
