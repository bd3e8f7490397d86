"""The document on other libraries holds what was kept."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from perfkit.gating.recompute import judge_anew
from perfkit.ledger.store import Ledger

STRANGERS = Path(__file__).parent.parent / "benchmarks" / "strangers"


@pytest.fixture(scope="module")
def strangers() -> Iterator[ModuleType]:
    """Return the script that studied them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STRANGERS))
        yield importlib.import_module("strangers")


@pytest.fixture(scope="module")
def newcomers(strangers: ModuleType) -> Iterator[ModuleType]:
    """Return the script that began with perfkit in some of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(strangers.HERE))
        yield importlib.import_module("newcomers")


@pytest.mark.parametrize("study", ["strangers", "newcomers"])
def test_the_document_has_the_table_of_what_came_out(study: str, request: pytest.FixtureRequest) -> None:
    module = request.getfixturevalue(study)
    outcomes = json.loads(module.OUTCOMES.read_text())

    assert "\n".join(module.table(outcomes)) in request.getfixturevalue("strangers").DOCUMENT.read_text()


def test_newcomers_have_their_answer_within_five_minutes(newcomers: ModuleType) -> None:
    outcomes = json.loads(newcomers.OUTCOMES.read_text())

    assert outcomes
    for name, one in outcomes.items():
        assert one["init"]["seconds"] + one["gate"]["seconds"] < newcomers.LIMIT_S, name


@pytest.mark.parametrize("study", ["strangers", "newcomers"])
def test_the_kept_launches_lead_to_the_verdicts(
    study: str, request: pytest.FixtureRequest, strangers: ModuleType
) -> None:
    outcomes = json.loads(request.getfixturevalue(study).OUTCOMES.read_text())
    kept = Ledger(strangers.LEDGER)
    gates = {name: one["gate"] for name, one in outcomes.items() if one["gate"]["run_id"]}

    assert gates
    for name, gate in gates.items():
        rows = kept.rows_of(gate["run_id"])
        assert gate["verdicts"] == dict(Counter(one.verdict for one in judge_anew(rows, kept))), name
