"""Compacting keeps every row once, through kills, readers and recordings meanwhile."""

from __future__ import annotations

import re
import shutil
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from killing import killed_at
from ledger_files import add_run, add_runs, contents, seen, whole

from perfkit.errors import LedgerError
from perfkit.ledger import files as ledger_files_module
from perfkit.ledger import maintenance
from perfkit.ledger.files import OnStep, is_intact, list_files, read_consistently
from perfkit.ledger.maintenance import compact, compact_all
from perfkit.ledger.store import Ledger


def _names(ledger: Path) -> list[str]:
    return sorted(file.name for file in ledger.glob("*.parquet"))


def test_each_month_that_is_over_becomes_one_file(tmp_path: Path) -> None:
    for month in range(3):
        add_runs(tmp_path, range(3 * month, 3 * month + 3), month=month)
    odd = tmp_path / "odd.parquet"
    add_run(tmp_path, 99).rename(odd)
    before = Ledger(tmp_path).rows()

    done = compact(tmp_path, before="2026-03")
    again = compact(tmp_path, before="2026-03")

    assert before == Ledger(tmp_path).rows()
    assert ["2026-01", "2026-02"] == [part.month for part in done.parts]
    assert [6, 6] == [part.rows for part in done.parts]
    assert (10, 6, ()) == (done.files_before, done.files_after, done.problems)
    assert 6 == len(_names(tmp_path))
    assert odd.exists()
    assert () == again.parts
    assert 2 == sum(
        re.search(r"-and-2-files-before-[0-9a-f]{8}\.parquet$", name) is not None for name in _names(tmp_path)
    )


def test_all_takes_the_current_month_too_and_a_dry_run_nothing(tmp_path: Path) -> None:
    add_runs(tmp_path, range(3))
    before = contents(tmp_path)

    shown = compact(tmp_path, before=None, dry_run=True)
    unchanged = contents(tmp_path)
    done = compact(tmp_path, before=None)

    assert before == unchanged
    assert shown.dry_run
    assert [part.files for part in shown.parts] == [part.files for part in done.parts]
    assert shown.files_after == done.files_after == len(_names(tmp_path)) == 1
    assert whole(range(3)) == seen(tmp_path)


def test_a_part_has_a_limited_size(tmp_path: Path) -> None:
    size = add_runs(tmp_path, range(9))[0].stat().st_size

    done = compact(tmp_path, before=None, part_bytes=int(4.5 * size))

    assert [4, 4] == [len(part.files) for part in done.parts]
    assert 3 == len(_names(tmp_path))
    assert whole(range(9)) == seen(tmp_path)


def test_a_part_is_written_in_row_groups_of_one_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "ROWS_AT_ONCE", 3)
    add_runs(tmp_path, range(5))

    compact(tmp_path, before=None)

    (file,) = list_files(tmp_path).present
    with pq.ParquetFile(file) as parquet:
        groups = [parquet.metadata.row_group(number).num_rows for number in range(parquet.num_row_groups)]
    assert [3, 3, 3, 1] == groups
    assert is_intact(file.read_bytes())


@pytest.mark.parametrize("step", ["file published", "replaced file removed"])
def test_who_interrupts_a_compacting_finds_no_file_beside_the_one_in_its_place(
    tmp_path: Path, step: str
) -> None:
    add_runs(tmp_path, range(4))
    before = Ledger(tmp_path).rows()

    def interrupt(done: str) -> None:
        if done == step:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        compact(tmp_path, before=None, on_step=interrupt)

    assert 1 == len(_names(tmp_path))
    assert before == Ledger(tmp_path).rows()


def test_a_kill_before_the_second_compacting_ends_leaves_no_row_twice(tmp_path: Path) -> None:
    step = 0
    while True:
        step += 1
        ledger = tmp_path / str(step)
        originals = {file.name: file.read_bytes() for file in add_runs(ledger, range(2))}
        compact(ledger, before=None)
        add_run(ledger, 2)

        def work(on_step: OnStep, ledger: Path = ledger) -> None:
            compact(ledger, before=None, on_step=on_step)

        if not killed_at(step, work):
            break
        # As git brings them back where a branch did not compact.
        for name, content in originals.items():
            (ledger / name).write_bytes(content)
        assert whole(range(3)) == seen(ledger)
        compact(ledger, before=None)
        assert whole(range(3)) == seen(ledger)
        assert 1 == len(_names(ledger))
    assert 5 == step


def test_a_damaged_file_leaves_its_month_as_it_is(tmp_path: Path) -> None:
    add_runs(tmp_path, range(3))
    damaged, *_ = add_runs(tmp_path, range(3, 6), month=1)
    content = bytearray(damaged.read_bytes())
    content[1000] ^= 1
    damaged.write_bytes(content)

    done = compact(tmp_path, before=None)

    assert ["2026-01"] == [part.month for part in done.parts]
    assert [("damaged", damaged.name)] == [(one.kind, one.file) for one in done.problems]
    assert 4 == done.exit_code
    assert 1 + 3 == len(_names(tmp_path))
    with pytest.raises(LedgerError, match="not a readable ledger file"):
        compact_all(tmp_path)


def test_two_branches_that_compacted_the_same_files_wrote_the_same(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    add_runs(ours, range(3))
    shutil.copytree(ours, theirs)
    shutil.copytree(ours, tmp_path / "third")
    for ledger in (ours, theirs):
        compact(ledger, before=None)
    assert contents(ours) == contents(theirs)

    third = tmp_path / "third"
    add_run(third, 1000).rename(third / "20260102T000000Z-pytest-0000000003e8.parquet")
    compact(third, before=None)
    for file in third.glob("*.parquet"):
        shutil.copy(file, ours)

    assert 2 == len(_names(ours))
    assert whole([0, 1, 2, 1000]) == seen(ours)
    compact(ours, before=None)
    assert whole([0, 1, 2, 1000]) == seen(ours)
    assert 1 == len(_names(ours))


def test_a_run_is_not_left_out_for_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    add_runs(tmp_path, range(2))
    shutil.copytree(tmp_path, tmp_path / "branch")
    compact(tmp_path, before=None)
    (january,) = list_files(tmp_path).present
    add_runs(tmp_path / "branch", [2], month=1)
    compact_all(tmp_path / "branch")
    for file in (tmp_path / "branch").glob("*.parquet"):
        shutil.copy(file, tmp_path)
    add_run(tmp_path, 3, month=1)
    content = bytearray(january.read_bytes())
    content[1000] ^= 1
    january.write_bytes(content)

    done = compact(tmp_path, before=None)

    assert [january.name] == [one.file for one in done.problems]
    january.unlink()
    assert whole(range(4)) == seen(tmp_path)


def test_a_reader_begins_again_where_a_file_went(tmp_path: Path) -> None:
    add_runs(tmp_path, range(3))
    calls = []

    def read(files: Mapping[Path, frozenset[str]]) -> int:
        calls.append(len(files))
        if len(calls) == 1:
            compact(tmp_path, before=None)
        return sum(len(file.read_bytes()) > 0 for file in files)

    assert 1 == read_consistently(tmp_path, read)
    assert [3, 1] == calls
    with pytest.raises(ZeroDivisionError):
        read_consistently(tmp_path, lambda files: len(files) // 0)


def test_a_listing_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_runs(tmp_path, range(3))
    compacting = threading.Event()
    real = ledger_files_module._names

    def names(ledger: Path) -> frozenset[str]:
        if not compacting.is_set():
            compacting.set()
            before = real(ledger)
            compact(ledger, before=None)
            # What a slow reading of the folder may see: the new file not yet, an old one no more.
            return before & frozenset(sorted(before)[:1])
        return real(ledger)

    monkeypatch.setattr(ledger_files_module, "_names", names)

    assert 1 == len(list_files(tmp_path).present)
    assert whole(range(3)) == seen(tmp_path)
