"""The ledger on disk is append-only and durable, and damage to it is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_rows import rows
from synthetic import build_row

from perfkit.errors import LedgerError
from perfkit.ledger.schema import from_table, to_table
from perfkit.ledger.store import Ledger
from perfkit.model import Row


@settings(max_examples=30)
@given(st.lists(rows, min_size=1, max_size=3))
def test_rows_survive_the_table(sample: list[Row]) -> None:
    assert sample == from_table(to_table(sample))


def test_a_ledger_is_written_without_pandas(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from synthetic import build_row\n"
        "from perfkit.ledger.store import Ledger\n"
        "Ledger(Path(sys.argv[1])).append([build_row(1.0, run='r1')])\n"
        "sys.exit(', '.join({'pandas', 'pyarrow.compute'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stderr
    assert 1 == len(Ledger(tmp_path).rows())


def test_each_append_is_one_new_file(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    first = ledger.append([build_row(1.0, run="r1")])
    content = first.read_bytes()
    second = ledger.append([build_row(2.0, run="r2"), build_row(3.0, run="r2", launch=1)])

    assert [first, second] == ledger.files()
    assert content == first.read_bytes()
    assert ["r1", "r2", "r2"] == [found.run_id for found in ledger.rows()]
    assert [] == [path.name for path in ledger.path.iterdir() if path.suffix != ".parquet"]
    with pytest.raises(LedgerError, match="without a single row"):
        ledger.append([])


def test_a_half_file_is_named_and_the_others_stay(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    whole = ledger.append([build_row(1.0, run="r1")])
    half = ledger.append([build_row(2.0, run="r2", minute=1)])
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])

    with pytest.raises(LedgerError, match=f"{half} is not a readable ledger file") as caught:
        ledger.rows()

    assert "\n" not in str(caught.value)
    assert whole.exists()


def test_an_unwritable_place_is_refused_beforehand(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(LedgerError, match="choose another place with --ledger PATH"):
        Ledger(tmp_path / "file" / "ledger").check_writable()


def test_a_ledger_is_not_begun_before_there_is_a_row(tmp_path: Path) -> None:
    Ledger(tmp_path / "benchmarks/ledger").check_writable()

    assert not list(tmp_path.iterdir())


def test_a_run_is_found_by_either_end_of_its_id(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.append([build_row(1.0, run="0199-aaaa")])
    ledger.append([build_row(2.0, run="0199-bbbb", minute=1)])

    assert "0199-aaaa" == ledger.rows_of("aaaa")[0].run_id
    with pytest.raises(LedgerError, match="could mean 2 runs"):
        ledger.rows_of("0199")
    with pytest.raises(LedgerError, match='no run "cccc"'):
        ledger.rows_of("cccc")


def test_rows_on_some_commits_are_found_in_any_file(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for number in range(4):
        ledger.append(
            [build_row(run=f"{number}", minute=number, sha=sha) for sha in ("a" * 40, f"{number}" * 40)]
        )

    found = ledger.rows_on({"1" * 40, "3" * 40})

    assert [("1", "1" * 40), ("3", "3" * 40)] == [(row.run_id, row.commit.sha) for row in found]
    assert ledger.rows() == ledger.rows_on({row.commit.sha for row in ledger.rows()})
    assert [] == ledger.rows_on({"b" * 40})


def test_a_damaged_file_is_not_passed_over_for_having_no_such_rows(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    whole = ledger.append([build_row()]).read_bytes()

    for content in (whole[: len(whole) // 2], b""):
        (tmp_path / "half.parquet").write_bytes(content)
        with pytest.raises(LedgerError, match="is not a readable ledger file"):
            ledger.rows_on({"b" * 40})
    pq.write_table(pa.table({"x": [1]}), tmp_path / "half.parquet")
    with pytest.raises(LedgerError, match="no ledger file"):
        ledger.rows_on({"b" * 40})
