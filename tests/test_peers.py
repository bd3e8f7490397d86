"""The comparison with other tools is planned, their output is read, and its table is right."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from perfkit.ledger.store import Ledger

FOLDER = Path(__file__).parent.parent / "benchmarks"
_SCRIPTS = ("neutral", "plan", "study", "gates", "readme", "pairs", "tools", "contest", "table")
# What `asv compare -f 1.02` printed of a pair, in the version that is pinned.
_ASV_SAID = """
All benchmarks:

| Change   | Before [4227e1f4] <main> | After [8dd1c9a2] <pair-1> | Ratio   | Benchmark (Parameter) |
|----------|--------------------------|---------------------------|---------|-----------------------|
| -        | 26.6±10ms  | 8.34±5ms | 0.31    | works.Allocation.time_allocation |
|          | 47.9±8ms   | 53.5±9ms | ~1.12   | works.Loading.time_loading       |
| +        | 7.01±0.1ms | 7.4±0.1ms | 1.05    | works.Tensor.time_tensor       |
|          | 301±0.1ms | 302±0.1ms | 1.00    | hard.Threads.time_threads       |
| !        | 7.01±0.1ms | failed | n/a    | works.Loss.time_loss       |
"""
_PYTEST_SAID = """
\ttest_python (0001_base) - Field 'mean' has failed PercentageRegressionCheck: 5.1 > 2.0
\ttest_loss (0001_base) - Field 'min' has failed PercentageRegressionCheck: 2.5 > 2.0
\ttest_python (0001_base) - Field 'min' has failed PercentageRegressionCheck: 5.3 > 2.0
"""
_PYPERF_SAID = """training: Mean +- std dev: [a] 32.4 ms +- 9.9 ms -> [b] 59.2 ms +- 19.4 ms: 1.83x slower
python: Mean +- std dev: [a] 477 us +- 100 us -> [b] 333 us +- 21 us: 1.43x faster
Benchmark hidden because not significant (4): tensor, loss, loading, allocation
Geometric mean: 1.32x faster
"""


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    """Return the scripts, loaded as they load one another."""
    with pytest.MonkeyPatch.context() as patch:
        for folder in ("calibration", "peers"):
            patch.syspath_prepend(str(FOLDER / folder))
        yield {name: importlib.import_module(name) for name in _SCRIPTS}
    for name in _SCRIPTS:
        sys.modules.pop(name, None)


def test_half_of_the_pairs_are_planted_each_benchmark_in_turn(scripts: dict[str, ModuleType]) -> None:
    plan, pairs = scripts["plan"], scripts["pairs"].plan_pairs()

    planted = Counter((pair.case.benchmarks, pair.case.benchmark) for pair in pairs)
    assert {
        (plan.SIX, None): 6,
        **{(plan.SIX, name): 1 for name in plan.SIX},
        (plan.HARD, None): 2,
        **{(plan.HARD, name): 1 for name in plan.HARD},
    } == planted
    assert {("A/A", 20, 20), ("+5 %", 20, 21)} == {
        (pair.case.kind, pair.case.base, pair.case.head) for pair in pairs
    }
    assert list(range(1, 17)) == [pair.number for pair in pairs]
    assert pairs == scripts["pairs"].plan_pairs()


def test_asv_is_judged_by_its_lines(scripts: dict[str, ModuleType]) -> None:
    tools = scripts["tools"]
    ratios = {"allocation": 0.313, "loading": 1.117, "tensor": 1.051, "threads": 1.003}

    found = tools.judge_asv(_ASV_SAID, "1.02", ratios)

    assert "asv, factor 1.02" == found.rule
    assert (("tensor",), ("allocation",), ("loading",)) == (found.slower, found.faster, found.undecided)
    assert ratios == found.ratios
    assert ("1.1", "1.02") == tools.ASV_FACTORS


def test_pytest_benchmark_is_judged_by_each_field(scripts: dict[str, ModuleType]) -> None:
    tools, times = scripts["tools"], ({"python": 1.0, "loss": 1.0}, {"python": 1.05, "loss": 1.025})

    by_mean, by_min = (
        tools.judge_pytest_benchmark(_PYTEST_SAID, name, *times, "2%") for name in ("mean", "min")
    )

    assert ("pytest-benchmark, mean:2%", ("python",)) == (by_mean.rule, by_mean.slower)
    assert ("pytest-benchmark, min:2%", ("loss", "python")) == (by_min.rule, by_min.slower)
    assert by_mean.undecided is None
    assert {"python": 1.05, "loss": 1.025} == by_min.ratios


def test_pyperf_is_judged_by_its_lines(scripts: dict[str, ModuleType]) -> None:
    found = scripts["tools"].judge_pyperf(_PYPERF_SAID, "pyperf, compare_to", {"training": 1.83})

    assert (("training",), ("python",), None) == (found.slower, found.faster, found.undecided)


def _values(**ratios: tuple[float, float]) -> dict[str, dict[str, list[float]]]:
    """Return twenty times of each side: each benchmark's ratio, and the scatter of the logarithms."""
    waves = [math.sqrt(2) * math.sin(2 * math.pi * number / 20) for number in range(20)]
    return {
        side: {
            name: [(ratio if side == "head" else 1.0) * math.exp(sd * wave) for wave in waves]
            for name, (ratio, sd) in ratios.items()
        }
        for side in ("base", "head")
    }


def test_a_t_test_is_read_in_two_ways(scripts: dict[str, ModuleType]) -> None:
    larger, beyond = scripts["tools"].judge_t_test(
        _values(
            same=(1.001, 0.01),
            slower=(1.05, 0.01),
            faster=(0.95, 0.01),
            near=(1.025, 0.01),
            noisy=(1.05, 0.1),
        ),
        "2%",
    )

    assert (("slower", "near"), ("faster",)) == (larger.slower, larger.faster)
    assert ("noisy",) == larger.undecided
    assert (("slower",), ("faster",)) == (beyond.slower, beyond.faster)
    assert ("near", "noisy") == beyond.undecided
    assert {"same": 1.001, "slower": 1.05} == {
        name: round(larger.ratios[name], 6) for name in ("same", "slower")
    }


def test_a_plain_process_times_the_works_that_are_named(scripts: dict[str, ModuleType]) -> None:
    script = FOLDER / "peers" / "plain_suite.py"
    done, _ = scripts["tools"]._run(
        [sys.executable, str(script), "python", "loss"],
        environment={"PYTHONPATH": str(FOLDER / "calibration" / "suite")},
    )

    output = json.loads(done.stdout)
    assert ["python", "loss"] == list(output)
    assert all(0 < seconds < 1 for seconds in output.values())


def test_medians_of_asv_are_read_from_its_files(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    kept = {
        "result_columns": ["result", "params"],
        "results": {
            "works.Loss.time_loss": [[0.0125], []],
            "works.Python.time_python": [[3e-05], []],
            "hard.Workers.time_workers": [[None], []],
            "hard.Threads.time_threads": [None, []],
        },
    }
    place = tmp_path / "results" / "machine"
    place.mkdir(parents=True)
    (place / "0123abcd-virtualenv.json").write_text(json.dumps(kept))
    scene = SimpleNamespace(asv_folder=tmp_path)

    assert {"loss": 0.0125, "python": 3e-05} == scripts["tools"]._asv_medians(scene, "0123abcd" + 32 * "0")


def test_a_contest_goes_on_where_it_stood(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    contest, pairs = scripts["contest"], scripts["pairs"]
    first, second, third, *_ = pairs.turns(pairs.plan_pairs())
    lines = [
        {"pair": second[0].number, "tool": second[1], "slower": []},
        {"contest": pairs.NEWER, "pair": first[0].number, "tool": first[1], "judgements": []},
    ]
    outcomes = tmp_path / "outcomes.jsonl"
    outcomes.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def broken(_: object) -> None:
        raise scripts["tools"].ToolError("is not installed")

    def stopped(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(contest, "OUTCOMES", outcomes)
    monkeypatch.setattr(contest, "LEDGERS", tmp_path / "ledger")
    monkeypatch.setattr(contest, "set_up_asv", lambda _: None)
    monkeypatch.setattr(contest, "RUN", {**dict.fromkeys(contest.RUN, broken), third[1]: stopped})
    monkeypatch.setattr(sys, "argv", ["contest.py"])
    with pytest.raises(KeyboardInterrupt):
        contest.main()

    kept = contest.read_outcomes(pairs.NEWER)
    assert [first[1], second[1]] == [one["tool"] for one in kept]
    assert "is not installed" == kept[1]["error"]
    assert second[0].case.benchmark == kept[1]["benchmark"]
    assert 1 == len(contest.read_outcomes(pairs.OLDER))


def _outcome(pair: Any, tool: str, *judgements: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """Return a line of the newer contest."""
    return {
        "contest": "2026-11-25",
        "pair": pair.number,
        "kind": pair.case.kind,
        "benchmarks": list(pair.case.benchmarks),
        "benchmark": pair.case.benchmark,
        "tool": tool,
        "wall_s": 60.0,
        "judgements": list(judgements),
    }


def _judgement(rule: str, **output: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"rule": rule, "slower": [], "faster": [], "undecided": None, "ratios": {}, **output}


def _whole(scripts: dict[str, ModuleType]) -> list[dict[str, Any]]:
    """Return a contest without its slow part, in which perfkit is always right and asv never."""
    outcomes = []
    for pair in scripts["pairs"].plan_pairs():
        planted = [pair.case.benchmark] if pair.case.benchmark else []
        for tool in pair.tools:
            rules = {
                "perfkit": [
                    _judgement("perfkit", slower=planted, undecided=[], ratios=dict.fromkeys(planted, 1.06))
                ],
                "asv": [
                    _judgement("asv, factor 1.1", undecided=planted),
                    _judgement(
                        "asv, factor 1.02", slower=list(pair.case.benchmarks)[:2], faster=["x"], undecided=[]
                    ),
                ],
            }.get(tool, [_judgement(f"{tool}, a rule")])
            outcomes.append(_outcome(pair, tool, *rules))
    return outcomes


def test_the_table_counts_what_each_rule_found(scripts: dict[str, ModuleType]) -> None:
    table = scripts["table"]
    in_study = table.Judged(
        rule="perfkit in its own study",
        benchmark=None,
        of=6,
        slower=["loss"],
        faster=[],
        undecided=[],
        ratios={},
        wall_s=12.0,
    )
    text = table.render(_whole(scripts), [], [in_study], "16 on a processor")
    six, hard = text.split("## Two noisy benchmarks")

    found = "| 0 of 6 (at most 39 %) | 0 of 36 | 6 of 6 (at least 61 %) | 0 of 12 | 1.0 % | 10.0 s |"
    assert f"| perfkit {found}" in six
    missed = "| 0 of 6 (at most 39 %) | 0 of 36 | 0 of 6 (at least 0 %) | 6 of 12 | - | 10.0 s |"
    assert f"| asv, factor 1.1 {missed}" in six
    wrong = "| 6 of 6 (at most 100 %) | 18 of 36 | 0 of 6 (at least 0 %) | 0 of 12 | - | 10.0 s |"
    assert f"| asv, factor 1.02 {wrong}" in six
    unasked = "| 0 of 3 (at most 63 %) | 0 of 18 | 0 of 3 (at least 0 %) | - | - | 10.0 s |"
    assert f"| pyperf --fast, a rule {unasked}" in six
    few = "| 0 of 2 (at most 78 %) | 0 of 4 | 2 of 2 (at least 22 %) | 0 of 4 | 1.0 % | 30.0 s |"
    assert f"| perfkit {few}" in hard
    own = "| 1 of 1 (at most 100 %) | 1 of 6 | 0 of 0 (at least 0 %) | 0 of 1 | - | 2.0 s |"
    assert f"| perfkit in its own study {own}" in six
    assert "| perfkit in its own study |" not in hard
    assert "16 of 16 pairs have run." in six
    assert "(16 on a processor)" in six
    rules = [line.split(" | ")[0][2:] for line in six.splitlines() if line.startswith("| ")]
    assert ["perfkit", "perfkit in its own study", "asv, factor 1.1", "asv, factor 1.02"] == rules[2:6]


def test_a_tool_that_broke_is_named_and_counts_as_nothing(scripts: dict[str, ModuleType]) -> None:
    outcomes = _whole(scripts)
    place = next(place for place, one in enumerate(outcomes) if one["tool"] == "asv")
    whole = outcomes[place]
    outcomes[place] = {
        **{key: whole[key] for key in ("contest", "pair", "kind", "benchmarks", "benchmark", "tool")},
        "error": "ended with 2",
    }

    text = scripts["table"].render(outcomes, [], [], "")

    assert "16 of 16 pairs have run." in text
    assert f"\nNot measured:\n\n- pair {whole['pair']}, asv: ended with 2\n" in text
    size = 6 if len(whole["benchmarks"]) == 6 else 2
    lines = [line for line in text.splitlines() if line.startswith("| asv, factor 1.1 ")]
    assert sorted(f" of {count} |" in line for line in lines for count in ({6: 11, 2: 3}[size],)) == [
        False,
        True,
    ]


def test_the_documents_are_what_the_tools_found(scripts: dict[str, ModuleType]) -> None:
    table, contest, pairs = scripts["table"], scripts["contest"], scripts["pairs"]
    newer, older = contest.read_outcomes(pairs.NEWER), contest.read_outcomes(pairs.OLDER)
    machines = table.name_machines(Ledger(contest.LEDGERS / (pairs.NEWER if newer else pairs.OLDER)).rows())
    studied = table.judged_in_study(scripts["gates"].read_gates(scripts["plan"].NEWER))

    assert table.DOCUMENT.read_text() == table.render(newer, older, studied, machines, table.read_again())
