"""Other tools read a ledger as documented, files of older versions among them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from synthetic import build_row

from perfkit.ledger.store import Ledger

DOCUMENT = Path(__file__).parents[2] / "docs/other-tools.md"
OLD = Path(__file__).parent / "schema_1"
Seconds = Mapping[str, float]
# How the answer of each tool becomes seconds by benchmark.
TOOLS: Mapping[str, Callable[[Any], Seconds]] = {
    "duckdb": lambda answer: dict(answer.fetchall()),
    "polars": lambda answer: dict(answer.rows()),
    "dask.dataframe": lambda answer: answer.to_dict(),
    "pyspark": lambda answer: {row.benchmark: row.seconds for row in answer.collect()},
}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Return a ledger with files of two schema versions, a failure and a count."""
    folder = tmp_path / "benchmarks/ledger"
    folder.mkdir(parents=True)
    for file in OLD.glob("*.parquet"):
        shutil.copy(file, folder)
    ledger = Ledger(folder)
    ledger.append([build_row(0.5, 0.7, run="run-3"), build_row(0.3, run="run-3", name="bench_b.py::test_b")])
    ledger.append([build_row(run="run-4", minute=1, status="error", message="ValueError: no")])
    return ledger


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_reads_a_ledger_as_documented(
    ledger: Ledger, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(tool)
    monkeypatch.chdir(ledger.path.parents[1])
    names: dict[str, Any] = {}

    exec(_block(tool), names)  # noqa: S102 (the document's own lines are the test)

    assert _expected(ledger) == pytest.approx(dict(TOOLS[tool](names["seconds"])))


def _block(tool: str) -> str:
    blocks = re.findall(r"^```py\n(.*?)^```", DOCUMENT.read_text(), flags=re.MULTILINE | re.DOTALL)
    (found,) = (block for block in blocks if re.search(rf"^(import|from) {re.escape(tool)}\b", block))
    return str(found)


def _expected(ledger: Ledger) -> Seconds:
    means: dict[str, list[float]] = {}
    for row in ledger.rows():
        if row.outcome.metric.name == "time" and row.outcome.status == "ok":
            values = row.outcome.values
            means.setdefault(row.outcome.benchmark.name, []).append(sum(values) / len(values))
    assert len(means) > 1
    return {name: sum(found) / len(found) for name, found in means.items()}
