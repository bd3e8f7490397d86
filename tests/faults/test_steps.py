"""What was recorded stays, once, however a step of the ledger is stopped; what is left is named."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from calls import IS_SUPPORTED, Plan, traced
from damage import damaged_once, ledger_of_all_kinds, with_few_for_an_index
from killing import kill_after
from ledger_files import add_run, add_runs, seen, whole
from steps import FAILURES, STEPS, Failure, Step, calls_of, do, problems_after, scene_of
from synthetic import START
from writers import write_at_once

from perfkit.errors import LedgerError
from perfkit.ledger import files
from perfkit.ledger.annotations import Note, add_note, read_notes
from perfkit.ledger.files import list_files, open_locked
from perfkit.ledger.maintenance import compact, merge, repair
from perfkit.ledger.queries import INDEX_FOLDER
from perfkit.ledger.recording import Run
from perfkit.ledger.soundness import verify
from perfkit.ledger.store import Ledger
from perfkit.model.upkeep import Action
from perfkit.temporary import hold_lock

# `make faults` kills at each call many times, and lets each of them fail.
_KILLS = 5
_PLACES = (1, 3)
# In the last of these DuckDB cannot decode what Arrow can.
_DAMAGES = (*range(12), 235)

traces = pytest.mark.skipif(not IS_SUPPORTED, reason="processes are stopped at their calls on Linux x86-64")


@traces
@pytest.mark.parametrize("step", STEPS, ids=[step.name for step in STEPS])
def test_a_kill_at_a_call_loses_nothing(tmp_path: Path, step: Step) -> None:
    changes = sum(call.kind in Plan().kinds for call in calls_of(step, 0))
    for number in range(_KILLS):
        scene = scene_of(step, tmp_path / str(number), 0)
        place = 1 + number * (changes - 1) // (_KILLS - 1)
        ended = do(step, scene, Plan(kill_at=place, torn=0.5))

        assert ended.killed
        assert [] == list(problems_after(step, scene, ended)), place


@traces
@pytest.mark.parametrize("failure", FAILURES, ids=[failure.name for failure in FAILURES])
@pytest.mark.parametrize("name", ["record", "compact"])
def test_a_failing_disk_is_reported_in_one_line(tmp_path: Path, failure: Failure, name: str) -> None:
    (step,) = (step for step in STEPS if step.name == name)
    for first in _PLACES[: 1 if failure.passes else None]:
        scene = scene_of(step, tmp_path / str(first), 0)
        ended = do(step, scene, replace(failure.plan, first=first))

        assert ended.failed or failure.plan.delay_s or first > 1
        assert [] == list(problems_after(step, scene, ended, passes=failure.passes)), first


def test_damage_is_found_in_files_of_every_kind(tmp_path: Path) -> None:
    problems = [one for number in _DAMAGES for one in damaged_once(number, tmp_path / str(number))[0]]

    assert [] == problems


@pytest.mark.parametrize(
    "store", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["folder", "object store"]
)
def test_writers_a_compacting_and_readers_at_once(tmp_path: Path, *, store: bool) -> None:
    if store:
        pytest.importorskip("moto")
        pytest.importorskip("obstore")
    problems, facts = write_at_once(tmp_path, writers=3, runs=5, store=store)

    assert [] == problems
    assert 15 == facts["runs"]


# What each of these shows was wrong once.


def _failing(folder: Path, plan: Plan, work: Callable[[], object]) -> str:
    """Return the error of something whose calls fail, and that it failed without an exception."""

    def whole_work() -> None:
        work()

    ended = traced(folder, plan, whole_work)
    assert ended.failed
    assert "" == ended.crash
    return ended.error


@traces
def test_a_compacted_file_that_cannot_be_read_now_is_not_taken_for_another(tmp_path: Path) -> None:
    add_runs(tmp_path, range(3))
    originals = {file.name: file.read_bytes() for file in tmp_path.glob("*.parquet")}
    compact(tmp_path, before=None)
    for name, content in originals.items():
        (tmp_path / name).write_bytes(content)
    unreadable = Plan(fails=errno.EIO, names=frozenset({"pread"}), once=True)

    assert "Input/output error" in _failing(tmp_path, unreadable, lambda: list_files(tmp_path))
    assert whole(range(3)) == seen(tmp_path)


@traces
@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ESTALE])
def test_a_sound_file_that_cannot_be_read_now_is_not_moved_away(tmp_path: Path, number: int) -> None:
    add_runs(tmp_path, range(2))
    note = add_note(tmp_path, Note(commit="a" * 40, text="Mine", recorded_at=START))
    for name in (min(tmp_path.glob("*.parquet")).name, f"notes/{note.name}"):
        places = traced(tmp_path, Plan(), lambda: repair(tmp_path)).calls  # type: ignore[arg-type]
        first = [call.path for call in places if call.kind == "open"].index(name) + 1
        refused = Plan(fails=number, kinds=frozenset({"open"}), first=first, once=True)

        _failing(tmp_path, refused, lambda: repair(tmp_path))

        assert whole(range(2)) == seen(tmp_path)
        assert ["Mine"] == [one.text for one in read_notes(tmp_path).values()]


@traces
@pytest.mark.parametrize("kind", ["open", "list", "lock"])
def test_a_staged_run_that_cannot_be_gone_on_with_is_reported(tmp_path: Path, kind: str) -> None:
    def stage() -> None:
        Run.begin(tmp_path, source="gate", run_id="run-1", recorded_at=START)

    kill_after(stage)
    refused = Plan(fails=errno.EIO, kinds=frozenset({kind}))  # type: ignore[arg-type]

    def resume() -> None:
        Run.resume(tmp_path, folder=tmp_path / ".staged")

    assert "cannot go on with the run" in _failing(tmp_path / ".staged", refused, resume)


@traces
def test_a_folder_of_what_annotations_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    ledger, other = tmp_path / "ledger", tmp_path / "other"
    for folder in (ledger, other):
        add_runs(folder, range(2))
        add_note(folder, Note(commit="a" * 40, text="Mine", recorded_at=START))
    refused = Plan(fails=errno.EIO, kinds=frozenset({"list"}))
    shown = f"cannot read {other / 'notes'} (Input/output error)"

    assert shown in _failing(other / "notes", refused, lambda: read_notes(other))
    assert shown in _failing(other / "notes", refused, lambda: merge(ledger, other))
    problems_file = tmp_path / "problems"

    def look() -> None:
        found = verify(other)[0].problems
        problems_file.write_text("\n".join(f"{one.kind} {one.file}" for one in found))

    assert "" == _failing(other / "notes", refused, look)
    assert "unreadable notes" == problems_file.read_text()


def test_a_file_that_was_swept_up_before_it_was_locked_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = hold_lock
    swept: list[Action] = []

    def sweep_first(descriptor: int) -> None:
        monkeypatch.setattr(files, "hold_lock", real)
        swept.extend(repair(tmp_path).actions)
        real(descriptor)

    monkeypatch.setattr(files, "hold_lock", sweep_first)
    with open_locked(tmp_path / ".a.parquet.1.tmp") as stream:
        stream.write(b"whole")

    assert b"whole" == (tmp_path / ".a.parquet.1.tmp").read_bytes()
    assert ["removed"] == [action.kind for action in swept]
    monkeypatch.setattr(files, "hold_lock", sweep_first)
    add_run(tmp_path, 1)
    assert whole([1]) == seen(tmp_path)


def test_a_damaged_index_is_named_and_nobody_believes_it(tmp_path: Path) -> None:
    _, _, _, part, _, _ = ledger_of_all_kinds(tmp_path)
    shown = with_few_for_an_index(Ledger(tmp_path).runs)
    content = part.read_bytes()
    for place in range(4, len(content), len(content) // 12):
        part.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        named = [(one.kind, one.file) for one in verify(tmp_path)[0].problems if one.kind != "staged"]
        assert [("damaged", f"{INDEX_FOLDER}/{part.name}")] == named
        assert shown == with_few_for_an_index(Ledger(tmp_path).runs)
        assert content == part.read_bytes()


def test_a_changed_statement_is_not_believed(tmp_path: Path) -> None:
    file = add_note(tmp_path, Note(commit="a" * 40, text="Cache the distances", recorded_at=START))
    older = file.with_name(f"{file.stem[:36]}.json")
    older.write_bytes(file.read_bytes())
    file.write_bytes(file.read_bytes().replace(b"Cache", b"Cacha"))

    (problem,) = verify(tmp_path)[0].problems

    assert "as the checksum in its name shows" in problem.what
    with pytest.raises(LedgerError, match="is not a readable note"):
        read_notes(tmp_path)
    file.unlink()
    assert ["Cache the distances"] == [note.text for note in read_notes(tmp_path).values()]
