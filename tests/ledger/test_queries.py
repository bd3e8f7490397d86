"""Questions see each row once, in any files, and name what is wrong with a file."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic import START, build_row

import perfkit
from perfkit.errors import LedgerError, UsageError
from perfkit.ledger.queries import Questions
from perfkit.ledger.schema import SCHEMA
from perfkit.ledger.store import Ledger, Wanted
from perfkit.model import Metric

OLD = Path(__file__).parent / "schema_1"


def _count(ledger: Path) -> int:
    ((found,),) = Questions(ledger).ask("SELECT count(*) FROM ledger")
    return int(found)


def test_an_empty_ledger_has_all_columns_and_no_row(tmp_path: Path) -> None:
    assert [] == Questions(tmp_path).ask('SELECT "values", causes, policy, counted FROM ledger')


def test_a_question_that_is_interrupted_is_an_interruption(tmp_path: Path) -> None:
    for number in range(30):
        Ledger(tmp_path).append([build_row(1.0, run=str(number))])
    reasons: set[type] = set()
    asking = False

    def interrupt(_: int, __: FrameType | None) -> None:
        # Beside the question it would end the tests. What a person sends is put off in the library's first
        # import, which aborts the process otherwise.
        if asking:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, interrupt)
    of_a_person = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        begun = time.perf_counter()
        _count(tmp_path)
        whole_s = time.perf_counter() - begun
        for tenth in range(1, 400):
            try:
                asking = True
                signal.setitimer(signal.ITIMER_REAL, whole_s * (0.1 + tenth % 10 / 10))
                found = _count(tmp_path)
                asking = False
            except KeyboardInterrupt as error:
                asking = False
                reasons.add(type(error.__cause__))
                if RuntimeError in reasons:
                    break
            else:
                assert 30 == found
    finally:
        asking = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGINT, of_a_person)

    assert {RuntimeError} <= reasons <= {RuntimeError, type(None)}


def test_files_of_several_versions_answer_together(tmp_path: Path) -> None:
    for file in OLD.glob("*.parquet"):
        shutil.copy(file, tmp_path)
    before = _count(tmp_path)
    Ledger(tmp_path).append([build_row(1.0, run="another")])

    assert before + 1 == _count(tmp_path)
    ((partial,),) = Questions(tmp_path).ask("SELECT count(*) FROM ledger WHERE partial IS NULL")
    assert before == partial


def test_the_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "a=b [1]* it's ünïcode qu\"ote a?b"
    Ledger(folder).append([build_row(1.0, 2.0)])

    assert 1 == _count(folder)
    assert [(1.0, 2.0)] == [row.outcome.values for row in Ledger(folder).rows()]


def test_a_foreign_file_is_named_even_if_the_question_passes_its_rows_over(tmp_path: Path) -> None:
    Ledger(tmp_path).append([build_row(1.0)])
    pq.write_table(pa.table({"a": [1]}), tmp_path / "foreign.parquet")

    with pytest.raises(LedgerError, match=r"foreign\.parquet is a parquet file but no ledger file"):
        Questions(tmp_path).ask("SELECT mean FROM ledger WHERE benchmark = 'x'")


def test_a_newer_schema_is_refused_and_named(tmp_path: Path) -> None:
    file = Ledger(tmp_path).append([build_row(1.0)])
    table = pq.read_table(file)
    column = pa.array([99] * len(table), pa.int32())
    pq.write_table(table.set_column(0, SCHEMA.field(0), column), tmp_path / "newer.parquet")

    with pytest.raises(LedgerError, match=r"newer\.parquet has ledger schema 99"):
        Questions(tmp_path).ask("SELECT count(*) FROM ledger")


def test_a_question_meets_files_that_are_compacted_meanwhile(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for number in range(12):
        ledger.append([build_row(run=f"run-{number:012}", minute=number)])
    counts: list[int] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            counts.append(_count(tmp_path))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(12, 18):
        ledger.append([build_row(run=f"run-{number:012}", minute=number)])
        ledger.compact()
    done.set()
    reader.join()

    assert counts
    assert set(counts) <= set(range(12, 19))
    assert sorted(counts) == counts


def test_a_persons_question_may_have_parts_of_its_own(tmp_path: Path) -> None:
    Ledger(tmp_path).append([build_row(1.0), build_row(3.0, launch=1)])

    frame = perfkit.open_ledger(tmp_path).sql(
        "WITH m AS (SELECT mean FROM ledger) SELECT avg(mean) a FROM m;"
    )

    assert [2.0] == frame["a"].tolist()


@pytest.mark.parametrize(
    "question", ["SELECT nothing FROM ledger", "DROP TABLE ledger", "SELECT 1; SELECT 2"]
)
def test_a_question_that_is_not_understood_is_the_persons_mistake(tmp_path: Path, question: str) -> None:
    Ledger(tmp_path).append([build_row(1.0)])

    with pytest.raises(UsageError, match="is not understood: ") as error:
        perfkit.open_ledger(tmp_path).sql(question)

    assert "\n" not in str(error.value)


def test_a_frame_has_what_was_asked_for(tmp_path: Path) -> None:
    Ledger(tmp_path).append(
        [
            build_row(1.0, name="b/x.py::test_a", sha="a" * 40),
            build_row(2.0, name="b/x.py::test_b", sha="a" * 40),
            build_row(3.0, name="b/x.py::test_a", sha="b" * 40, minute=5),
        ]
    )
    kept = perfkit.open_ledger(tmp_path)

    frame = kept.to_pandas(benchmark="test_a", columns=["mean", "commit"])

    assert ["mean", "commit"] == list(frame.columns)
    assert [1.0, 3.0] == frame["mean"].tolist()
    assert [3.0] == kept.to_pandas(benchmark="x.py::test_a", commit="bb")["mean"].tolist()
    assert [3.0] == kept.to_pandas(since=START + timedelta(minutes=1))["mean"].tolist()
    assert 0 == len(kept.to_pandas(source="gate"))
    with pytest.raises(UsageError, match='no column "men"'):
        kept.to_pandas(columns=["men"])


def test_rows_beside_two_commits_are_those_that_show_noise(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    kinds = {"a": ("one",), "b": ("two", "three"), "c": ("four",), "d": ("five", "six")}
    for number, (digit, runs) in enumerate(kinds.items()):
        for run in runs:
            dirty = run == "six"
            ledger.append([build_row(1.0, sha=digit * 40, run=run, minute=number, dirty=dirty)])
    counted = build_row(2.0, sha="b" * 40, run="two", minute=9)
    metric = replace(counted.outcome, metric=Metric(name="peak", unit="B", exact=True))
    ledger.append([replace(counted, outcome=metric)])

    assert ["one", "three", "two"] == [row.run_id for row in ledger.rows_beside({"a" * 40})]
    assert ["three", "two", "four", "two"] == [row.run_id for row in ledger.rows_beside({"b" * 40, "c" * 40})]


def test_a_run_is_one_place_of_a_series(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.append([build_row(value, value, launch=n, run="one") for n, value in enumerate((1.0, 2.0, 3.0))])
    ledger.append([build_row(5.0, 7.0, run="two", minute=1)])
    ledger.append([build_row(9.0, run="dirty", minute=2, dirty=True)])
    ledger.append([build_row(run="failed", minute=3, status="error")])

    frame = ledger.series("test_a")

    assert ["one", "two"] == frame["run_id"].tolist()
    assert [3, 1] == frame["launches"].tolist()
    assert [2.0, 6.0] == frame["mean"].tolist()
    assert [1.0, pytest.approx(2**0.5)] == frame["sd"].tolist()
    assert [1.5, 5.0] == frame["level"].tolist()


def test_trends_part_what_cannot_be_compared(tmp_path: Path) -> None:
    rows = [
        build_row(1.0),
        build_row(1.0, version="v2"),
        build_row(1.0, source="gate", side="head"),
        replace(build_row(1.0), machine=replace(build_row(1.0).machine, machine_id="m2")),
        replace(
            build_row(1.0),
            outcome=replace(build_row(1.0).outcome, metric=Metric(name="peak", unit="B", exact=True)),
        ),
    ]
    Ledger(tmp_path).append(rows)

    trends = Ledger(tmp_path).trends(Wanted()).trends

    assert [("v1", "m1", False), ("v1", "m1", True), ("v1", "m2", False), ("v2", "m1", False)] == [
        (trend.version, trend.machine_id, trend.lockstep) for trend in trends
    ]
    (peak,) = Ledger(tmp_path).trends(Wanted(metric="peak")).trends
    assert ("B", True) == (peak.metric.unit, peak.metric.exact)
