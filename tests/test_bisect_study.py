"""The study of bisects: its searches see the same ranges, and its document is what came out."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perfkit.stats.bisection import Costs

ROOT = Path(__file__).parent.parent
STUDY = ROOT / "benchmarks" / "bisect"
DOCUMENT = ROOT / "docs" / "measured" / "bisect.md"
_SCRIPTS = ("bisect_study", "bisect_tables", "searches", "recorded", "plan", "neutral")
_COSTS = Costs(opening_s=4.0, launch_s=1.0)


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
def outcomes() -> Mapping[str, Any]:
    """Return what came out of the study when it ran last."""
    return dict(json.loads((STUDY / "outcomes.json").read_text()))


def test_the_document_is_what_came_out(
    scripts: Mapping[str, ModuleType], outcomes: Mapping[str, Any]
) -> None:
    document, tables = DOCUMENT.read_text(), scripts["bisect_tables"]

    assert document == tables.render(document, outcomes, tables.read_real(STUDY))


def test_each_search_finds_what_can_hardly_be_missed(scripts: Mapping[str, ModuleType]) -> None:
    searches = scripts["searches"]
    given = searches.Range(study="none", hours="quiet", sizes=(0.5,), noise="normal", number=3)
    taken = {}
    for name, search in searches.SEARCHES.items():
        bench, ending = search(given, _COSTS)
        assert searches.is_exact(bench, ending), name
        assert ending.seconds == 4 * ending.pairs + ending.launches
        taken[name] = ending.launches

    assert (7, 7, 21) == tuple(
        taken[name] for name in ("asv find", "git bisect run, 1 launch", "git bisect run, median of 3")
    )
    assert 21 > taken["perfkit"]
