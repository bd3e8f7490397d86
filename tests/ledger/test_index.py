"""The index answers as the files do, though they changed since it was made."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from synthetic import build_row

from perfkit.errors import LedgerError
from perfkit.ledger.queries import INDEX_FOLDER, Index, Questions
from perfkit.ledger.store import Ledger, Wanted

# So few are enough for an index here; a real one is made of more.
FEWEST_FILES = 8
FILES = FEWEST_FILES + 4


@pytest.fixture(autouse=True, scope="module")
def _few_are_enough() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("perfkit.ledger.queries.FEWEST_FILES", FEWEST_FILES)
        yield


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a ledger of a few more files than are read without an index."""
    folder = tmp_path_factory.mktemp("many")
    for number in range(FILES):
        rows = [
            build_row(1.0 + number, 3.0 + number, run=f"run-{number:012}", minute=number, sha=f"{number:040}")
        ]
        Ledger(folder).append(rows)
    # The first question only makes the folder of the index.
    Ledger(folder).runs()
    assert [] == _parts(folder)
    return folder


@pytest.fixture
def ledger(template: Path, tmp_path: Path) -> Iterator[Path]:
    """Return a copy of it."""
    folder = tmp_path / "it's a ledger"
    shutil.copytree(template, folder)
    yield folder
    # Some tests take the right to write away.
    folder.chmod(0o755)


def _runs(ledger: Path) -> list[str]:
    return [run.run_id for run in Ledger(ledger).runs()]


def _parts(ledger: Path) -> list[Path]:
    return sorted((ledger / INDEX_FOLDER).glob("*.parquet"))


def test_an_answer_by_the_index_is_that_of_the_files(ledger: Path) -> None:
    with_index = (
        Ledger(ledger).runs(),
        Ledger(ledger).trends(Wanted()),
        Ledger(ledger).measurements(["test_a"]),
    )
    assert 1 == len(_parts(ledger))
    assert "*\n" == (ledger / INDEX_FOLDER / ".gitignore").read_text()
    alone = ledger / "alone"
    alone.mkdir()
    for file in sorted(ledger.glob("*.parquet"))[: FEWEST_FILES - 1]:
        shutil.copy(file, alone)
    by_files = Ledger(alone).runs()

    assert by_files == with_index[0][: FEWEST_FILES - 1]
    assert FILES == len(with_index[1].trends[0])
    assert [1.0 + number for number in range(FILES)] == list(with_index[1].trends[0].levels)
    assert [2.0 + number for number in range(FILES)] == [one.mean for one in with_index[2].measured]
    assert {str(file) for file in ledger.glob("*.parquet")} == set(with_index[1].files.values())


def test_the_ledger_that_one_stands_in_has_the_rows_of_its_full_path(
    ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _runs(ledger)
    assert 1 == len(_parts(ledger))
    monkeypatch.chdir(ledger)
    here = Ledger(Path())
    sha = f"{5:040}"

    assert Ledger(ledger).rows_on([sha]) == here.rows_on([sha])
    assert ["run-000000000005"] == [row.run_id for row in here.rows_on([sha])]
    assert ["run-000000000005"] == [row.run_id for row in here.rows_of("run-000000000005")]
    assert FILES == len(here.rows_from("pytest"))
    assert ["run-000000000000"] == here.runs_in(here.files()[0])


def test_new_files_are_read_beside_it(ledger: Path) -> None:
    _runs(ledger)
    Ledger(ledger).append([build_row(1.0, run="another-0001", minute=FILES)])

    assert "another-0001" == _runs(ledger)[-1]
    assert 1 == len(_parts(ledger))


def test_files_that_are_gone_are_gone_from_answers(ledger: Path) -> None:
    _runs(ledger)
    for file in sorted(ledger.glob("*.parquet"))[:5]:
        file.unlink()

    assert FILES - 5 == len(_runs(ledger))
    assert "run-000000000005" == _runs(ledger)[0]


def test_a_file_that_was_cut_short_since_is_named(ledger: Path) -> None:
    _runs(ledger)
    file = sorted(ledger.glob("*.parquet"))[3]
    file.write_bytes(file.read_bytes()[:-10])

    with pytest.raises(LedgerError, match=file.name):
        _runs(ledger)


@pytest.mark.skipif(os.geteuid() == 0, reason="everything may be written by root")
def test_a_ledger_that_cannot_be_written_is_read(ledger: Path) -> None:
    ledger.chmod(0o555)

    assert FILES == len(_runs(ledger))


@pytest.mark.parametrize("damage", ["cut", "folder"])
def test_a_damaged_index_is_none(ledger: Path, damage: str) -> None:
    _runs(ledger)
    (part,) = _parts(ledger)
    content = part.read_bytes()
    part.unlink()
    if damage == "cut":
        part.write_bytes(content[: len(content) // 2])
    else:
        part.mkdir()

    assert FILES == len(_runs(ledger))


def test_parts_that_repeat_one_another_count_once(ledger: Path) -> None:
    _runs(ledger)
    (part,) = _parts(ledger)
    stem, _, checksum = part.stem.rpartition("-")
    shutil.copy(part, part.with_name(f"{stem}0-{checksum}.parquet"))

    assert FILES == len(_runs(ledger))
    assert 1 == len(Index.of(ledger).parts)


def test_many_parts_become_one(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit.ledger.queries.FEWEST_FILES", 1)
    for number in range(12):
        Ledger(ledger).append([build_row(1.0, run=f"more-{number:012}", minute=FILES + number)])
        assert FILES + number + 1 == len(_runs(ledger))

    assert len(_parts(ledger)) < 9
    ((counted,),) = Questions(ledger).ask("SELECT count(*) FROM ledger")
    assert FILES + 12 == counted
