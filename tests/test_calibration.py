"""The studies of error rates and the contest of tools follow their plans; documents hold their rows."""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import git
import pytest
from modules import study_scripts

from perfkit.ledger.store import Ledger

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "measured" / "calibration.md"
_SCRIPTS = ("neutral", "plan", "study", "gates", "readme", "render", "pairs", "tools", "contest", "table")
_PROVEN = "+2 % at margin 1 %, --fail-on proven"


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    with study_scripts(("calibration", "peers"), _SCRIPTS) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def measured(scripts: dict[str, ModuleType]) -> list[Any]:
    """Return the gates of the newer study, judged anew from the committed rows."""
    return list(scripts["gates"].read_gates(scripts["plan"].NEWER))


@pytest.fixture(scope="module")
def older(scripts: dict[str, ModuleType]) -> list[Any]:
    """Return the gates of the older study, judged anew from the committed rows."""
    return list(scripts["gates"].read_gates(scripts["plan"].OLDER))


def _cases(scripts: dict[str, ModuleType], study: str) -> list[Any]:
    plan = scripts["plan"]
    return list(plan.plan_study(getattr(plan, study)))


def test_the_newer_plan_is_the_one_that_was_promised(scripts: dict[str, ModuleType]) -> None:
    plan = scripts["plan"]
    cases = Counter(
        (case.benchmarks == plan.HARD, case.kind, case.margin, case.fail_on)
        for case in _cases(scripts, "NEWER")
    )

    assert {
        (False, "A/A", "2%", None): 50,
        (False, "neutral", "2%", None): 30,
        (False, "+3 % at margin 1 %", "1%", None): 20,
        (False, "+5 % at margin 2 %", "2%", None): 20,
        (False, "+2 % at margin 1 %", "1%", None): 20,
        (False, _PROVEN, "1%", "proven"): 20,
        (True, "A/A", "2%", None): 6,
        (True, "+5 % at margin 2 %", "2%", None): 6,
    } == cases


@pytest.mark.parametrize("study", ["OLDER", "NEWER"])
def test_a_resumed_study_knows_its_cases(scripts: dict[str, ModuleType], study: str) -> None:
    cases = _cases(scripts, study)

    assert cases == _cases(scripts, study)
    assert len({case.subject for case in cases}) == len(cases)
    assert list(range(1, len(cases) + 1)) == [case.number for case in cases]


@pytest.mark.parametrize("study", ["OLDER", "NEWER"])
def test_a_dose_changes_the_slowed_benchmark_alone(scripts: dict[str, ModuleType], study: str) -> None:
    for case in _cases(scripts, study):
        if case.neutral is not None:
            continue
        base, head = (scripts["study"].side_files(case, side) for side in ("base", "head"))
        assert {**base, "doses.py": ""} == {**head, "doses.py": ""}
        lines = (files["doses.py"].splitlines() for files in (base, head))
        changed = [(before, line) for before, line in zip(*lines, strict=True) if line != before]

        if case.benchmark is None:
            assert [] == changed
        else:
            ((before, line),) = changed
            assert f'"{case.benchmark}"' in line
            assert str(case.rare or case.head) in line
            assert case.rare or str(case.base) in before


@pytest.fixture(scope="module")
def suite(scripts: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> git.Repo:
    created: git.Repo = scripts["study"].create_suite(tmp_path_factory.mktemp("study") / "suite")
    return created


def test_each_neutral_change_is_committed_and_imports(
    scripts: dict[str, ModuleType], suite: git.Repo, tmp_path: Path
) -> None:
    cases = {case.neutral: case for case in _cases(scripts, "NEWER") if case.neutral}
    checkouts = {"": tmp_path / "undosed"}
    suite.git.worktree("add", "--quiet", "--detach", str(checkouts[""]), "main")
    for kind, case in cases.items():
        base, head = scripts["study"].commit_sides(case, suite, case.subject)
        checkouts[kind] = tmp_path / kind.replace(" ", "-")
        suite.git.worktree("add", "--quiet", "--detach", str(checkouts[kind]), head)
        changed = set(suite.git.diff("--name-only", "--no-renames", base, head).split())

        assert str(suite.commit(head).message).strip() == case.subject
        assert "" == suite.git.diff("main", base)
        if kind == "a new module":
            assert 2 == len(changed)
            assert "work.py" in changed
        elif kind == "a longer path":
            assert changed in ({"work.py", "work/__init__.py"}, {"doses.py", "doses/__init__.py"})
        else:
            assert {"work.py"} == changed

    output = _works_of(list(checkouts.values()))
    assert len(cases) + 1 == len(output)
    assert {output[0]} == set(output)


def _works_of(checkouts: list[Path]) -> list[str]:
    """Return what the works of each checkout give, each imported anew in one process, as torch is slow to."""
    lines = [
        "import json, sys, torch",
        "def works():",
        "    import work",
        "    for name in ('tensor', 'loss', 'training', 'loading', 'python', 'allocation'):",
        "        torch.manual_seed(0)",
        "        yield name, str(work.dosed(name, getattr(work, name + '_work')())())[:2000]",
        "for folder in sys.argv[1:]:",
        "    sys.path.insert(0, folder)",
        "    print(json.dumps(list(works())))",
        "    assert sys.modules['work'].__file__.startswith(folder + '/')",
        "    sys.path.remove(folder)",
        "    for name in {'work', 'doses'} | {one for one in sys.modules if one.startswith('described')}:",
        "        sys.modules.pop(name, None)",
    ]
    command = [sys.executable, "-B", "-c", "\n".join(lines), *map(str, checkouts)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_no_neutral_change_adds_work(scripts: dict[str, ModuleType]) -> None:
    neutral, files = scripts["neutral"], scripts["study"].suite_files()
    before = _functions(files)
    for kind in neutral.KINDS:
        texts = set()
        for number in range(25):
            changed = neutral.change(kind, files, number=number)
            assert changed == neutral.change(kind, files, number=number)
            assert changed != files
            after = _functions(changed)
            after.pop("unused_work", None)
            assert set(before) == set(after)
            if kind != "a renamed local":
                assert before == after
            else:
                assert {name: len(text.split()) for name, text in before.items()} == {
                    name: len(text.split()) for name, text in after.items()
                }
            for name in ("bench_six.py", "bench_hard.py"):
                assert files[name] == changed[name]
            texts.add(json.dumps(changed))
        assert len(texts) > 1, kind


def _functions(files: dict[str, str]) -> dict[str, str]:
    """Return the functions and classes of the works by name, as trees without lines."""
    text = files.get("work.py") or files["work/__init__.py"]
    nodes = ast.parse(text).body
    return {node.name: ast.dump(node) for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["a longer path", "a new module", "workers"])
def test_the_riskiest_cases_are_gated(
    scripts: dict[str, ModuleType], suite: git.Repo, tmp_path: Path, kind: str
) -> None:
    case = next(one for one in _cases(scripts, "NEWER") if kind in {one.neutral, one.benchmark})
    base, head = scripts["study"].commit_sides(case, suite, case.subject)
    root = Path(str(suite.working_tree_dir))
    command = scripts["study"].gate_command(case, root=root, base=base, head=head, ledger=tmp_path)
    selected = case.benchmark or "python"
    done = subprocess.run(
        [*command, "--select", selected, "--budget", "12"], capture_output=True, text=True, check=False
    )

    assert done.returncode in {0, 1, 3}, done.stderr
    (found,) = json.loads(done.stdout)["comparisons"]
    assert found["benchmark"]["name"].endswith(f"::test_{selected}")
    assert found["estimate"] is not None


def test_a_gate_is_put_off_until_the_machine_is_fit(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    output: Iterator[list[float | None]] = iter([[0.02, 0.05], [0.02, None], [0.02, 0.029]])

    def doctor(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        noises = [{"effect": effect} for effect in next(output)]
        return subprocess.CompletedProcess(command, 0, stdout=json.dumps({"noises": noises}), stderr="")

    monkeypatch.setattr(subprocess, "run", doctor)
    fitness = scripts["study"].Fitness(put_off_s=0.0)

    assert 2 == fitness.await_fit()
    assert 0 == fitness.await_fit()


def test_a_study_goes_on_where_it_stood(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    study, (first, second, *_) = scripts["study"], _cases(scripts, "NEWER")
    (tmp_path / "outcomes.jsonl").write_text(json.dumps({"subject": first.subject}) + "\n")

    def run_case(case: object, *_: object) -> dict[str, object]:
        if case != second:
            raise KeyboardInterrupt
        return {"subject": second.subject, "exit_code": 4, "wall_s": 1.0}

    monkeypatch.setattr(study, "run_case", run_case)
    monkeypatch.setattr(study.Fitness, "await_fit", lambda _: 0)
    monkeypatch.setattr(sys, "argv", ["study.py", str(tmp_path)])
    with pytest.raises(KeyboardInterrupt):
        study.main()

    kept = study.read_outcomes(tmp_path)
    assert [first.subject, second.subject] == [one["subject"] for one in kept]
    assert 0 == kept[1]["put_off"]


def test_an_accusation_and_a_gate_that_broke_are_reported(
    scripts: dict[str, ModuleType], measured: list[Any], older: list[Any]
) -> None:
    alike = [gate for gate in measured if gate.case.kind == "A/A" and len(gate.case.benchmarks) == 6]
    python = replace(alike[0].comparisons["python"], verdict="REGRESSED")
    accusing = replace(alike[0], comparisons={**alike[0].comparisons, "python": python})
    broken = replace(alike[1], exit_code=4, comparisons={}, rows={})
    changed = {id(alike[0]): accusing, id(alike[1]): broken}
    text = scripts["render"].render([changed.get(id(gate), gate) for gate in measured], older)

    assert "| none of 50 | 1 of 49 (at most 9.3 %) |" in text
    assert f"not counted above | none | 1: case {broken.case.number} |" in text


def test_the_documents_are_what_the_rows_hold(
    scripts: dict[str, ModuleType], measured: list[Any], older: list[Any]
) -> None:
    render, readme = scripts["render"], scripts["readme"]
    text = readme.README.read_text()

    assert DOCUMENT.read_text() == render.render(measured, older)
    assert text == readme.with_lines(text, render.PLACE, render.lines_for_readme(measured))


# What `asv compare -f 1.02` printed of a pair, in the version that is pinned.
_ASV_OUTPUT = """
All benchmarks:

| Change   | Before [4227e1f4] <main> | After [8dd1c9a2] <pair-1> | Ratio   | Benchmark (Parameter) |
|----------|--------------------------|---------------------------|---------|-----------------------|
| -        | 26.6±10ms  | 8.34±5ms | 0.31    | works.Allocation.time_allocation |
|          | 47.9±8ms   | 53.5±9ms | ~1.12   | works.Loading.time_loading       |
| +        | 7.01±0.1ms | 7.4±0.1ms | 1.05    | works.Tensor.time_tensor       |
|          | 301±0.1ms | 302±0.1ms | 1.00    | hard.Threads.time_threads       |
| !        | 7.01±0.1ms | failed | n/a    | works.Loss.time_loss       |
"""
_PYTEST_OUTPUT = """
\ttest_python (0001_base) - Field 'mean' has failed PercentageRegressionCheck: 5.1 > 2.0
\ttest_loss (0001_base) - Field 'min' has failed PercentageRegressionCheck: 2.5 > 2.0
\ttest_python (0001_base) - Field 'min' has failed PercentageRegressionCheck: 5.3 > 2.0
"""
_PYPERF_OUTPUT = """training: Mean +- std dev: [a] 32.4 ms +- 9.9 ms -> [b] 59.2 ms +- 19.4 ms: 1.83x slower
python: Mean +- std dev: [a] 477 us +- 100 us -> [b] 333 us +- 21 us: 1.43x faster
Benchmark hidden because not significant (4): tensor, loss, loading, allocation
Geometric mean: 1.32x faster
"""


def test_half_of_the_pairs_are_slowed_each_benchmark_in_turn(scripts: dict[str, ModuleType]) -> None:
    plan, pairs = scripts["plan"], scripts["pairs"].plan_pairs()

    slowed = Counter((pair.case.benchmarks, pair.case.benchmark) for pair in pairs)
    assert {
        (plan.SIX, None): 6,
        **{(plan.SIX, name): 1 for name in plan.SIX},
        (plan.HARD, None): 2,
        **{(plan.HARD, name): 1 for name in plan.HARD},
    } == slowed
    assert {("A/A", 20, 20), ("+5 %", 20, 21)} == {
        (pair.case.kind, pair.case.base, pair.case.head) for pair in pairs
    }
    assert list(range(1, 17)) == [pair.number for pair in pairs]
    assert pairs == scripts["pairs"].plan_pairs()


def test_asv_is_judged_by_its_lines(scripts: dict[str, ModuleType]) -> None:
    tools = scripts["tools"]
    ratios = {"allocation": 0.313, "loading": 1.117, "tensor": 1.051, "threads": 1.003}

    found = tools.judge_asv(_ASV_OUTPUT, "1.02", ratios)

    assert "asv, factor 1.02" == found.rule
    assert (("tensor",), ("allocation",), ("loading",)) == (found.slower, found.faster, found.undecided)
    assert ratios == found.ratios
    assert ("1.1", "1.02") == tools.ASV_FACTORS


def test_pytest_benchmark_is_judged_by_each_field(scripts: dict[str, ModuleType]) -> None:
    tools, times = scripts["tools"], ({"python": 1.0, "loss": 1.0}, {"python": 1.05, "loss": 1.025})

    by_mean, by_min = (
        tools.judge_pytest_benchmark(_PYTEST_OUTPUT, name, *times, "2%") for name in ("mean", "min")
    )

    assert ("pytest-benchmark, mean:2%", ("python",)) == (by_mean.rule, by_mean.slower)
    assert ("pytest-benchmark, min:2%", ("loss", "python")) == (by_min.rule, by_min.slower)
    assert by_mean.undecided is None
    assert {"python": 1.05, "loss": 1.025} == by_min.ratios


def test_pyperf_is_judged_by_its_lines(scripts: dict[str, ModuleType]) -> None:
    found = scripts["tools"].judge_pyperf(_PYPERF_OUTPUT, "pyperf, compare_to", {"training": 1.83})

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


def test_the_page_of_the_contest_is_what_the_tools_found(
    scripts: dict[str, ModuleType], measured: list[Any]
) -> None:
    table, contest, pairs = scripts["table"], scripts["contest"], scripts["pairs"]
    machines = table.name_machines(Ledger(contest.LEDGERS / pairs.NEWER).rows())
    studied = table.judged_in_study(measured)
    text = table.render(contest.read_outcomes(pairs.NEWER), studied, machines, table.read_again())

    assert table.DOCUMENT.read_text() == text
