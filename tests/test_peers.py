"""The comparison with other tools is planned, their output is read, and its table is right."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from perfkit.ledger.store import Ledger

FOLDER = Path(__file__).parent.parent / "benchmarks"
OUTCOMES = FOLDER / "peers" / "outcomes.jsonl"
_SCRIPTS = ("neutral", "plan", "study", "readme", "pairs", "tools", "contest", "table")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """Return the scripts, loaded as they load one another."""
    for folder in ("calibration", "peers"):
        monkeypatch.syspath_prepend(str(FOLDER / folder))
    yield {name: importlib.import_module(name) for name in _SCRIPTS}
    for name in _SCRIPTS:
        sys.modules.pop(name, None)


def test_each_benchmark_is_planted_twice_among_as_many_identical_pairs(
    scripts: dict[str, ModuleType],
) -> None:
    """Twelve pairs of each kind, and the plan is the same each time it is asked."""
    pairs = scripts["pairs"].plan_pairs()

    planted = Counter(pair.case.benchmark for pair in pairs)
    assert {None: 12, **dict.fromkeys(scripts["plan"].SIX, 2)} == planted
    assert pairs == scripts["pairs"].plan_pairs()


def test_each_tool_has_each_turn_equally_often(scripts: dict[str, ModuleType]) -> None:
    """No tool is always measured while the machine is still cold, or already warm."""
    pairs = scripts["pairs"].plan_pairs()
    for turn, _ in enumerate(scripts["pairs"].TOOLS):
        assert dict.fromkeys(scripts["pairs"].TOOLS, 6) == Counter(pair.tools[turn] for pair in pairs)


def test_the_lines_of_the_tools_are_read(scripts: dict[str, ModuleType]) -> None:
    """As they print them in the versions that are pinned."""
    tools = scripts["tools"]
    asv = [
        "| -        | 26.6±10ms  | 8.34±5ms | 0.31    | works.Allocation.time_allocation |",
        "|          | 47.9±8ms   | 53.5±9ms | ~1.12   | works.Loading.time_loading       |",
        "| +        | 7.01±0.1ms | 7.4±0.1ms | 1.05    | works.Tensor.time_tensor       |",
        "| Change   | Before [4227e1f4] <main> | After | Ratio   | Benchmark (Parameter) |",
    ]
    pytest_said = "\ttest_python (0001_base) - Field 'mean' has failed PercentageRegressionCheck: 5.1 > 2.0"
    pyperf = (
        "training: Mean +- std dev: [a] 32.4 ms +- 9.9 ms -> [b] 59.2 ms +- 19.4 ms: 1.83x slower\n"
        "python: Mean +- std dev: [a] 477 us +- 100 us -> [b] 333 us +- 21 us: 1.43x faster\n"
        "Benchmark hidden because not significant (4): tensor, loss, loading, allocation\n"
        "Geometric mean: 1.32x faster\n"
    )

    found = [line.groups() if (line := tools._ASV_LINE.match(text)) else None for text in asv]
    assert [("-", "allocation"), ("", "loading"), ("+", "tensor"), None] == found
    assert ["python"] == tools._PYTEST_LINE.findall(pytest_said)
    assert [("training", "1.83", "slower"), ("python", "1.43", "faster")] == tools._PYPERF_LINE.findall(
        pyperf
    )


def test_the_readme_has_the_table_once_all_pairs_have_run(scripts: dict[str, ModuleType]) -> None:
    """A pair has run when each tool has had its turn, even one that broke."""
    table = scripts["table"]
    outcomes = [
        {"pair": pair.number, "tool": tool, "error": "broke"}
        for pair in scripts["pairs"].plan_pairs()
        for tool in pair.tools
    ]

    assert "| perfkit | - | - | - | - | - |" in table.lines_for_readme(outcomes)
    assert [] == table.lines_for_readme(outcomes[1:])


def test_a_place_in_the_readme_is_filled_and_all_else_stays(scripts: dict[str, ModuleType]) -> None:
    """Filling it twice is filling it once; a README without the place is refused."""
    with_lines, place = scripts["readme"].with_lines, scripts["table"].PLACE
    readme = scripts["readme"].README.read_text()

    once = with_lines(readme, place, ["| a |", "| b |"])
    assert f"<!-- begin: {place} -->\n| a |\n| b |\n<!-- end: {place} -->\n" in once
    assert once == with_lines(once, place, ["| a |", "| b |"])
    assert readme.partition(f"<!-- begin: {place}")[0] == once.partition(f"<!-- begin: {place}")[0]
    assert readme.partition(f"<!-- end: {place}")[2] == once.partition(f"<!-- end: {place}")[2]
    with pytest.raises(SystemExit, match="no place for this: <!-- begin: make peers -->"):
        with_lines("# perfkit\n", place, [])


@pytest.mark.skipif(not OUTCOMES.exists(), reason="the contest has not run yet")
def test_the_documents_are_what_the_tools_said(scripts: dict[str, ModuleType]) -> None:
    """The document and the table in the README, rendered anew from the kept outcomes, are the same."""
    table, outcomes = scripts["table"], scripts["contest"].read_outcomes()

    assert table.DOCUMENT.read_text() == table.render(
        outcomes, table.name_machines(Ledger(table.LEDGER).rows())
    )
    readme = scripts["readme"].README.read_text()
    assert readme == scripts["readme"].with_lines(readme, table.PLACE, table.lines_for_readme(outcomes))


def test_medians_of_asv_are_read_from_its_files(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    """They stand in the file of a commit, unrounded."""
    kept = {
        "result_columns": ["result", "params"],
        "results": {"works.Loss.time_loss": [[0.0125], []], "works.Python.time_python": [[3e-05], []]},
    }
    place = tmp_path / "results" / "machine"
    place.mkdir(parents=True)
    (place / "0123abcd-virtualenv.json").write_text(json.dumps(kept))
    scene = SimpleNamespace(asv_folder=tmp_path)

    assert {"loss": 0.0125, "python": 3e-05} == scripts["tools"]._asv_medians(scene, "0123abcd" + 32 * "0")


def test_the_table_counts_what_each_tool_said(scripts: dict[str, ModuleType]) -> None:
    """Accusations of identical pairs, plants found alone, errors of size; a tool that broke is named."""
    common = {"faster": [], "ratios": {"loss": 1.06}, "wall_s": 60.0}
    outcomes = [
        {"pair": 1, "benchmark": None, "tool": "perfkit", "slower": [], **common},
        {"pair": 2, "benchmark": "loss", "tool": "perfkit", "slower": ["loss"], **common},
        {"pair": 1, "benchmark": None, "tool": "asv", "slower": ["loss"], **common, "faster": ["python"]},
        {"pair": 2, "benchmark": "loss", "tool": "asv", "slower": ["loss", "tensor"], **common},
        {"pair": 1, "benchmark": None, "tool": "pyperf", "error": "is not installed"},
        {"pair": 1, "benchmark": None, "tool": "pytest-benchmark", "slower": [], **common},
    ]

    text = scripts["table"].render(outcomes, "1 on a processor")

    assert "| perfkit | 0 of 1 | 0 of 6 | 1 of 1 | 1.0 % | 10.0 s |" in text
    assert "| asv | 1 of 1 | 2 of 6 | 0 of 1 | 1.0 % | 10.0 s |" in text
    assert "| pyperf | - | - | - | - | - |" in text
    assert "- pair 1, pyperf: is not installed" in text
    assert "\n1 of 24 pairs have run.\nAll tools of a pair ran on one machine: 1 on a processor." in text
