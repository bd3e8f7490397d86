"""The steps that change a ledger, on ledgers drawn by lot, and what must hold however a step ends.

A step is done in a process of its own whose system calls are killed or made to fail (``calls``). What was
recorded before is known beforehand, and what a step acknowledges it writes down outside of the ledger.
"""

from __future__ import annotations

import atexit
import errno
import functools
import hashlib
import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from calls import Call, Ended, Plan, traced
from killing import kill_after
from ledger_files import add_run, run_id
from synthetic import START, build_row

from perfkit.features.exchange.command import ImportRequest, import_files
from perfkit.ledger import queries as queries_module
from perfkit.ledger.annotations import NOTES, Note, add_note
from perfkit.ledger.files import QUARANTINE_FOLDER, STAGED_FOLDER, read_consistently
from perfkit.ledger.maintenance import compact, compact_all, merge, repair, without_runs
from perfkit.ledger.queries import INDEX_FOLDER, read_table
from perfkit.ledger.recording import Run, recover
from perfkit.ledger.schema import from_table
from perfkit.ledger.soundness import verify
from perfkit.ledger.store import Ledger
from perfkit.model import Row

# Run and launch of a row.
Key = tuple[str, int]

_STAGED_RUN = 900
_NEW_RUN = 901
_TWICE_RUN = 902
# What a kill, or a call that failed, may leave behind in a ledger that was sound.
_LEFT = frozenset({"temporary", "staged", "replaced"})


@dataclass
class Scene:
    """A ledger and what is beside it; ``certain`` rows are recorded, ``possible`` ones may come.

    ``hurt`` are the hashes of files that are damaged or foreign, which must not be lost either.
    """

    folder: Path
    certain: set[Key] = field(default_factory=set)
    possible: set[Key] = field(default_factory=set)
    staged: set[Key] = field(default_factory=set)
    hurt: set[str] = field(default_factory=set)

    @property
    def ledger(self) -> Path:
        """The ledger."""
        return self.folder / "ledger"

    @property
    def other(self) -> Path:
        """The ledger, or the folder of files, that a step takes from."""
        return self.folder / "other"

    @property
    def acknowledged(self) -> Path:
        """Where a step writes down what is reported safe."""
        return self.folder / "acknowledged"

    def add(self, number: int, *, month: int = 0, ledger: Path | None = None) -> Path:
        """Record a run beforehand; one of the other ledger may come."""
        file = add_run(ledger or self.ledger, number, month=month)
        (self.certain if ledger is None else self.possible).update((run_id(number), one) for one in range(2))
        return file

    def acknowledge(self, keys: set[Key]) -> None:
        """Write down, in the process of the step, that rows are safe."""
        with self.acknowledged.open("a") as stream:
            stream.writelines(json.dumps(key) + "\n" for key in sorted(keys))

    def acknowledged_rows(self) -> set[Key]:
        """Return what was written down."""
        if not self.acknowledged.exists():
            return set()
        return {(run, launch) for run, launch in map(json.loads, self.acknowledged.read_text().splitlines())}


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step: what there is before it, and what it does; it can be done again."""

    name: str
    prepare: Callable[[Scene, random.Random], None]
    work: Callable[[Scene], None]
    unsound: bool = False


def rows_seen(ledger: Path) -> Counter[Key]:
    """Return how often a reader sees each row, from reading all files whole."""

    def read(files: object) -> Counter[Key]:
        assert isinstance(files, dict)
        tables = (without_runs(read_table(file), ends) for file, ends in files.items())
        return Counter((row.run_id, row.placement.launch) for table in tables for row in from_table(table))

    return read_consistently(ledger, read)


def rows_in(file: Path) -> set[Key]:
    """Return the rows that one file holds."""
    return {(row.run_id, row.placement.launch) for row in from_table(read_table(file))}


def _some_runs(scene: Scene, lot: random.Random) -> None:
    """Record a few runs in up to three months, and compact them in part."""
    months = lot.randint(1, 3)
    for number in range(lot.randint(2, 6)):
        scene.add(number, month=number % months)
    if lot.random() < 0.5:
        compact(scene.ledger, before="2026-02" if lot.random() < 0.5 else None)
        scene.add(10, month=lot.randrange(months))
        scene.add(11, month=lot.randrange(months))


def _new_rows(number: int, launches: range) -> list[Row]:
    run = run_id(number)
    return [build_row(0.25, 0.5, run=run, minute=number, launch=one, source="gate") for one in launches]


def _begin(scene: Scene, number: int) -> Run:
    rows = _new_rows(number, range(1))
    return Ledger(scene.ledger).run(
        source="gate", run_id=run_id(number), recorded_at=rows[0].recorded_at.replace(microsecond=0)
    )


def _keys(rows: list[Row]) -> set[Key]:
    return {(row.run_id, row.placement.launch) for row in rows}


def _prepare_record(scene: Scene, lot: random.Random) -> None:
    _some_runs(scene, lot)
    scene.possible |= {(run_id(_NEW_RUN), launch) for launch in range(6)}


def _record(scene: Scene) -> None:
    """Recover what was cut off, as each command does, and record a run batch by batch."""
    recover(scene.ledger)
    if any(run == run_id(_NEW_RUN) for run, _ in rows_seen(scene.ledger)):
        return
    with _begin(scene, _NEW_RUN) as run:
        for first in (0, 1, 3):
            rows = _new_rows(_NEW_RUN, range(first, first * 2 or 1))
            run.add(rows)
            scene.acknowledge(_keys(rows))
        run.publish()


def _prepare_publish(scene: Scene, lot: random.Random) -> None:
    """Leave a run behind that was cut off."""
    _some_runs(scene, lot)
    count = lot.randint(1, 5)

    def work() -> None:
        run = _begin(scene, _STAGED_RUN)
        for launch in range(count):
            run.add(_new_rows(_STAGED_RUN, range(launch, launch + 1)))

    kill_after(work)
    scene.staged = {(run_id(_STAGED_RUN), launch) for launch in range(count)}
    scene.possible |= scene.staged


def _publish(scene: Scene) -> None:
    """Go on with the run where it stood, and publish it."""
    run = Run.resume(scene.ledger, folder=scene.ledger / STAGED_FOLDER)
    if run is not None:
        with run:
            run.publish()
    scene.acknowledge(scene.staged)


def _recover(scene: Scene) -> None:
    for one in recover(scene.ledger):
        if one.file is None:
            # A command prints this line and goes on.
            raise_problem(one.text)
    scene.acknowledge(scene.staged)


def raise_problem(shown: str) -> None:
    """End a step with what a command would print."""
    from perfkit.errors import LedgerError

    raise LedgerError(shown)


def _prepare_compact(scene: Scene, lot: random.Random) -> None:
    _some_runs(scene, lot)
    if lot.random() < 0.3:
        traced(scene.ledger, Plan(kill_at=lot.randint(6, 16)), lambda: _compact(scene))
    # There is always something to do.
    for number in (12, 13):
        scene.add(number)


def _compact(scene: Scene) -> None:
    compact(scene.ledger, before=None)


def _compact_all(scene: Scene) -> None:
    compact_all(scene.ledger)


def _prepare_merge(scene: Scene, lot: random.Random) -> None:
    for number in range(3):
        scene.add(number)
    shutil.copytree(scene.ledger, scene.other)
    if lot.random() < 0.5:
        compact(scene.ledger, before=None)
    for number in range(20, 22 + lot.randrange(3)):
        scene.add(number, month=number % 2, ledger=scene.other)
    if lot.random() < 0.6:
        compact(scene.other, before=None)
    add_note(scene.other, Note(commit="a" * 40, text="A note", recorded_at=START))
    scene.add(30)


def _merge(scene: Scene) -> None:
    found = merge(scene.ledger, scene.other)
    for problem in found.problems:
        raise_problem(f"{problem.file} {problem.what}; {problem.advice}")


def _prepare_import(scene: Scene, lot: random.Random) -> None:
    _some_runs(scene, lot)
    scene.other.mkdir()
    for number in range(lot.randint(1, 3)):
        output = {
            "name": f"sort-{number}",
            "values": [1.0, 2.0 + number],
            "commit": f"{number}" * 40,
            "date": f"2026-01-0{number + 1}T00:00:00Z",
        }
        (scene.other / f"{number}.json").write_text(json.dumps(output))
    copy = scene.folder / "copy"
    shutil.copytree(scene.ledger, copy)
    _import_into(copy, scene)
    scene.possible |= set(rows_seen(copy)) - scene.certain


def _import_into(ledger: Path, scene: Scene) -> None:
    import_files(ImportRequest(places=(scene.other,), ledger=ledger, start=scene.folder))


def _import(scene: Scene) -> None:
    _import_into(scene.ledger, scene)
    scene.acknowledge(scene.possible)


def _prepare_repair(scene: Scene, lot: random.Random) -> None:
    """Hurt a ledger in several ways at once; rows of hurt files are certain no more."""
    _prepare_publish(scene, lot)
    hurt = add_run(scene.ledger, 40)
    content = bytearray(hurt.read_bytes())
    content[lot.randrange(len(content))] ^= 1 << lot.randrange(8)
    hurt.write_bytes(content)
    foreign = scene.ledger / "20260101T000000Z-foreign-1.parquet"
    foreign.write_bytes(b"PAR1 of somebody else")
    (scene.ledger / ".20260101T000000Z-x-1.parquet.1.tmp").write_bytes(b"half")
    add_note(scene.ledger, Note(commit="b" * 40, text="Damaged", recorded_at=START)).write_bytes(b"{")
    scene.hurt = {_digest(bytes(content)), _digest(foreign.read_bytes()), _digest(b"{")}
    if lot.random() < 0.5:
        twice = add_run(scene.ledger, _TWICE_RUN)
        shutil.copy(twice, twice.with_name("odd-name.parquet"))
        scene.hurt.add(_digest(twice.read_bytes()))
    scene.possible |= {(run_id(number), launch) for number in (40, _TWICE_RUN) for launch in range(2)}


def _repair(scene: Scene) -> None:
    repair(scene.ledger)


def _prepare_note(scene: Scene, lot: random.Random) -> None:
    _some_runs(scene, lot)


def _note(scene: Scene) -> None:
    add_note(scene.ledger, Note(commit="c" * 40, text="What I changed", recorded_at=START))
    scene.acknowledge({("note", 0)})


def _prepare_index(scene: Scene, lot: random.Random) -> None:
    for number in range(lot.randint(4, 8)):
        scene.add(number)


def _index(scene: Scene) -> None:
    """Ask twice, where three files are enough for an index."""
    vars(queries_module)["FEWEST_FILES"] = 3
    for _ in range(2):
        runs = Ledger(scene.ledger).runs()
        assert {run for run, _ in scene.certain} == {run.run_id for run in runs}
        assert {2} == {run.rows for run in runs}


STEPS = (
    Step(name="record", prepare=_prepare_record, work=_record),
    Step(name="publish", prepare=_prepare_publish, work=_publish),
    Step(name="recover", prepare=_prepare_publish, work=_recover),
    Step(name="compact", prepare=_prepare_compact, work=_compact),
    Step(name="compact all", prepare=_prepare_compact, work=_compact_all),
    Step(name="merge", prepare=_prepare_merge, work=_merge),
    Step(name="import", prepare=_prepare_import, work=_import),
    Step(name="repair", prepare=_prepare_repair, work=_repair, unsound=True),
    Step(name="note", prepare=_prepare_note, work=_note),
    Step(name="index", prepare=_prepare_index, work=_index),
)

_NO_ROOM = frozenset({"write", "pwrite", "writev", "create", "mkdir", "link"})
_OPENS = frozenset({"open", "create"})
_EVERY = frozenset({"read", "write", "name", "sync", "open", "list"})


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A way in which a file system fails; the step succeeds all the same where it ``passes``."""

    name: str
    plan: Plan
    passes: bool = False


FAILURES = (
    Failure(name="disk full", plan=Plan(fails=errno.ENOSPC, names=_NO_ROOM)),
    Failure(name="quota", plan=Plan(fails=errno.EDQUOT, names=_NO_ROOM)),
    Failure(name="read-only", plan=Plan(fails=errno.EROFS, kinds=frozenset({"write", "name"}))),
    Failure(name="no handles", plan=Plan(fails=errno.EMFILE, names=_OPENS)),
    Failure(name="no handles once", plan=Plan(fails=errno.EMFILE, names=_OPENS, once=True)),
    Failure(name="network error once", plan=Plan(fails=errno.EIO, kinds=_EVERY, once=True)),  # type: ignore[arg-type]
    Failure(name="network gone", plan=Plan(fails=errno.ESTALE, kinds=_EVERY)),  # type: ignore[arg-type]
    Failure(name="no hard links", plan=Plan(fails=errno.EPERM, names=frozenset({"link"})), passes=True),
    Failure(name="no locks", plan=Plan(fails=errno.ENOLCK, kinds=frozenset({"lock"}))),
    Failure(name="slow", plan=Plan(delay_s=0.002), passes=True),
)


def scene_of(step: Step, folder: Path, seed: int) -> Scene:
    """Return what there is before a step, as a seed draws it; each is made once and copied."""
    made, _ = _made(step.name, seed)
    shutil.copytree(made.folder, folder)
    return replace(made, folder=folder.resolve())


def calls_of(step: Step, seed: int) -> tuple[Call, ...]:
    """Return the calls of a step on what a seed draws, where nothing goes wrong."""
    return _made(step.name, seed)[1]


@functools.cache
def _made(name: str, seed: int) -> tuple[Scene, tuple[Call, ...]]:
    (step,) = (step for step in STEPS if step.name == name)
    place = Path(tempfile.mkdtemp(prefix="faults-")).resolve()
    atexit.register(shutil.rmtree, place)
    scene = Scene(place / "made")
    scene.ledger.mkdir(parents=True)
    step.prepare(scene, random.Random(f"{name} {seed}"))  # noqa: S311 (states, not secrets)
    shutil.copytree(scene.folder, place / "whole")
    return scene, do(step, replace(scene, folder=place / "whole"), Plan()).calls


def do(step: Step, scene: Scene, plan: Plan) -> Ended:
    """Do a step as planned, in a process of its own."""
    return traced(scene.ledger, plan, lambda: step.work(scene))


def problems_after(step: Step, scene: Scene, ended: Ended, *, passes: bool = False) -> Iterator[str]:
    """Yield what is not as it must be after a step, and after the same step done once more and a repair."""
    if ended.crash:
        yield f"it ended with an exception: {ended.crash.strip().splitlines()[-1]}"
    if passes and ended.error:
        yield f"it failed: {ended.error}"
    if "\n" in ended.error:
        yield f"its error has several lines: {ended.error!r}"
    if ended.error and not ended.killed and str(scene.folder) not in ended.error:
        yield f"its error names no place: {ended.error!r}"
    yield from _now(step, scene)
    again = do(step, scene, Plan())
    if again.crash or again.error:
        yield f"done again it ended with: {again.error or again.crash.strip().splitlines()[-1]}"
    yield from _in_the_end(step, scene)


def _now(step: Step, scene: Scene) -> Iterator[str]:
    """Yield what a reader and ``verify`` find wrong at once."""
    if not step.unsound:
        yield from _of_rows(scene, scene.certain - scene.staged)
        found, _ = verify(scene.ledger)
        yield from (f"verify: {one.kind} {one.file}" for one in found.problems if one.kind not in _LEFT)
        named = {one.file for one in found.problems}
        yield from (f"left and not named: {name}" for name in leftovers(scene.ledger) if name not in named)
    yield from _of_hurt(scene)


def _in_the_end(step: Step, scene: Scene) -> Iterator[str]:
    """Yield what is wrong once a person has repaired the ledger, too."""
    recover(scene.ledger)
    repair(scene.ledger)
    recorded = scene.acknowledged_rows()
    if ("note", 0) in recorded:
        recorded.remove(("note", 0))
        if not (scene.ledger / NOTES.folder).is_dir() or not NOTES.read(scene.ledger):
            yield "the note is lost"
    yield from _of_rows(scene, scene.certain | recorded | scene.staged)
    found, _ = verify(scene.ledger)
    yield from (f"in the end, verify: {one.kind} {one.file}" for one in found.problems)
    yield from (f"in the end, left: {name}" for name in leftovers(scene.ledger))
    yield from _of_hurt(scene)
    if step.name == "merge" and scene.possible - set(rows_seen(scene.ledger)):
        yield "in the end, the merge lacks rows"


def _of_rows(scene: Scene, certain: set[Key]) -> Iterator[str]:
    found = rows_seen(scene.ledger)
    yield from (f"lost: {key}" for key in sorted(certain - set(found)))
    yield from (f"seen {times} times: {key}" for key, times in found.items() if times > 1)
    yield from (f"from nowhere: {key}" for key in set(found) - scene.certain - scene.possible)


def _of_hurt(scene: Scene) -> Iterator[str]:
    """Yield each damaged or foreign content that is nowhere any more."""
    if scene.hurt:
        held = {_digest(file.read_bytes()) for file in scene.ledger.rglob("*") if file.is_file()}
        yield from (f"deleted: {digest}" for digest in scene.hurt - held)


def leftovers(ledger: Path) -> Iterator[str]:
    """Yield the files of a ledger that belong to nothing that is recorded."""
    for file in sorted(ledger.rglob("*")):
        name = file.relative_to(ledger)
        first = name.parts[0]
        if file.is_dir() or first == QUARANTINE_FOLDER or file.name == ".gitignore":
            continue
        whole = file.suffix == ".parquet" and (len(name.parts) == 1 or first == INDEX_FOLDER)
        stated = file.suffix == ".json" and len(name.parts) == 2
        if file.name.startswith(".") or not (whole or stated):
            yield str(name)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
