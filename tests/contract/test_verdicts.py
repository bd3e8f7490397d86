"""The verdicts of every gate whose rows are kept in this repository follow from those rows alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from perfkit.gating.rows import exact_comparisons_of, judge_anew
from perfkit.ledger.store import Ledger
from perfkit.model import GATES
from perfkit.model.comparisons import Estimate

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).with_name("verdicts.json")
LEDGERS = ("calibration/ledger/2026-11-23", "calibration/ledger/2026-11-25", "strangers/ledger")
# Every so many gates are kept, and half of them compared number by number in each run; all by `make slow`.
_EVERY = 16
# Sums may be added up in another order; an interval that knows nothing is as wide as 10 to the 100.
_DIGITS = 6


@pytest.mark.parametrize("name", LEDGERS)
def test_kept_rows_lead_to_the_same_verdicts(name: str) -> None:
    kept = json.loads(KEPT.read_text())[name]

    found = verdicts_of(name, every=2 * _EVERY)
    assert found == {gate: kept["some"][gate] for gate in found}
    assert len(found) >= len(kept["some"]) // 2


@pytest.mark.slow
@pytest.mark.parametrize("name", LEDGERS)
def test_all_kept_rows_lead_to_the_same_verdicts(name: str) -> None:
    kept = json.loads(KEPT.read_text())[name]

    assert kept["all"] == _digest(verdicts_of(name, every=1))


def verdicts_of(name: str, *, every: int) -> dict[str, dict[str, list[object]]]:
    """Return the verdicts of the gates in a ledger, by the id of their run."""
    ledger = Ledger(ROOT / "benchmarks" / name)
    gates = [run.run_id for run in ledger.runs() if run.source in GATES]
    found: dict[str, dict[str, list[object]]] = {}
    for gate in gates[::every]:
        rows = ledger.rows_of(gate)
        found[gate] = {}
        for one in judge_anew(rows, ledger):
            found[gate][one.benchmark.name] = [one.verdict, *_numbers(one.estimate)]
        for count in exact_comparisons_of(rows):
            found[gate][f"{count.benchmark.name} {count.metric.name}"] = [count.verdict, count.gating]
    return found


def _numbers(estimate: Estimate | None) -> list[float]:
    if estimate is None:
        return []
    return [float(f"{one:.{_DIGITS}g}") for one in (estimate.ratio, estimate.low, estimate.high)]


def _digest(verdicts: object) -> str:
    return hashlib.sha256(json.dumps(verdicts, sort_keys=True).encode()).hexdigest()


if __name__ == "__main__":
    present = {
        name: {"some": verdicts_of(name, every=_EVERY), "all": _digest(verdicts_of(name, every=1))}
        for name in LEDGERS
    }
    KEPT.write_text(json.dumps(present, sort_keys=True) + "\n")
