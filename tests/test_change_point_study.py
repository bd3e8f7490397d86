"""The study of detectors of steps: its series are what it states, and its document is what came out."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
STUDY = ROOT / "benchmarks" / "change_points"
DOCUMENT = ROOT / "docs" / "measured" / "change-points.md"
_SCRIPTS = ("point_study", "point_tables", "detectors", "series", "plan", "neutral")


@pytest.fixture(scope="module")
def scripts() -> Iterator[Mapping[str, ModuleType]]:
    """Return the study's scripts, loaded as they load one another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STUDY.parent / "calibration"))
        patch.syspath_prepend(str(STUDY))
        yield {name: importlib.import_module(name) for name in _SCRIPTS}
    for name in _SCRIPTS:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def outcomes() -> Mapping[str, list[Any]]:
    """Return what came out of the study when it ran last."""
    return dict(json.loads((STUDY / "outcomes.json").read_text()))


def test_the_document_is_what_came_out(scripts: Mapping[str, ModuleType]) -> None:
    assert DOCUMENT.read_text() == scripts["point_tables"].render(
        json.loads((STUDY / "outcomes.json").read_text())
    )


def test_the_figures_are_of_this_detector(
    scripts: Mapping[str, ModuleType], outcomes: Mapping[str, list[Any]]
) -> None:
    study, held_out = scripts["point_study"], scripts["series"].HELD_OUT

    again = study.count_stepped((held_out, True, 0.05, "perfkit"))

    assert again in outcomes["stepped"]
