"""Flips a bit of a ledger's file, or cuts it short, and looks at who is taken in by it."""

from __future__ import annotations

import atexit
import functools
import hashlib
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from killing import kill_after
from ledger_files import add_runs
from steps import rows_in, rows_seen
from synthetic import START, build_row

from perfkit.errors import LedgerError
from perfkit.ledger import queries as queries_module
from perfkit.ledger.annotations import ACCEPTANCES, NOTES, KeptAcceptance, Note, add_note, keep_acceptance
from perfkit.ledger.maintenance import compact, repair
from perfkit.ledger.queries import INDEX_FOLDER
from perfkit.ledger.soundness import verify
from perfkit.ledger.store import Ledger

Result = TypeVar("Result")

_CUT = 0.2
_FEWEST = 3


def ledger_of_all_kinds(ledger: Path) -> list[Path]:
    """Make a ledger with a file of each kind, and return these.

    They are a run, a compacted file, a run that is staged still, a part of the index, a note and an
    acceptance.
    """
    add_runs(ledger, range(3), month=1)
    compact(ledger, before=None)
    (compacted,) = ledger.glob("*-and-*")
    runs = add_runs(ledger, range(10, 13))
    note = add_note(ledger, Note(commit="a" * 40, text="Cache the distances", recorded_at=START))
    acceptance = keep_acceptance(
        ledger,
        KeptAcceptance(
            benchmark="benchmarks/bench_a.py::test_a",
            verdict="REGRESSED",
            ratio=1.25,
            reason="It is more exact now.",
            author="A Tester",
            commit="a" * 40,
            run_id="run-1",
            recorded_at=START,
        ),
    )
    with_few_for_an_index(lambda: [Ledger(ledger).runs() for _ in range(2)])
    (part,) = (ledger / INDEX_FOLDER).glob("*.parquet")

    def stage() -> None:
        run = Ledger(ledger).run(source="gate", run_id="staged-run", recorded_at=START)
        for launch in range(3):
            run.add([build_row(0.25, run="staged-run", launch=launch, source="gate")])

    kill_after(stage)
    (staged,) = ledger.glob(".staged/*.jsonl")
    return [runs[1], compacted, staged, part, note, acceptance]


def with_few_for_an_index(ask: Callable[[], Result]) -> Result:
    """Ask something where a few files are enough for an index."""
    settings = vars(queries_module)
    kept = settings["FEWEST_FILES"]
    settings["FEWEST_FILES"] = _FEWEST
    try:
        return ask()
    finally:
        settings["FEWEST_FILES"] = kept


@functools.cache
def _template() -> tuple[Path, tuple[str, ...]]:
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    atexit.register(shutil.rmtree, folder)
    files = ledger_of_all_kinds(folder / "ledger")
    return folder / "ledger", tuple(str(file.relative_to(folder / "ledger")) for file in files)


def damaged_once(number: int, folder: Path) -> tuple[Sequence[str], Mapping[str, float]]:
    """Damage one file of a ledger at a place that the number draws; return what is left to be desired."""
    template, names = _template()
    ledger = folder / "ledger"
    shutil.copytree(template, ledger)
    lot = random.Random(number)  # noqa: S311 (places, not secrets)
    name = names[number % len(names)]
    content = (ledger / name).read_bytes()
    is_cut = lot.random() < _CUT
    if is_cut:
        hurt = content[: lot.randrange(len(content))]
    else:
        place = lot.randrange(len(content))
        hurt = content[:place] + bytes([content[place] ^ 1 << lot.randrange(8)]) + content[place + 1 :]
    (ledger / name).write_bytes(hurt)
    what = f"{name} {'cut' if is_cut else 'flipped'}"
    found = [
        *_of_verify(ledger, name, is_cut=is_cut),
        *_of_readers(ledger, name),
        *_of_repair(ledger, name, hurt),
    ]
    return tuple(f"{what}: {problem}" for problem in found), {}


def _is_staged(name: str) -> bool:
    return name.startswith(".staged/")


def _of_verify(ledger: Path, name: str, *, is_cut: bool) -> Iterator[str]:
    found, _ = verify(ledger)
    problem = {one.file: one for one in found.problems}.get(name)
    # Nobody can distinguish a staged file that was cut short from one whose process was killed there.
    shown = problem is not None and (problem.kind != "staged" or is_cut or "damaged line" in problem.what)
    if not shown and not (_is_staged(name) and is_cut):
        yield f"it is not named, but {found.problems}"
    others = {one.file for one in found.problems} - {name}
    yield from (f"accused: {other}" for other in others if not _is_staged(other))
    if not _is_staged(name) and found.exit_code != 4:
        yield f"exit code {found.exit_code}"


def _of_readers(ledger: Path, name: str) -> Iterator[str]:
    """Yield who is taken in: readers answer rightly, or name in one line what is wrong."""
    template, _ = _template()
    try:
        runs = with_few_for_an_index(lambda: Ledger(ledger).runs())
    except LedgerError as error:
        if Path(name).name not in str(error):
            yield f"a reader reports {error}"
    else:
        # What the index has of a file was read when that was sound.
        if with_few_for_an_index(lambda: Ledger(template).runs()) != runs:
            yield "a reader gives another answer"
    for kind in (NOTES, ACCEPTANCES):
        try:
            kind.read(ledger)
        except LedgerError as error:
            if Path(name).name not in str(error):
                yield f"a reader reports {error}"
        else:
            if name.startswith(kind.folder):
                yield "a statement that was changed is believed"


def _of_repair(ledger: Path, name: str, hurt: bytes) -> Iterator[str]:
    repair(ledger)
    left = verify(ledger)[0].problems
    # A staged file of a newer perfkit, as it seems to be, waits for one.
    yield from (f"after a repair: {one.kind} {one.file}" for one in left if one.kind != "newer")
    template, _ = _template()
    before = rows_seen(template)
    seen = rows_seen(ledger)
    yield from (f"seen {times} times: {key}" for key, times in seen.items() if times > 1)
    if name.endswith(".parquet") and "/" not in name:
        lost = {key for key in before if key not in seen}
        held = set(rows_in(template / name))
        yield from (f"lost beside it: {key}" for key in lost - held)
    else:
        yield from (f"lost: {key}" for key in before if key not in seen)
    kept = {hashlib.sha256(file.read_bytes()).digest() for file in ledger.rglob("*") if file.is_file()}
    # A part of the index was made anew, with its own bytes, by the question before.
    if not name.startswith((".staged", INDEX_FOLDER)) and hashlib.sha256(hurt).digest() not in kept:
        yield "its bytes were deleted"
