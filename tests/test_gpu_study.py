"""The study for a machine with a GPU works: what can run on the CPU does, and no device is reported."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from perfkit.features.experiments.definition import read_experiment
from perfkit.ledger.store import Ledger

STUDY = Path(__file__).parent.parent / "benchmarks" / "gpu"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(STUDY))
    yield importlib.import_module("gpu_study")
    sys.modules.pop("gpu_study", None)


def test_without_a_device_it_reports_that(study: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a device")

    assert 2 == study.main([])
    printed = capsys.readouterr()
    assert ("", f"{study.NO_DEVICE}\n") == (printed.out, printed.err)


def test_operators_can_be_tried(study: ModuleType, tmp_path: Path) -> None:
    study.main(["--small", "--out", str(tmp_path), "--stage", "operators"])

    assert {"operators": "done"} == json.loads((tmp_path / "states.json").read_text())
    operators = [
        line for line in (tmp_path / "operators.md").read_text().splitlines() if line.startswith("| ")
    ]
    assert 2 + 10 == len(operators)
    recorded = {row.outcome.benchmark.name for row in Ledger(tmp_path / "ledger").rows()}
    assert 2 * 10 <= len(recorded)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["facts", "gates", "profile", "precision_images", "overhead", "residency"])
def test_the_other_stages_can_be_tried(study: ModuleType, tmp_path: Path, name: str) -> None:
    study.main(["--small", "--out", str(tmp_path), "--stage", name])

    assert {name: "done"} == json.loads((tmp_path / "states.json").read_text())
    assert (tmp_path / f"{name}.md").read_text()


@pytest.mark.parametrize("name", ["precision_images", "precision_small", "precision_text"])
def test_the_experiments_are_ones(name: str) -> None:
    experiment = read_experiment(STUDY / f"{name}.toml")

    assert "default" == experiment.factors[0].levels[0]
    assert {"accuracy", "loss"} <= dict(experiment.returned).keys()
