"""The study of the gate's error rates followed its plan, and its document says what the kept rows say."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
CALIBRATION = ROOT / "benchmarks" / "calibration"
DOCUMENT = ROOT / "docs" / "calibration.md"
_SCRIPTS = ("plan", "study", "readme", "render")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """Return the study's scripts, loaded as they load one another."""
    monkeypatch.syspath_prepend(str(CALIBRATION))
    yield {name: importlib.import_module(name) for name in _SCRIPTS}
    for name in _SCRIPTS:
        sys.modules.pop(name, None)


def test_the_plan_is_the_one_that_was_promised(scripts: dict[str, ModuleType]) -> None:
    """A hundred gates of identical code, sixty plants of each dose, and one in each tenth call."""
    kinds = Counter(case.kind for case in scripts["plan"].plan_study())

    assert {
        "A/A": 100,
        "+3 % at margin 1 %": 60,
        "+5 % at margin 2 %": 60,
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
    """The texts of the doses that a case commits differ at one place."""
    for case in scripts["plan"].plan_study():
        base, head = (scripts["study"].doses(case, side).splitlines() for side in ("base", "head"))
        changed = [line for line, before in zip(head, base, strict=True) if line != before]

        if case.benchmark is None:
            assert [] == changed
        else:
            assert 1 == len(changed)
            assert f'"{case.benchmark}"' in changed[0]
            assert str(case.rare or case.head) in changed[0]


def test_a_plant_is_as_large_as_its_kind_says(scripts: dict[str, ModuleType]) -> None:
    """In whole units of work, to a tenth of a percent."""
    cases = [case for case in scripts["plan"].plan_study() if case.benchmark]

    assert {"+3 % at margin 1 %": {3.0}, "+5 % at margin 2 %": {5.0}, "+20 % in each tenth call": {20.0}} == {
        kind: {round(100 * ((one.rare or one.head) / one.base - 1), 1) for one in cases if one.kind == kind}
        for kind in {case.kind for case in cases}
    }


def test_a_gate_is_put_off_until_the_machine_is_fit(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits while doctor expects to miss the smallest plant, or cannot tell; a fit one is believed."""
    said: Iterator[list[float | None]] = iter([[0.02, 0.05], [0.02, None], [0.02, 0.029]])

    def doctor(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        noises = [{"effect": effect} for effect in next(said)]
        return subprocess.CompletedProcess(command, 0, stdout=json.dumps({"noises": noises}), stderr="")

    monkeypatch.setattr(subprocess, "run", doctor)
    fitness = scripts["study"].Fitness(put_off_s=0.0)

    assert 2 == fitness.await_fit()
    assert 0 == fitness.await_fit()


@pytest.mark.skipif(not DOCUMENT.exists(), reason="the study has not run yet")
def test_the_documents_are_what_the_rows_say(scripts: dict[str, ModuleType]) -> None:
    """The document and the table in the README, rendered anew from the committed rows, are the same text."""
    render, readme = scripts["render"], scripts["readme"]
    gates = render.read_gates(scripts["study"].DEFAULT_LEDGER)
    text = readme.README.read_text()

    assert DOCUMENT.read_text() == render.render(gates)
    assert text == readme.with_lines(text, render.PLACE, render.lines_for_readme(gates))
