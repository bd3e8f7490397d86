"""The study of detectors of steps: its series are what it states, and its document is what came out."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from perfkit.stats.distributions import upper_bound

ROOT = Path(__file__).parent.parent
STUDY = ROOT / "benchmarks" / "change_points"
DOCUMENT = ROOT / "docs" / "measured" / "change-points.md"
_SCRIPTS = ("point_study", "point_tables", "detectors", "series", "plan", "neutral")
# Of these more than one series in a hundred has a step, as the document states.
_BEYOND = {"... by the whole sd", "every fifth run slow, at random"}


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


def test_the_levels_are_of_identical_code(scripts: Mapping[str, ModuleType]) -> None:
    series = scripts["series"]

    table = series.read_levels(series.HELD_OUT, "quickest")

    assert (160, 6) == table.shape
    assert 60 == np.isnan(table).sum()
    assert np.nanmax(np.abs(np.log(table / np.nanmedian(table, axis=0)))) < np.log(1.5)


def test_the_figures_are_of_this_detector(
    scripts: Mapping[str, ModuleType], outcomes: Mapping[str, list[Any]]
) -> None:
    study, held_out = scripts["point_study"], scripts["series"].HELD_OUT

    again = study.count_stepped((held_out, True, 0.05, "perfkit"))

    assert again in outcomes["stepped"]


def test_hardly_any_simulated_series_without_a_step_has_one(outcomes: Mapping[str, list[Any]]) -> None:
    own = [one for one in outcomes["simulated"] if one["detector"] == "perfkit"]

    shares = {one["noise"]: one["found"] / one["of"] for one in own}

    assert {10_000} == {one["of"] for one in own}
    assert set() == {noise for noise, share in shares.items() if share > 0.01} - _BEYOND


def test_no_window_of_held_out_code_has_a_step(outcomes: Mapping[str, list[Any]]) -> None:
    (own,) = (
        one
        for one in outcomes["null"]
        if (one["study"], one["level"], one["without_factor"], one["stride"], one["detector"])
        == ("2026-11-25", "quickest", True, 20, "perfkit")
    )

    assert (0, 24) == (own["found"], own["of"])
    assert upper_bound(own["found"], own["of"]) < 0.12


def test_held_out_steps_are_found_and_hardly_anything_else(outcomes: Mapping[str, list[Any]]) -> None:
    held_out = [one for one in outcomes["stepped"] if one["study"] == "2026-11-25" and one["without_factor"]]
    own = [one for one in held_out if one["detector"] == "perfkit"]

    assert [0.03, 0.05, 0.1] == [one["size"] for one in own]
    assert sum(one["right"] for one in own) / sum(one["points"] for one in own) >= 0.98
    assert all(one["exact"] / one["right"] >= 0.9 for one in own)
    found = {one["size"]: one["right"] for one in own}
    assert all(one["right"] <= found[one["size"]] for one in held_out if one["right"] / one["points"] >= 0.9)
    assert all(
        one["right"] < found[one["size"]]
        for one in held_out
        if one["detector"] in {"Otava", "asv", "fastcpd"}
    )
