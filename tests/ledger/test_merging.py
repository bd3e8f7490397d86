"""What another ledger has and this one lacks comes over once, compacted or not."""

from __future__ import annotations

import fcntl
import itertools
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from killing import in_child
from ledger_files import add_run, add_runs, contents, run_id, seen, whole
from synthetic import START, build_row

from perfkit.errors import LedgerError, UsageError
from perfkit.ledger.annotations import Note, add_note, read_notes
from perfkit.ledger.files import run_stem, write_table
from perfkit.ledger.maintenance import compact, merge
from perfkit.ledger.recording import Run, recover
from perfkit.ledger.schema import to_table
from perfkit.ledger.soundness import verify
from perfkit.ledger.store import Ledger

NOTE = Note(commit="a" * 40, text="Cache the distances", recorded_at=datetime(2026, 1, 2, tzinfo=UTC))


def _problems(ledger: Path) -> list[str]:
    return [problem.kind for problem in verify(ledger)[0].problems]


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Return two ledgers: runs 0 to 2 are in both, 3 in the first one, 4 and a note in the other."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    add_runs(ours, range(3))
    shutil.copytree(ours, theirs)
    add_run(ours, 3)
    add_run(theirs, 4)
    add_note(theirs, NOTE)
    return ours, theirs


def test_what_this_ledger_lacks_comes_over(two: tuple[Path, Path]) -> None:
    ours, theirs = two
    before = contents(theirs)

    shown = merge(ours, theirs, dry_run=True)
    done = merge(ours, theirs)
    again = merge(ours, theirs)

    assert before == contents(theirs)
    for result in (shown, done):
        assert (1, 3, 1) == (result.runs, result.known, result.statements)
    assert shown.copied == done.copied
    assert all(before[name] == (ours / name).read_bytes() for name in done.copied)
    assert (0, 4, 0, ()) == (again.runs, again.known, again.statements, again.copied)
    assert whole(range(5)) == seen(ours)
    assert "Cache the distances" == read_notes(ours)["a" * 40].text
    assert [] == _problems(ours)


@pytest.mark.parametrize(
    ("ours_compacted", "theirs_compacted"), [*itertools.product([False, True], repeat=2)]
)
def test_no_row_comes_twice_whichever_is_compacted(
    two: tuple[Path, Path], *, ours_compacted: bool, theirs_compacted: bool
) -> None:
    ours, theirs = two
    for ledger, is_compacted in zip(two, (ours_compacted, theirs_compacted), strict=True):
        if is_compacted:
            compact(ledger, before=None)
    add_run(theirs, 5)

    done = merge(ours, theirs)
    merge(theirs, ours)

    assert (2, ()) == (done.runs, done.problems)
    for ledger in two:
        assert whole(range(6)) == seen(ledger)
        assert [] == _problems(ledger)
        compact(ledger, before=None)
        assert whole(range(6)) == seen(ledger)
        assert 1 == len([*ledger.glob("*.parquet")])


def test_all_of_a_run_comes_over_where_a_part_of_it_is_here(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    rows = [build_row(0.5, run=run_id(2), launch=launch, source="gate") for launch in (0, 1)]

    def recover_there() -> None:
        fcntl.flock = lambda *_: None
        recover(theirs)

    with Run.begin(theirs, source="gate", run_id=run_id(2), recorded_at=START) as run:
        run.add(rows[:1])
        in_child(recover_there)
        shutil.copytree(theirs, ours)
        run.add(rows[1:])

    found = merge(ours, theirs)

    assert (1, 0, ()) == (found.runs, found.known, found.problems)
    assert [(0, False), (1, False)] == [(row.placement.launch, row.partial) for row in Ledger(ours).rows()]
    assert () == verify(ours)[0].problems
    assert (0, 1, ()) == (merge(ours, theirs).runs, merge(theirs, ours).known, merge(theirs, ours).problems)


def test_damaged_files_stay_where_they_are(two: tuple[Path, Path]) -> None:
    ours, theirs = two
    damaged = add_run(theirs, 5)
    damaged.write_bytes(damaged.read_bytes()[:-10])
    (theirs / "foreign.parquet").write_bytes(b"PAR1")
    (theirs / "notes/broken.json").write_text("{")

    done = merge(ours, theirs)

    assert {damaged.name, "foreign.parquet", "notes/broken.json"} == {one.file for one in done.problems}
    assert 4 == done.exit_code
    assert whole(range(5)) == seen(ours)
    assert [] == _problems(ours)


def test_a_run_that_differs_is_not_taken(two: tuple[Path, Path]) -> None:
    ours, theirs = two
    before = contents(ours)
    file = theirs / f"{run_stem(START, 'pytest', run_id(0))}.parquet"
    file.unlink()
    write_table(to_table([build_row(0.7, run=run_id(0))]), file)

    own = merge(ours, theirs)
    compact(theirs, before=None)
    shutil.rmtree(ours)
    for name, content in before.items():
        (ours / name).parent.mkdir(parents=True, exist_ok=True)
        (ours / name).write_bytes(content)
    compacted = merge(ours, theirs)

    for done, runs in ((own, 1), (compacted, 0)):
        assert ["differs"] == [problem.kind for problem in done.problems]
        assert run_id(0) in done.problems[0].what
        assert runs == done.runs
    assert whole(range(4)) == seen(ours)


def test_a_run_that_was_compacted_here_is_not_taken_with_other_rows(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    add_runs(ours, range(3))
    compact(ours, before=None)
    Ledger(theirs).append([build_row(0.7, run=run_id(0), minute=9)])

    done = merge(ours, theirs)

    assert ["differs"] == [problem.kind for problem in done.problems]
    assert run_id(0) in done.problems[0].what
    assert ((), 0) == (done.copied, done.runs)
    assert whole(range(3)) == seen(ours)
    assert [] == _problems(ours)


def test_a_compacted_file_of_the_same_name_gets_another(two: tuple[Path, Path]) -> None:
    ours, theirs = two
    (theirs / "notes").rename(theirs.with_name("notes"))
    for ledger in two:
        compact(ledger, before=None)
        (file,) = ledger.glob("*.parquet")
        file.rename(ledger / "20260102T030405Z-pytest-000000000004-and-3-files-before.parquet")

    done = merge(ours, theirs)

    assert 1 == done.runs
    assert whole(range(5)) == seen(ours)


def test_runs_that_are_still_staged_there_are_reported(two: tuple[Path, Path]) -> None:
    ours, theirs = two
    run = Ledger(theirs).run(source="gate", run_id=run_id(60), recorded_at=START)
    run.add([build_row(0.5, run=run_id(60), source="gate")])
    run.leave()
    before = contents(theirs)

    assert 1 == merge(ours, theirs).staged
    assert before == contents(theirs)


def test_what_cannot_be_merged_is_refused(two: tuple[Path, Path]) -> None:
    ours, theirs = two
    (theirs.parent / "link").symlink_to(ours)

    with pytest.raises(UsageError, match="there is no ledger at"):
        merge(ours, ours / "nowhere")
    with pytest.raises(UsageError, match="is this very ledger"):
        merge(ours, theirs.parent / "link")


def test_a_file_that_goes_meanwhile_is_reported(two: tuple[Path, Path]) -> None:
    ours, theirs = two
    add_run(theirs, 5)

    def gone(step: str) -> None:
        if step == "file published" and len([*theirs.glob("*.parquet")]) > 1:
            compact(theirs, before=None)

    with pytest.raises(LedgerError, match="do the same again"):
        merge(ours, theirs, on_step=gone)
    merge(ours, theirs)

    assert whole(range(6)) == seen(ours)
