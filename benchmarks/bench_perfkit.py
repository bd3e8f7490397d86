"""perfkit itself on years of measurements: whole commands, as a person waits for them, and what they rest on.

The small ledger, 1,000 runs of 100 benchmarks in as many files, is made by each session. The large ones, with
a million rows in 10,000 files and compacted, take minutes to make: where PERFKIT_SCALE names a folder, they
are made there once, and measured.
"""

import itertools
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from perfkit.identity import new_run_id
from perfkit.ledger.store import Ledger, Wanted
from perfkit.model import Row

SCALE = os.environ.get("PERFKIT_SCALE")
GENERATE = Path(__file__).parent / "ledger_scale/generate.py"
BENCHMARK = "benchmarks/bench_part_3.py::test_case_3[32]"
SMALL = "1000 runs"
LARGE = ["10000 runs", "10000 runs compacted"]
SIZES = [SMALL, *(LARGE if SCALE else [])]


def _generated(folder: Path, runs: int) -> Path:
    """Return a ledger of so many runs of 100 benchmarks, made if it is not there."""
    if not folder.exists():
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        subprocess.run([sys.executable, GENERATE, part, str(runs), "100"], check=True, capture_output=True)
        part.rename(folder)
    return folder


@pytest.fixture(scope="session")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Return the ledgers by the names of their sizes."""
    found = {SMALL: _generated(tmp_path_factory.mktemp("scale") / "small", 1000)}
    if SCALE:
        plain, compacted = (Path(SCALE) / name for name in ("plain", "compacted"))
        found[LARGE[0]] = _generated(plain, 10_000)
        if not compacted.exists():
            part = compacted.with_name("compacted.part")
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(plain, part)
            _perfkit(part, "ledger", "compact", "--all", "--ledger", str(part))
            part.rename(compacted)
        found[LARGE[1]] = compacted
    yield found
    shutil.rmtree(found[SMALL])


@pytest.fixture
def empty_project(tmp_path: Path) -> Path:
    """Return a folder with nothing configured, in no repository."""
    (tmp_path / "pyproject.toml").write_text("")
    return tmp_path


def _perfkit(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "perfkit", *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.mark.benchmark(group="perfkit")
@pytest.mark.parametrize("size", SIZES)
def test_ledger_list(
    benchmark: BenchmarkFixture, ledgers: dict[str, Path], empty_project: Path, size: str
) -> None:
    """All runs are read, and the last of them printed."""
    command = (empty_project, "ledger", "list", "--ledger", str(ledgers[size]))
    told = benchmark.pedantic(_perfkit, args=command, rounds=5, warmup_rounds=1)
    assert "pytest" in told


@pytest.mark.benchmark(group="perfkit")
@pytest.mark.parametrize("size", SIZES)
def test_log(benchmark: BenchmarkFixture, ledgers: dict[str, Path], empty_project: Path, size: str) -> None:
    """A row for each commit is rendered and written."""
    command = (empty_project, "log", "--ledger", str(ledgers[size]), "--out", "log.md")
    benchmark.pedantic(_perfkit, args=command, rounds=5, warmup_rounds=1)
    assert int(size.partition(" ")[0]) < len((empty_project / "log.md").read_text().splitlines())


@pytest.mark.benchmark(group="perfkit")
@pytest.mark.parametrize("size", SIZES)
def test_history(
    benchmark: BenchmarkFixture, ledgers: dict[str, Path], empty_project: Path, size: str
) -> None:
    """The history of one benchmark is read, searched for steps, and printed."""
    command = (empty_project, "history", BENCHMARK, "--ledger", str(ledgers[size]))
    told = benchmark.pedantic(_perfkit, args=command, rounds=5, warmup_rounds=1)
    assert "test_case_3[32]" in told


@pytest.mark.benchmark(group="perfkit")
@pytest.mark.parametrize("size", SIZES)
def test_trend(benchmark: BenchmarkFixture, ledgers: dict[str, Path], size: str) -> None:
    """One benchmark's runs are read from among those of a hundred."""
    ledger = Ledger(ledgers[size])
    found = benchmark.pedantic(
        ledger.trends, args=(Wanted(benchmarks=(BENCHMARK,)),), rounds=5, warmup_rounds=1
    )
    # A launch in a thousand fails.
    assert 0.99 * int(size.partition(" ")[0]) < sum(map(len, found.trends))


@pytest.mark.benchmark(group="perfkit")
@pytest.mark.parametrize("size", SIZES)
def test_append(benchmark: BenchmarkFixture, ledgers: dict[str, Path], size: str) -> None:
    """A run of 100 rows is published durably, whatever is there already."""
    ledger = Ledger(ledgers[size])
    rows = ledger.rows_of(ledger.runs()[0].run_id)
    days = itertools.count()

    def new_run() -> tuple[tuple[list[Row]], dict[str, object]]:
        at = datetime.now(UTC) + timedelta(seconds=next(days))
        return ([replace(row, run_id=new_run_id(), recorded_at=at) for row in rows[:1]] * 100,), {}

    appended = []
    benchmark.pedantic(
        lambda run: appended.append(ledger.append(run)), setup=new_run, rounds=10, warmup_rounds=1
    )
    for file in appended:
        file.unlink()
    assert len(appended) == 11


if SCALE:
    # These take from seconds to minutes each.

    @pytest.mark.benchmark(group="perfkit")
    def test_compact_a_million_rows(
        benchmark: BenchmarkFixture, ledgers: dict[str, Path], empty_project: Path
    ) -> None:
        """10,000 files become one for each month, in less than 2 GB."""
        copy = empty_project / "ledger"
        shutil.copytree(ledgers[LARGE[0]], copy)
        command = (empty_project, "ledger", "compact", "--all", "--ledger", str(copy))
        benchmark.pedantic(_perfkit, args=command, rounds=1)
        assert len(list(copy.glob("*.parquet"))) < 100
        assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2_000_000

    @pytest.mark.benchmark(group="perfkit")
    def test_report_a_million_rows(
        benchmark: BenchmarkFixture, ledgers: dict[str, Path], empty_project: Path
    ) -> None:
        """10,000 commits of 100 benchmarks become pages of less than 150 MB."""
        command = (empty_project, "report", "--ledger", str(ledgers[LARGE[1]]), "--out", "site")
        benchmark.pedantic(_perfkit, args=command, rounds=1)
        assert sum(file.stat().st_size for file in (empty_project / "site").rglob("*.*")) < 150_000_000

    @pytest.mark.benchmark(group="perfkit")
    def test_aggregate_100_million_rows(benchmark: BenchmarkFixture, ledgers: dict[str, Path]) -> None:
        """DuckDB alone reads the files of a compacted million, linked a hundred times, in less than 2 GB."""
        folder = Path(str(SCALE)) / "linked"
        for number in range(100):
            part = folder / f"{number:03}"
            part.mkdir(parents=True, exist_ok=True)
            for file in ledgers[LARGE[1]].glob("*.parquet"):
                if not (part / file.name).exists():
                    os.link(file, part / file.name)
        question = (
            "import duckdb, resource, sys; found = duckdb.sql("
            "f\"SELECT benchmark, count(*), avg(mean) FROM '{sys.argv[1]}/*/*.parquet' GROUP BY benchmark\""
            ").fetchall(); print(sum(row[1] for row in found));"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )

        def aggregate() -> str:
            command = [sys.executable, "-c", question, str(folder)]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        rows, kilobytes = benchmark.pedantic(aggregate, rounds=3).split()
        assert int(rows) == 100_000_000
        assert int(kilobytes) < 2_000_000
