"""Asks what ``perfkit history`` and its pages report of 400 simulated charts: ``seen.py [NUMBER...]``.

A chart has 30 runs of six benchmarks, a day and a commit apart. One benchmark or all become 5 to 20 % slower
or faster at one commit, by four or more deviations of single runs, three or more runs before the end. A
quarter has outliers, a quarter a machine that slowly becomes slower, a quarter both. The last 200 are the
same without a change. Without numbers it keeps what was reported in ``labels.json``, and writes
``docs/measured/labels.md``.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from labels import DOCUMENT, OUTCOMES, filled, keep
from repositories import Repository, create_repository
from synthetic import build_row

from perfkit.commands import history
from perfkit.config import load_project
from perfkit.features.site.series import series_of, state_of
from perfkit.ledger.store import Ledger
from perfkit.model import Row
from perfkit.model.history import HistoryReport
from perfkit.report.history import history_verdict
from perfkit.stats.change_points import FloatArray

# The charts before these were there while the rules were made.
CHARTS, FLAT, RUNS = range(1000, 1200), range(1200, 1400), 30
BENCHMARKS = tuple(f"benchmarks/bench_a.py::test_{name}" for name in "abcdef")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NEAR = 2


def main() -> None:
    """Draw all charts, or those whose numbers are given, and keep what was reported of them."""
    with tempfile.TemporaryDirectory() as folder:
        found = list(ask(Path(folder), [int(one) for one in sys.argv[1:]] or (*CHARTS, *FLAT)))
    for one in found:
        if one["reported"] < one["of"] or one["steady"] or one["false"]:
            print(json.dumps(one))
    if len(sys.argv) == 1:
        kept = {**json.loads(OUTCOMES.read_text()), "charts": {str(one["number"]): one for one in found}}
        keep(kept)
        DOCUMENT.write_text(filled(DOCUMENT.read_text(), kept))


def ask(folder: Path, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Yield what is reported of charts, in a new repository in a folder."""
    repository = Repository(folder, create_repository(folder))
    shas = [repository.commit({"model.py": f"N = {run}\n"}, f"Change {run}") for run in range(RUNS)]
    history.utc_now = lambda: BEGIN + timedelta(days=RUNS + 1)  # type: ignore[attr-defined]
    project = load_project(folder)
    for number in numbers:
        chart, levels = draw(number)
        ledger = folder / "ledgers" / str(number)
        Ledger(ledger).append(list(_rows(levels, shas)))
        report = history.read_history(project, ledger)
        yield {**chart, **what_is_reported(report, chart, shas)}


def draw(number: int) -> tuple[dict[str, Any], FloatArray]:
    """Return a chart's facts, and its levels: runs x benchmarks."""
    source = np.random.default_rng([20261127, number])
    size = math.exp(source.uniform(math.log(1.05), math.log(1.2))) - 1
    sd = min(source.uniform(0.003, 0.02), size / 4)
    place = int(source.integers(6, RUNS - 2))
    slower = bool(source.random() < 3 / 4)
    shared, outliers, drift = bool(number & 1), bool(number & 2), bool(number & 4)
    logs = sd * source.standard_normal((RUNS, len(BENCHMARKS))) + sd / 2 * source.standard_normal((RUNS, 1))
    if outliers:
        logs += (source.random((RUNS, 1)) < 1 / 15) * source.uniform(0.1, 0.5, (RUNS, 1))
        logs += (source.random(logs.shape) < 1 / 30) * source.uniform(0.1, 0.5, logs.shape)
    if drift:
        logs += np.linspace(0, source.uniform(0.01, 0.03), RUNS)[:, None]
    moved = slice(None) if shared else slice(0, 1)
    logs[place:, moved] += math.log1p(size) * (1 if slower else -1) * (number not in FLAT)
    facts = {"number": number, "size": round(size, 3), "sd": round(sd, 4), "place": place, "slower": slower}
    return {**facts, "shared": shared, "outliers": outliers, "drift": drift}, 0.01 * np.exp(logs)


def _rows(levels: FloatArray, shas: list[str]) -> Iterator[Row]:
    for run, sha in enumerate(shas):
        for name, level in zip(BENCHMARKS, levels[run], strict=True):
            row = build_row(float(level), name=name, sha=sha, run=f"run-{run:012}")
            yield replace(row, recorded_at=BEGIN + timedelta(days=run))


def what_is_reported(report: HistoryReport, chart: Mapping[str, Any], shas: list[str]) -> dict[str, Any]:
    """Return for how many benchmarks the change is reported, and whether any of them is called steady."""
    moved = () if chart["number"] in FLAT else BENCHMARKS if chart["shared"] else BENCHMARKS[:1]
    near = shas[chart["place"] - NEAR : chart["place"] + NEAR + 1]
    clear = [(one.benchmark, one.first_after, one.ratio) for one in report.points if one.is_open]
    probable = [(one.benchmark, one.until, one.ratio) for one in report.rises if one.kind == "step"]
    sure, reported = (
        {name for name, sha, ratio in found if sha in near and (ratio > 1) == chart["slower"]}
        for found in (clear, clear + probable)
    )
    kinds = {state_of(one).kind for one in series_of(report) if one.benchmark in moved}
    return {
        "reported": len(reported.intersection(moved)),
        "sure": len(sure.intersection(moved)),
        "of": len(moved),
        "steady": bool(kinds & {"steady", "undone", "few"})
        or (bool(moved) and history_verdict(report).startswith("Nothing")),
        "possible": len({one.benchmark for one in report.rises if one.kind == "possible step"}),
        "false": len({name for name, *_ in clear + probable}.difference(moved)),
    }


if __name__ == "__main__":
    main()
