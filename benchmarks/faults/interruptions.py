"""Interrupts every command at random moments on a real terminal, and checks what is left of it.

``make faults`` runs it at length, and it continues where it stopped. ``--report`` writes the sums into a file
and a table of the document.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import git
import msgspec
import signals
from journal import Journal, replace_table
from ledger_files import add_run
from repositories import Repository, create_repository
from signals import (
    ANSWERS,
    COMPACT,
    FILES,
    FIXED,
    GATE,
    KILOBYTE,
    KINDS,
    LIMIT_S,
    PYTEST,
    SIDES,
    TESTS,
    Case,
    Copied,
    Kind,
    Terminal,
    Usual,
    Verb,
    interrupt_once,
)

RESULTS = Path(__file__).with_name("results.json")
DOCUMENT = Path(__file__).parents[2] / "docs/measured/reliability.md"
_CHECK = ("ledger", "check")
# A step is a turn of the loop of ``TRAINING``.
STEPS = ("--step-at", "training.py:5")
_AGAIN = 0.15
VERBS = (
    PYTEST,
    GATE,
    COMPACT,
    Verb(
        name="gate --target",
        arguments=("gate", *SIDES, "--target", "work:steady", "--budget", "15"),
        answers=ANSWERS,
    ),
    Verb(name="check", arguments=("check", "--base", "HEAD~1", "--budget", "15"), answers=ANSWERS),
    Verb(name="gate --exact-only", arguments=("gate", *SIDES, *TESTS, "--exact-only")),
    Verb(name="gate --plan", arguments=("gate", *SIDES, *TESTS, "--plan")),
    Verb(name="profile", arguments=("profile", "training:main", *STEPS, "--out", "third.stat")),
    Verb(name="explain", arguments=("explain", "first.stat", "second.stat")),
    Verb(name="explain commits", arguments=("explain", "HEAD~1", "HEAD", "--target", "training:main")),
    Verb(
        name="bisect",
        arguments=("bisect", "HEAD~2", "HEAD", "--benchmark", "test_a", "--budget", "6"),
        answers=ANSWERS,
    ),
    Verb(name="backfill", arguments=("backfill", "HEAD~1", "HEAD", *TESTS, "--launches", "2", "--again")),
    Verb(
        name="calibrate",
        arguments=("calibrate", *TESTS, "--gates", "1", "--plant", "90%", "--budget", "5"),
        answers=ANSWERS,
    ),
    Verb(name="experiment", arguments=("experiment", "run", "experiment.toml"), answers=ANSWERS),
    Verb(name="tricks", arguments=("tricks", "--only", "item_per_step", "--budget", "8"), answers=ANSWERS),
    Verb(name="compare", arguments=("compare", "HEAD~1", "HEAD")),
    Verb(name="log", arguments=("log",)),
    Verb(name="history", arguments=("history",)),
    Verb(name="report", arguments=("report", "--out", "site")),
    Verb(name="show", arguments=("show", "first.stat")),
    Verb(name="doctor", arguments=("doctor", "--seconds", "1")),
    Verb(name="init", arguments=("init", "--yes"), folder="fresh", after=()),
    Verb(name="comment", arguments=("comment", "--from", "gate.json", "--github-summary")),
    Verb(name="accept", arguments=("accept", "test_a", "--reason", "wanted")),
    Verb(name="ledger list", arguments=("ledger", "list")),
    Verb(name="ledger check", arguments=_CHECK),
    Verb(
        name="ledger check --fix",
        arguments=("ledger", "check", "--fix", "--ledger", "../damaged"),
        after=(
            ("ledger", "check", "--fix", "--ledger", "../damaged"),
            ("ledger", "check", "--ledger", "../damaged"),
        ),
    ),
    Verb(name="ledger merge", arguments=("ledger", "merge", "../other")),
    Verb(name="ledger import", arguments=("ledger", "import", "session.json")),
    Verb(name="ledger export", arguments=("ledger", "export", "--format", "csv")),
    Verb(name="ledger sync", arguments=("ledger", "sync", "--branch", "measured")),
    Verb(name="engine check", arguments=("engine", "check", "dask://127.0.0.1:9"), after=()),
)


def make_template(folder: Path) -> Path:
    """Make a repository in which every command finds what it needs."""
    scene = signals.make_template(folder)
    for number in range(30, 40):
        add_run(scene.folder / "other", number)
        add_run(scene.folder / "damaged", number)
    damaged = min((scene.folder / "damaged").glob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-KILOBYTE])
    fresh = scene.folder / "fresh"
    fresh.mkdir()
    Repository(fresh, create_repository(fresh)).commit(
        {
            "pyproject.toml": '[project]\nname = "fresh"\nversion = "1"\n',
            "fresh/__init__.py": "",
            "fresh/work.py": FILES["work.py"],
        }
    )
    git.Repo.init(scene.folder / "remote.git", bare=True)
    scene.repository.git.create_remote("origin", "../remote.git")
    for arguments in (
        (*PYTEST.arguments, "--benchmark-json=session.json"),
        ("gate", *SIDES, *TESTS, "--budget", "15", "--json", "gate.json"),
        ("backfill", "HEAD~1", "HEAD", *TESTS, "--launches", "1"),
        ("profile", "training:main", *STEPS, "--out", "first.stat"),
        ("profile", "training:main", *STEPS, "--out", "second.stat"),
        ("ledger", "sync", "--branch", "measured"),
    ):
        process = scene.start(arguments)
        if process.wait(LIMIT_S) not in (0, 1, 3):
            raise RuntimeError(f"{arguments}: {scene.printed()[-5:]}")
    return folder


def usual_of(verb: Verb, template: Path, folder: Path) -> Usual:
    """Run a command to its end, twice, and return what is usual for it: the outputs come through pipes."""
    found = {}
    outputs: tuple[Literal["stdout", "stderr"], ...] = ("stdout", "stderr")
    for output in outputs:
        terminal = Terminal(Copied(folder / output, template), verb, pipe=output)
        try:
            terminal.read(LIMIT_S)
            found[output] = terminal.piped
            seconds, code = time.monotonic() - terminal.begun, terminal.process.poll()
        finally:
            terminal.close()
    if code is None or code not in (0, 1, 2, 3, 4):
        raise RuntimeError(f"{verb.name} ends with {code}: {terminal.output[-1000:]}")
    return Usual(seconds=round(seconds, 3), code=code, **found)


def draw(verb: Verb, kind: Kind, number: int, usual: Usual) -> dict[str, Any]:
    """Return the moment of a case, and whether the command is run again after it."""
    lot = random.Random(f"{verb.name} {kind} {number}")  # noqa: S311 (moments, not secrets)
    most = {"closed stdout": usual.stdout, "closed stderr": usual.stderr}.get(kind, usual.seconds)
    return {"at": lot.uniform(0.0, most), "again": lot.random() < _AGAIN}


@dataclass
class _Study:
    """The cases of a study: what is done, and where what all of them begin with is kept."""

    folder: Path
    journal: Journal[Case]
    _usual: dict[str, Usual] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def template(self) -> Path:
        return self.folder / "signals-template"

    def prepare(self, verbs: Sequence[Verb]) -> None:
        """Make what is missing of the template, and learn how long each command takes."""
        if not self.template.exists():
            making = self.folder / "signals-template-in-the-making"
            shutil.rmtree(making, ignore_errors=True)
            make_template(making).rename(self.template)
        for verb in verbs:
            known = self.folder / f"signals {verb.name}.json"
            if not known.exists():
                with tempfile.TemporaryDirectory(prefix="faults-") as place:
                    usual = usual_of(verb, self.template, Path(place).resolve())
                known.write_bytes(msgspec.json.encode(usual))
                print(f"{verb.name}: {usual}", flush=True)
            self._usual[verb.name] = msgspec.json.decode(known.read_bytes(), type=Usual)

    def do(self, verb: Verb, kind: Kind, number: int) -> None:
        """Do one case, and keep what came of it."""
        usual = self._usual[verb.name]
        folder = Path(tempfile.mkdtemp(prefix="faults-")).resolve()
        drawn = draw(verb, kind, number, usual)
        case = interrupt_once(verb, kind, self.template, folder, usual=usual, number=number, **drawn)
        with self._turn:
            self.journal.add(case)
            if case.problems:
                print(_line(case, folder), flush=True)
            else:
                shutil.rmtree(folder)


def _line(case: Case, folder: Path) -> str:
    return f"{case.verb}, {case.kind} {case.number} at {case.at}: {'; '.join(case.problems)} ({folder})"


def main() -> int:
    """Do the cases that are not done yet, and print what came of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".faults"), help="keeps the journal")
    parser.add_argument("--cases", type=int, default=20, help="of each kind and command")
    parser.add_argument("--verb", action="append", help="the beginning of a command's name; all by default")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--report", action="store_true", help=f"write {RESULTS.name}, and do nothing else")
    given = parser.parse_args()
    os.environ.update(FIXED)
    given.folder.mkdir(exist_ok=True)
    journal = Journal(file=given.folder / "signals.jsonl", kind=Case)
    if not given.report:
        verbs = [verb for verb in VERBS if given.verb is None or verb.name.startswith(tuple(given.verb))]
        done = {(one.verb, one.kind, one.number) for one in journal.outcomes()}
        study = _Study(folder=given.folder.resolve(), journal=journal)
        study.prepare(verbs)
        # Who is cut off has some of each.
        wanted = [
            (verb, KINDS[(place + turn) % len(KINDS)], number)
            for number in range(given.cases)
            for turn in range(len(KINDS))
            for place, verb in enumerate(verbs)
        ]
        with ThreadPoolExecutor(given.at_once) as at_once:
            left = [one for one in wanted if (one[0].name, one[1], one[2]) not in done]
            for _ in at_once.map(lambda one: study.do(*one), left):
                pass
    return _report(journal.outcomes(), write=given.report)


def _report(cases: Sequence[Case], *, write: bool) -> int:
    parts: dict[str, dict[str, int]] = {}
    for verb in VERBS:
        mine = [case for case in cases if case.verb == verb.name]
        parts[verb.name] = {
            **{kind: sum(case.kind == kind for case in mine) for kind in KINDS},
            "reached": sum(case.reached for case in mine),
            "bad": sum(bool(case.problems) for case in mine),
        }
        print(f"{verb.name}: {', '.join(f'{what} {number}' for what, number in parts[verb.name].items())}")
    if write:
        about = {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "machine": f"{platform.system()} {platform.machine()}",
        }
        found = {**about, "parts": parts}
        RESULTS.write_text(json.dumps({**json.loads(RESULTS.read_text()), "signals": found}, indent=1) + "\n")
        replace_table(DOCUMENT, "signals", signals_table(found))
    return int(any(case.problems for case in cases))


def signals_table(found: Mapping[str, Any]) -> str:
    """Return the results of all commands together as a table in Markdown."""
    parts = found["parts"].values()
    cells = [sum(part[key] for part in parts) for key in (*KINDS, "reached", "bad")]
    lines = [
        f"| commands | {' | '.join(KINDS)} | still ran | with a problem |",
        f"| ---: |{' ---: |' * len(cells)}",
        f"| {len(parts)} | {' | '.join(map(str, cells))} |",
    ]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
