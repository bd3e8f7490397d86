"""The study of the gate's error rates: what was planned, and what the document says of the kept rows."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
CALIBRATION = ROOT / "benchmarks" / "calibration"
DOCUMENT = ROOT / "docs" / "calibration.md"
_SCRIPTS = ("plan", "study", "render")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """Return the study's scripts, loaded as they load one another."""
    monkeypatch.syspath_prepend(str(CALIBRATION))
    yield {name: importlib.import_module(name) for name in _SCRIPTS}
    for name in _SCRIPTS:
        sys.modules.pop(name, None)


def test_the_plan_is_the_one_that_was_promised(scripts: dict[str, ModuleType]) -> None:
    """Twenty gates of identical code, ten plants of each dose, and one in each tenth call."""
    kinds = Counter(case.kind for case in scripts["plan"].plan_study())

    assert {
        "A/A": 20,
        "+3 % at margin 1 %": 10,
        "+5 % at margin 2 %": 10,
        "+20 % in each tenth call": 1,
    } == kinds


def test_plants_rotate_over_all_benchmarks(scripts: dict[str, ModuleType]) -> None:
    """No benchmark gets a second plant of a dose before every other has had its first."""
    plan = scripts["plan"]
    for kind in ("+3 % at margin 1 %", "+5 % at margin 2 %"):
        planted = Counter(case.benchmark for case in plan.plan_study() if case.kind == kind)

        assert set(plan.BENCHMARKS) == set(planted)
        assert max(planted.values()) - min(planted.values()) <= 1


def test_a_resumed_study_knows_its_cases(scripts: dict[str, ModuleType]) -> None:
    """The plan is the same each time it is asked, and no two cases share the subject they are known by."""
    plan = scripts["plan"]

    assert plan.plan_study() == plan.plan_study()
    assert len({case.subject for case in plan.plan_study()}) == len(plan.plan_study())


def test_a_dose_changes_the_planted_benchmark_alone(scripts: dict[str, ModuleType]) -> None:
    """The text of the doses that a case commits has its units at one place."""
    undosed = (CALIBRATION / "suite" / "doses.py").read_text().splitlines()
    for case in scripts["plan"].plan_study():
        dosed = scripts["study"].doses(case).splitlines()
        changed = [line for line, before in zip(dosed, undosed, strict=True) if line != before]

        if case.benchmark is None:
            assert [] == changed
        else:
            assert 1 == len(changed)
            assert f'"{case.benchmark}"' in changed[0]
            assert str(case.rare or case.units) in changed[0]


@pytest.mark.skipif(not DOCUMENT.exists(), reason="the study has not run yet")
def test_the_document_is_what_the_rows_say(scripts: dict[str, ModuleType]) -> None:
    """The committed table, rendered anew from the committed rows, is the same text."""
    render = scripts["render"]

    assert DOCUMENT.read_text() == render.render(render.read_gates(scripts["study"].DEFAULT_LEDGER))
