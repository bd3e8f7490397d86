"""All that is wrong with a ledger is found and named, and what is well is not accused."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killing import kill_after, killed_at
from ledger_files import add_run, add_runs, contents, run_id, seen, whole
from synthetic import START, build_row

from perfkit.ledger.annotations import Note, add_note
from perfkit.ledger.files import OnStep, is_intact, run_stem, write_table
from perfkit.ledger.maintenance import compact, repair
from perfkit.ledger.schema import SCHEMA, to_table
from perfkit.ledger.soundness import verify
from perfkit.ledger.store import Ledger
from perfkit.model import Metric
from perfkit.model.upkeep import Verification

FLIPS = 100
NOTE = Note(commit="a" * 40, text="Cache the distances", recorded_at=datetime(2026, 1, 2, tzinfo=UTC))


def _verify(ledger: Path) -> Verification:
    return verify(ledger)[0]


def _problems(ledger: Path) -> list[tuple[str, str]]:
    return [(problem.kind, problem.file) for problem in _verify(ledger).problems]


def test_a_copied_file_of_many_runs_is_one_problem(tmp_path: Path) -> None:
    add_runs(tmp_path, range(3))
    compact(tmp_path, before=None)
    (file,) = tmp_path.glob("*.parquet")
    shutil.copy(file, tmp_path / "copy.parquet")

    assert 1 == [kind for kind, _ in _problems(tmp_path)].count("twice")


def _flip(file: Path, place: int, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1 << bit
    file.write_bytes(content)


def _kinds_of_files(ledger: Path) -> list[Path]:
    """Make a file of each kind, and return them: a run, a gate with failures, a compacted one."""
    add_runs(ledger, range(3), month=1)
    compact(ledger, before=None)
    run = add_run(ledger, 10)
    shown = {"run": run_id(20), "source": "gate", "minute": 20}
    failing = [
        build_row(status="error", message="ValueError: no", **shown),  # type: ignore[arg-type]
        build_row(0.5, 0.25, **shown),  # type: ignore[arg-type]
    ]
    gate = Ledger(ledger).append(failing)
    (compacted,) = ledger.glob("*-and-*")
    return [run, gate, compacted]


def test_a_sound_ledger_is_called_so(tmp_path: Path) -> None:
    _kinds_of_files(tmp_path)
    add_note(tmp_path, NOTE)
    before = contents(tmp_path)

    found = _verify(tmp_path)

    assert () == found.problems
    assert 0 == found.exit_code
    assert (3, 10, 5, 0, 1) == (found.files, found.rows, found.runs, found.unsealed, found.statements)
    assert before == contents(tmp_path)


def test_a_mean_of_values_of_both_signs_is_no_wrong_one(tmp_path: Path) -> None:
    drift = Metric(name="drift", unit="1")
    row = build_row(-0.1, 0.5, 0.6, -0.6, 0.3, -0.7, run=run_id(1))
    right = dataclasses.replace(row, outcome=dataclasses.replace(row.outcome, metric=drift))
    Ledger(tmp_path).append([right])
    assert [] == _problems(tmp_path)
    (file,) = Ledger(tmp_path).files()
    table = pq.read_table(file)
    place = table.column_names.index("mean")
    file.unlink()
    write_table(table.set_column(place, table.field("mean"), pa.array([1e-6])), file)

    assert ["impossible"] == [kind for kind, _ in _problems(tmp_path)]


def test_every_flipped_bit_and_every_cut_is_found_and_named(tmp_path: Path) -> None:
    files = _kinds_of_files(tmp_path)
    rows = {file: _rows_in(file) for file in files}
    lot = random.Random(1)  # noqa: S311 (places, not secrets)
    for number in range(FLIPS):
        file = files[number % len(files)]
        content = file.read_bytes()
        if lot.random() < 0.8:
            _flip(file, lot.randrange(len(content)), lot.randrange(8))
        else:
            file.write_bytes(content[: lot.randrange(len(content))])

        found = _verify(tmp_path)

        assert [("damaged", file.name)] == [(one.kind, one.file) for one in found.problems]
        assert sum(rows.values()) - rows[file] == found.rows
        file.write_bytes(content)


def _rows_in(file: Path) -> int:
    rows: int = pq.read_metadata(file).num_rows
    return rows


def test_every_bit_of_the_end_of_a_file_counts(tmp_path: Path) -> None:
    content = add_run(tmp_path, 0, launches=1).read_bytes()
    end = int.from_bytes(content[-8:-4], "little") + 8
    changed = (
        content[:-place] + bytes([content[-place] ^ (1 << bit)]) + content[len(content) - place + 1 :]
        for place in range(1, end, 3)
        for bit in range(8)
    )

    assert is_intact(content)
    assert not any(is_intact(one) is not False for one in changed)


def test_a_file_without_a_checksum_is_decoded_whole(tmp_path: Path) -> None:
    for folder in ("schema_1", "schema_2"):
        for file in (Path(__file__).parent / folder).iterdir():
            shutil.copy(file, tmp_path / file.name)
    found = _verify(tmp_path)
    # The two have runs of the same made-up names.
    assert {"misnamed", "differs"} == {problem.kind for problem in found.problems}
    assert 2 == found.unsealed

    old = next(iter(tmp_path.glob("*.parquet")))
    old.write_bytes(old.read_bytes()[:-100])

    assert ("damaged", old.name) in _problems(tmp_path)


def _table(**columns: object) -> pa.Table:
    """Return a run with a column whose cells are others."""
    table = to_table([build_row(0.1, 0.3, run=run_id(7), launch=launch) for launch in range(2)])
    for name, cell in columns.items():
        place = SCHEMA.get_field_index(name)
        table = table.set_column(place, SCHEMA.field(name), pa.array([cell] * 2, SCHEMA.field(name).type))
    return table


NAME = f"{run_stem(START, 'pytest', run_id(7))}.parquet"


def _foreign(ledger: Path) -> str:
    pq.write_table(pa.table({"x": [1]}), ledger / "foreign.parquet")
    return "foreign.parquet"


def _written(ledger: Path, table: pa.Table, name: str = NAME) -> str:
    write_table(table, ledger / name)
    return name


def _fifo(ledger: Path) -> str:
    os.mkfifo(ledger / "pipe-and-1-files-before.parquet")
    return "pipe-and-1-files-before.parquet"


def _lost_link(ledger: Path) -> str:
    (ledger / "link.parquet").symlink_to(ledger / "nowhere")
    return "link.parquet"


def _folder(ledger: Path) -> str:
    (ledger / "folder.parquet").mkdir()
    return "folder.parquet"


def _bytes(name: str, content: bytes) -> Callable[[Path], str]:
    def make(ledger: Path) -> str:
        file = ledger / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        return name

    return make


def _copied(ledger: Path) -> str:
    file = next(iter(sorted(ledger.glob("*.parquet"))))
    shutil.copy(file, ledger / "20260101T000000Z-pytest-copied.parquet")
    return "20260101T000000Z-pytest-copied.parquet"


def _replaced(ledger: Path) -> str:
    """Put two runs into one file, and leave one of their files behind."""
    aside = ledger.with_name(f"{ledger.name}-aside")
    left, _ = add_runs(aside, range(30, 32), month=5)
    shutil.copy(left, ledger)
    compact(aside, before=None)
    (compacted,) = aside.glob("*.parquet")
    shutil.copy(compacted, ledger)
    return left.name


def _temporary(ledger: Path) -> str:
    def work(on_step: OnStep) -> None:
        Ledger(ledger, on_step=on_step).append([build_row(run=run_id(50))])

    assert killed_at(1, work)
    (file,) = ledger.glob(".*.tmp")
    return file.name


def _staged(ledger: Path) -> str:
    def work() -> None:
        run = Ledger(ledger).run(source="gate", run_id=run_id(60), recorded_at=START)
        run.add([build_row(0.5, run=run_id(60), source="gate")])

    kill_after(work)
    (file,) = ledger.glob(".staged/*.jsonl")
    return f".staged/{file.name}"


MANY: dict[str, tuple[str, Callable[[Path], str]]] = {
    "a foreign file": ("foreign", _foreign),
    "an empty file": ("damaged", _bytes("empty.parquet", b"")),
    "no parquet": ("damaged", _bytes("text.parquet", b"PAR1 and so on")),
    "a folder": ("damaged", _folder),
    "a pipe": ("damaged", _fifo),
    "a link to nowhere": ("damaged", _lost_link),
    "a newer schema": ("newer", lambda ledger: _written(ledger, _table(schema_version=999))),
    "another name": ("misnamed", lambda ledger: _written(ledger, _table(), "other.parquet")),
    "another run's name": ("misnamed", lambda ledger: _written(ledger, _table(), f"{NAME[:-9]}1.parquet")),
    "a wrong n": ("impossible", lambda ledger: _written(ledger, _table(n=3))),
    "a wrong mean": ("impossible", lambda ledger: _written(ledger, _table(mean=0.21))),
    "a missing mean": ("impossible", lambda ledger: _written(ledger, _table(mean=None))),
    "a negative time": ("impossible", lambda ledger: _written(ledger, _table(values=[0.5, -0.1], mean=0.2))),
    "an unknown status": ("impossible", lambda ledger: _written(ledger, _table(status="fine"))),
    "no values": ("impossible", lambda ledger: _written(ledger, _table(values=None, n=0, mean=None))),
    "no commit": ("impossible", lambda ledger: _written(ledger, _table(commit=None))),
    "a replaced file": ("replaced", _replaced),
    "a temporary file": ("temporary", _temporary),
    "a run cut off": ("staged", _staged),
    "a damaged staged file": ("staged damage", _bytes(".staged/20260102T030405Z-gate-1.damaged", b"x")),
    "a strange staged file": ("staged damage", _bytes(".staged/strange.jsonl", b"x\n")),
    "a broken note": ("statement", _bytes("notes/a.json", b"{}")),
    "a broken acceptance": ("statement", _bytes("acceptances/a.json", b"\xff")),
    "a name of two lines": ("damaged", _bytes("$(touch x)\n; rm.parquet", b"")),
    "a name that is no text": ("damaged", _bytes(os.fsdecode(b"\xff-and-\xfe.parquet"), b"")),
    "an option's name": ("damaged", _bytes("--force.parquet", b"")),
}
# What a person has to look at.
STAYS = {"newer", "misnamed", "impossible", "differs"}


@pytest.mark.parametrize("what", MANY)
def test_each_thing_that_is_wrong_is_found_and_mended_or_left(tmp_path: Path, what: str) -> None:
    add_runs(tmp_path, range(2))
    kind, make = MANY[what]
    name = make(tmp_path)
    before = seen_of(tmp_path, range(2))

    found = _verify(tmp_path).problems
    shown = repair(tmp_path, dry_run=True)
    done = repair(tmp_path)

    assert [(kind, name)] == [(one.kind, one.file) for one in found]
    assert found[0].what
    assert found[0].advice
    assert [(kind, name)] * (kind in STAYS) == [(one.kind, one.file) for one in done.left]
    assert [one.file for one in shown.actions] == [one.file for one in done.actions]
    assert list(done.left) == list(_verify(tmp_path).problems)
    assert before == seen_of(tmp_path, range(2))


def seen_of(ledger: Path, numbers: range) -> dict[str, int]:
    files = [next(iter(ledger.glob(f"*-{run_id(number)[-12:]}.parquet"))) for number in numbers]
    return {file.name: _rows_in(file) for file in files}


def test_what_others_write_just_now_is_no_problem(tmp_path: Path) -> None:
    add_runs(tmp_path, range(2))
    found: list[Verification] = []

    def look(step: str) -> None:
        if step == "temporary file written":
            found.append(_verify(tmp_path))

    with Ledger(tmp_path, on_step=look).run(source="gate", run_id=run_id(70), recorded_at=START) as run:
        run.add([build_row(0.5, run=run_id(70), source="gate")])
        assert () == repair(tmp_path).actions

    assert [()] == [one.problems for one in found]
    assert 3 == _verify(tmp_path).runs


def test_a_repair_moves_damaged_files_away_and_deletes_none(tmp_path: Path) -> None:
    first, second = add_runs(tmp_path, range(2))
    for number in range(2):
        content = first.read_bytes()
        _flip(first, 900, number)
        damaged = first.read_bytes()
        done = repair(tmp_path)

        (action,) = done.actions
        assert ("quarantined", first.name) == (action.kind, action.file)
        assert action.to is not None
        assert damaged == (tmp_path / action.to).read_bytes()
        assert not first.exists()
        assert 0 == done.exit_code
        first.write_bytes(content)
    assert "*\n" == (tmp_path / ".quarantine/.gitignore").read_text()
    assert 2 == _verify(tmp_path).quarantined
    assert whole(range(2)) == seen(tmp_path)
    assert second.exists()


def test_a_damaged_compacted_file_gives_way_to_what_it_replaced(tmp_path: Path) -> None:
    add_runs(tmp_path, range(3))
    originals = contents(tmp_path)
    compact(tmp_path, before=None)
    (compacted,) = tmp_path.glob("*-and-*")
    for name, content in originals.items():
        (tmp_path / name).write_bytes(content)
    _flip(compacted, 1000, 1)

    assert {"damaged", "hidden"} == {kind for kind, _ in _problems(tmp_path)}
    done = repair(tmp_path)

    assert () == done.left
    assert [compacted.name] == [action.file for action in done.actions]
    assert whole(range(3)) == seen(tmp_path)


def test_of_exact_copies_one_stays(tmp_path: Path) -> None:
    add_runs(tmp_path, range(2))
    name = _copied(tmp_path)
    assert {("misnamed", name), ("twice", name)} == set(_problems(tmp_path))

    done = repair(tmp_path)

    assert [("quarantined", name)] == [(action.kind, action.file) for action in done.actions]
    assert () == done.left
    assert whole(range(2)) == seen(tmp_path)


def _with_copies(ledger: Path) -> Path:
    """Make a compacted file with three runs, one of which another file has too, under a name of its own."""
    add_runs(ledger, range(3), month=1)
    compact(ledger, before=None)
    (compacted,) = ledger.glob("*-and-*")
    add_run(ledger, 1, month=1)
    file = ledger / f"{run_stem(START, 'gate', run_id(1))}.parquet"
    next(iter(ledger.glob(f"*-pytest-{run_id(1)[-12:]}.parquet"))).rename(file)
    return compacted


def test_a_compacted_file_is_written_anew_without_the_copies(tmp_path: Path) -> None:
    compacted = _with_copies(tmp_path)
    assert [("twice", compacted.name)] == _problems(tmp_path)

    done = repair(tmp_path)

    assert [("rewritten", compacted.name)] == [(action.kind, action.file) for action in done.actions]
    assert () == done.left
    assert not compacted.exists()
    assert whole(range(3)) == seen(tmp_path)


def test_rows_that_differ_are_left_to_a_person(tmp_path: Path) -> None:
    file, _ = add_runs(tmp_path, range(2))
    other = tmp_path / f"{run_stem(START, 'gate', run_id(0))}.parquet"
    write_table(to_table([build_row(0.7, run=run_id(0))]), other)
    before = contents(tmp_path)

    done = repair(tmp_path)

    assert ["differs"] == [problem.kind for problem in done.left]
    assert file.name in done.left[0].what + done.left[0].file
    assert 4 == done.exit_code
    assert before == contents(tmp_path)


def test_files_that_hide_each_other_are_found(tmp_path: Path) -> None:
    from perfkit.ledger.files import new_file

    add_run(tmp_path, 0)
    names = [f"20260102T03040{number}Z-pytest-x-and-1.parquet" for number in range(2)]
    for name, other in (names, reversed(names)):
        with new_file(tmp_path / name, SCHEMA, replaces=[other]) as writer:
            writer.write_table(_table())

    assert {("hidden", name) for name in names} <= set(_problems(tmp_path))
    assert () == repair(tmp_path).left or _verify(tmp_path).problems
