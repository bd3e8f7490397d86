"""Documents of studies hold what the studies kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest
from modules import BENCHMARKS, study_scripts

from perfkit.gating.recompute import judge_anew
from perfkit.ledger.store import Ledger
from perfkit.stats.bisection import Costs

MEASURED = Path(__file__).parent.parent / "docs" / "measured"


@pytest.fixture(scope="module")
def points() -> Iterator[Mapping[str, ModuleType]]:
    names = ("point_study", "point_tables", "detectors", "series", "plan", "neutral")
    with study_scripts(("calibration", "change_points"), names) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def bisects() -> Iterator[Mapping[str, ModuleType]]:
    names = ("bisect_study", "bisect_tables", "searches", "recorded", "plan", "neutral")
    with study_scripts(("calibration", "bisect"), names) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def others() -> Iterator[Mapping[str, ModuleType]]:
    """Return the scripts that tried perfkit on other people's libraries."""
    with study_scripts(("strangers",), ("strangers", "newcomers")) as loaded:
        yield loaded


def test_the_page_of_change_points(points: Mapping[str, ModuleType]) -> None:
    outcomes = json.loads((BENCHMARKS / "change_points/outcomes.json").read_text())

    assert (MEASURED / "change-points.md").read_text() == points["point_tables"].render(outcomes)
    again = points["point_study"].count_stepped((points["series"].HELD_OUT, True, 0.05, "perfkit"))
    assert again in outcomes["stepped"]


def test_the_page_of_bisections(bisects: Mapping[str, ModuleType]) -> None:
    study, document, tables = BENCHMARKS / "bisect", MEASURED / "bisect.md", bisects["bisect_tables"]
    outcomes = json.loads((study / "outcomes.json").read_text())

    assert document.read_text() == tables.render(document.read_text(), outcomes, tables.read_real(study))


def test_each_search_finds_what_can_hardly_be_missed(bisects: Mapping[str, ModuleType]) -> None:
    searches = bisects["searches"]
    given = searches.Range(study="none", hours="quiet", sizes=(0.5,), noise="normal", number=3)
    taken = {}
    for name, search in searches.SEARCHES.items():
        bench, ending = search(given, Costs(opening_s=4.0, launch_s=1.0))
        assert searches.is_exact(bench, ending), name
        assert ending.seconds == 4 * ending.pairs + ending.launches
        taken[name] = ending.launches

    assert (7, 7, 21) == tuple(
        taken[name] for name in ("asv find", "git bisect run, 1 launch", "git bisect run, median of 3")
    )
    assert 21 > taken["perfkit"]


@pytest.mark.parametrize("study", ["strangers", "newcomers"])
def test_the_page_of_other_libraries_follows_from_the_kept_launches(
    others: Mapping[str, ModuleType], study: str
) -> None:
    module, page = others[study], others["strangers"]
    outcomes = json.loads(module.OUTCOMES.read_text())
    kept = Ledger(page.LEDGER)
    gates = {name: one["gate"] for name, one in outcomes.items() if one["gate"]["run_id"]}

    assert "\n".join(module.table(outcomes)) in page.DOCUMENT.read_text()
    assert gates
    for name, gate in gates.items():
        rows = kept.rows_of(gate["run_id"])
        assert gate["verdicts"] == dict(Counter(one.verdict for one in judge_anew(rows, kept))), name


def test_newcomers_have_their_answer_within_five_minutes(others: Mapping[str, ModuleType]) -> None:
    newcomers = others["newcomers"]
    outcomes = json.loads(newcomers.OUTCOMES.read_text())

    assert outcomes
    for name, one in outcomes.items():
        assert one["init"]["seconds"] + one["gate"]["seconds"] < newcomers.LIMIT_S, name


def test_the_page_of_speeds_has_the_table_beside_other_tools() -> None:
    with study_scripts(("ledger_scale",), ("beside", "generate")) as scripts:
        kept = json.loads((BENCHMARKS / "ledger_scale/beside.json").read_text())

        assert scripts["beside"].table(kept) in (MEASURED / "speed.md").read_text()
    assert {"asv publish", "perfkit report", "perfkit log"} < kept["seconds"].keys()
