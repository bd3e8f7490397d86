"""The comparison with other tools is planned, their output is read, and its table is right."""

from __future__ import annotations

import importlib
import json
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from perfkit.ledger.store import Ledger
from perfkit.runner.commands import ALLOCATOR

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
# A call takes a given time, however busy the machine is.
_BY_ITS_OWN_CLOCK = """
ticks = 0

def clock():
    global ticks
    ticks += 1
    return ticks * 1e-9

def work():
    global ticks
    ticks += {units}

def test_loss(benchmark):
    benchmark.pedantic(work, rounds=9, iterations=9)
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


def test_each_tool_has_each_turn_equally_often(scripts: dict[str, ModuleType]) -> None:
    pairs = scripts["pairs"]
    known = pairs.plan_pairs()
    for turn, _ in enumerate(pairs.EVERYWHERE):
        others = Counter([tool for tool in pair.tools if tool != pairs.QUICK_PYPERF][turn] for pair in known)
        assert dict.fromkeys(pairs.EVERYWHERE, 4) == others
    quick = [pair for pair in known if pairs.QUICK_PYPERF in pair.tools]
    assert {0, 1, 2, 3, 4} == {pair.tools.index(pairs.QUICK_PYPERF) for pair in quick}


def test_pyperf_gets_every_second_pair_and_its_slow_way_comes_last(scripts: dict[str, ModuleType]) -> None:
    pairs, plan = scripts["pairs"], scripts["plan"]
    known = pairs.plan_pairs()

    quick = Counter(
        (pair.case.benchmarks, pair.case.kind) for pair in known if pairs.QUICK_PYPERF in pair.tools
    )
    assert {
        (plan.SIX, "A/A"): 3,
        (plan.SIX, "+5 %"): 3,
        (plan.HARD, "A/A"): 1,
        (plan.HARD, "+5 %"): 1,
    } == quick
    tools = [tool for _, tool in pairs.turns(known)]
    assert 16 * 4 + 8 + 8 == len(tools)
    assert [pairs.SLOW_PYPERF] * 8 == tools[-8:]
    assert pairs.SLOW_PYPERF not in tools[:-8]
    assert set(tools) == set(scripts["tools"].RUN)


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


def test_an_interval_of_a_t_test_is_students(scripts: dict[str, ModuleType]) -> None:
    values = _values(loss=(1.05, 0.01))
    test = scripts["tools"]._welch(values["base"]["loss"], values["head"]["loss"])

    half_width = 2.7116 * 0.01 * math.sqrt(20 / 19) * math.sqrt(2 / 20)
    assert math.log(1.05) == pytest.approx(test.difference)
    assert half_width == pytest.approx(test.high - test.difference, rel=1e-4)
    assert half_width == pytest.approx(test.difference - test.low, rel=1e-4)


class _Recorder:
    """Stands in for the processes of the tools, and keeps their commands and environments."""

    def __init__(self, answers: Sequence[str] = ("",)) -> None:
        self.commands: list[list[str]] = []
        self.environments: list[Mapping[str, str]] = []
        self._answers = answers

    def __call__(
        self, command: list[str], *, environment: Mapping[str, str] | None = None, **_: object
    ) -> tuple[subprocess.CompletedProcess[str], float]:
        self.commands.append(command)
        self.environments.append(environment or {})
        answer = self._answers[min(len(self.commands), len(self._answers)) - 1]
        return subprocess.CompletedProcess(command, 0, stdout=answer, stderr=""), 1.0


def _scene(scripts: dict[str, ModuleType], folder: Path, benchmarks: tuple[str, ...]) -> Any:  # noqa: ANN401
    case = next(pair.case for pair in scripts["pairs"].plan_pairs() if pair.case.benchmarks == benchmarks)
    return scripts["tools"].Scene(
        case=case,
        repository=folder,
        base="abc",
        head="def",
        checkouts={"base": folder / "base", "head": folder / "head"},
        folder=folder,
        asv_folder=folder / "asv",
        ledger=folder / "ledger",
    )


def test_asv_gets_the_allocator_and_its_own_benchmarks(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tools, recorder = scripts["tools"], _Recorder([_ASV_SAID])
    monkeypatch.setattr(tools, "_run", recorder)
    monkeypatch.setattr(tools, "_asv_medians", lambda *_: {"tensor": 1.0})

    found = tools.run_asv(_scene(scripts, tmp_path, scripts["plan"].HARD))

    verbs = [command[3:4] + command[6:] for command in recorder.commands]
    interleaved = ["-f", "1.02", "-a", "rounds=4", "--interleave-rounds", "-b", r"^hard\."]
    assert [
        ["continuous", *interleaved, "abc", "def"],
        ["compare", "-f", "1.1", "abc", "def"],
        ["compare", "-f", "1.02", "abc", "def"],
    ] == verbs
    assert [ALLOCATOR] * 3 == recorder.environments
    assert ["asv, factor 1.1", "asv, factor 1.02"] == [one.rule for one in found.judgements]
    assert 1.0 == found.wall_s


@pytest.mark.parametrize(("slow", "options"), [(False, ["--fast"]), (True, [])])
def test_pyperf_gets_the_allocator_and_is_judged_with_and_without_a_margin(
    scripts: dict[str, ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    slow: bool,  # noqa: FBT001
    options: list[str],
) -> None:
    tools, recorder = scripts["tools"], _Recorder([_PYPERF_SAID])
    monkeypatch.setattr(tools, "_run", recorder)
    monkeypatch.setattr(tools, "_pyperf_means", lambda *_: {"training": 1.0})

    run = tools.run_slow_pyperf if slow else tools.run_quick_pyperf
    found = run(_scene(scripts, tmp_path, scripts["plan"].HARD))

    base, head, plain, margin = recorder.commands
    for side, command, environment in zip(
        ("base", "head"), (base, head), recorder.environments[:2], strict=True
    ):
        assert {**ALLOCATOR, "PYTHONPATH": str(tmp_path / side)} == environment
        assert f"--inherit-environ={','.join(environment)}" == command[2]
        assert [*options, "-o"] == command[3 : 4 + len(options)]
        assert ["workers", "threads"] == command[-2:]
    assert ["compare_to", base[-3], head[-3]] == plain[3:]
    assert [*plain, "--min-speed", "2"] == margin
    name = "pyperf" if slow else "pyperf --fast"
    assert [f"{name}, compare_to", f"{name}, compare_to --min-speed 2"] == [
        one.rule for one in found.judgements
    ]


def test_perfkit_gates_the_pair_by_its_defaults(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tools = scripts["tools"]
    verdicts = {
        "tensor": "REGRESSED",
        "loss": "INCONCLUSIVE",
        "training": "NOT REACHED",
        "python": "UNCHANGED",
    }
    comparisons = [
        {
            "benchmark": {"name": f"bench_six.py::test_{name}"},
            "verdict": verdict,
            "estimate": None if verdict == "NOT REACHED" else {"ratio": 1.05},
        }
        for name, verdict in verdicts.items()
    ]
    recorder = _Recorder([json.dumps({"comparisons": comparisons})])
    monkeypatch.setattr(tools, "_run", recorder)
    scene = _scene(scripts, tmp_path, scripts["plan"].SIX)

    (found,) = tools.run_perfkit(scene).judgements

    (command,) = recorder.commands
    assert command == scripts["study"].gate_command(
        scene.case, root=tmp_path, base="abc", head="def", ledger=tmp_path / "ledger"
    )
    assert [{}] == recorder.environments
    assert (("tensor",), (), ("loss", "training")) == (found.slower, found.faster, found.undecided)
    assert {"tensor", "loss", "python"} == set(found.ratios)


def test_pytest_benchmark_fails_by_both_fields_at_once(
    scripts: dict[str, ModuleType], tmp_path: Path
) -> None:
    settings = "[pytest]\npython_files = bench_*.py\naddopts = --benchmark-timer=bench_six.clock\n"
    for side, units in (("base", 20_000), ("head", 60_000)):
        (tmp_path / side).mkdir()
        (tmp_path / side / "bench_six.py").write_text(_BY_ITS_OWN_CLOCK.format(units=units))
        (tmp_path / side / "pytest.ini").write_text(settings)

    found = scripts["tools"].run_pytest_benchmark(_scene(scripts, tmp_path, scripts["plan"].SIX))

    assert [("loss",), ("loss",)] == [one.slower for one in found.judgements]
    assert ["pytest-benchmark, mean:2%", "pytest-benchmark, min:2%"] == [one.rule for one in found.judgements]
    for one in found.judgements:
        assert 2.0 < one.ratios["loss"] < 4.0


def test_a_t_test_times_fresh_processes_by_turns(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tools, recorder = (
        scripts["tools"],
        _Recorder([f'{{"workers": 0.0{number}, "threads": 0.3{number}}}' for number in range(10, 50)]),
    )
    monkeypatch.setattr(tools, "_run", recorder)

    found = tools.run_t_test(_scene(scripts, tmp_path, scripts["plan"].HARD))

    sides = [Path(environment["PYTHONPATH"]).name for environment in recorder.environments]
    assert ["base", "head", "head", "base"] * 10 == sides
    assert {"PYTHONPATH", *ALLOCATOR} == set(recorder.environments[0])
    assert [0.311, 0.312, 0.315] == pytest.approx(found.values["head"]["threads"][:3], abs=1e-3)
    assert 20 == len(found.values["base"]["workers"])
    assert 40.0 == found.wall_s


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


def test_every_tool_knows_the_hard_benchmarks(scripts: dict[str, ModuleType]) -> None:
    plan = scripts["plan"]
    for file, names in (("works.py", plan.SIX), ("hard.py", plan.HARD)):
        text = (FOLDER / "peers" / "asv_suite" / file).read_text()
        assert list(names) == re.findall(r'name = "(\w+)"', text)
        assert list(names) == re.findall(r"def time_(\w+)", text)


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


def test_two_tools_once_more_take_the_same_pairs_by_turns(scripts: dict[str, ModuleType]) -> None:
    pairs = scripts["pairs"]
    again = pairs.plan_again()

    six = [pair.case for pair in pairs.plan_pairs() if pair.case.benchmarks == scripts["plan"].SIX]
    assert six == [pair.case for pair in again]
    begins = Counter((pair.case.kind, pair.tools[0]) for pair in again)
    assert {("A/A", "perfkit"): 3, ("A/A", "asv"): 3, ("+5 %", "perfkit"): 3, ("+5 %", "asv"): 3} == begins
    assert [{"perfkit", "asv"}] * 12 == [set(pair.tools) for pair in again]
    assert all(not pair.later for pair in again)


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


def test_the_page_is_about_the_newer_contest_from_its_first_line_on(scripts: dict[str, ModuleType]) -> None:
    table, contest = scripts["table"], scripts["contest"]
    older, newer = contest.read_outcomes(scripts["pairs"].OLDER), _whole(scripts)

    begun = table.render(newer[:1], older, [], "")

    assert "0 of 16 pairs have run." in begun
    before = begun.partition("## The contest before")[2]
    assert "| perfkit | 0 of 12 | 0 of 72 | 12 of 12 | 0.3 % | 3.8 s |" in before


def test_a_place_in_the_readme_is_filled_and_all_else_stays(scripts: dict[str, ModuleType]) -> None:
    with_lines, place = scripts["readme"].with_lines, "make calibration-report"
    readme = scripts["readme"].README.read_text()

    once = with_lines(readme, place, ["| a |", "| b |"])
    assert f"<!-- begin: {place} -->\n| a |\n| b |\n<!-- end: {place} -->\n" in once
    assert once == with_lines(once, place, ["| a |", "| b |"])
    assert readme.partition(f"<!-- begin: {place}")[0] == once.partition(f"<!-- begin: {place}")[0]
    assert readme.partition(f"<!-- end: {place}")[2] == once.partition(f"<!-- end: {place}")[2]
    with pytest.raises(SystemExit, match="no place for this: <!-- begin: make calibration-report -->"):
        with_lines("# perfkit\n", place, [])


def test_the_documents_are_what_the_tools_found(scripts: dict[str, ModuleType]) -> None:
    table, contest, pairs = scripts["table"], scripts["contest"], scripts["pairs"]
    newer, older = contest.read_outcomes(pairs.NEWER), contest.read_outcomes(pairs.OLDER)
    machines = table.name_machines(Ledger(contest.LEDGERS / (pairs.NEWER if newer else pairs.OLDER)).rows())
    studied = table.judged_in_study(scripts["gates"].read_gates(scripts["plan"].NEWER))

    assert table.DOCUMENT.read_text() == table.render(newer, older, studied, machines, table.read_again())


def test_the_study_stands_beside_its_peers_by_the_gates_that_are_like_theirs(
    scripts: dict[str, ModuleType],
) -> None:
    plan = scripts["plan"]
    comparison = SimpleNamespace(verdict="REGRESSED")
    gates = [
        scripts["gates"].Gate(
            case=case, exit_code=1, wall_s=9.0, put_off=0, comparisons={"loss": comparison}, rows={}
        )
        for case in plan.plan_study(plan.NEWER)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripts["gates"].Gate, "estimates", {"loss": SimpleNamespace(ratio=1.05)})
        studied = scripts["table"].judged_in_study(gates)

    assert Counter({False: 50, True: 20}) == Counter(one.benchmark is not None for one in studied)
    assert {("loss",)} == {tuple(one.slower) for one in studied}
    assert {()} == {tuple(one.faster) for one in studied} | {tuple(one.undecided) for one in studied}
    assert [{"loss": 1.05}] * 70 == [one.ratios for one in studied]


def test_the_older_table_counts_what_each_tool_found(scripts: dict[str, ModuleType]) -> None:
    common = {"faster": [], "ratios": {"loss": 1.06}, "wall_s": 60.0}
    outcomes = [
        {"pair": 1, "benchmark": None, "tool": "perfkit", "slower": [], **common},
        {"pair": 2, "benchmark": "loss", "tool": "perfkit", "slower": ["loss"], **common},
        {"pair": 1, "benchmark": None, "tool": "asv", "slower": ["loss"], **common, "faster": ["python"]},
        {"pair": 2, "benchmark": "loss", "tool": "asv", "slower": ["loss", "tensor"], **common},
        {"pair": 1, "benchmark": None, "tool": "pyperf", "error": "is not installed"},
        {"pair": 1, "benchmark": None, "tool": "pytest-benchmark", "slower": [], **common},
    ]

    text = scripts["table"].render([], outcomes, [], "1 on a processor")

    assert "| perfkit | 0 of 1 | 0 of 6 | 1 of 1 | 1.0 % | 10.0 s |" in text
    assert "| asv | 1 of 1 | 2 of 6 | 0 of 1 | 1.0 % | 10.0 s |" in text
    assert "| pyperf | - | - | - | - | - |" in text
    assert "- pair 1, pyperf: is not installed" in text
    assert "\n1 of 24 pairs have run.\nAll tools of a pair ran on one machine: 1 on a processor." in text
