"""The studies of the gate's error rates follow their plans, and their document holds what the rows hold."""

from __future__ import annotations

import ast
import importlib
import json
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

from perfkit.cli.app import whole_command_line

ROOT = Path(__file__).parent.parent
CALIBRATION = ROOT / "benchmarks" / "calibration"
DOCUMENT = ROOT / "docs" / "measured" / "calibration.md"
_SCRIPTS = ("neutral", "plan", "study", "readme", "gates", "render")
_PROVEN = "+2 % at margin 1 %, --fail-on proven"


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    """Return the study's scripts, loaded as they load one another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(CALIBRATION))
        yield {name: importlib.import_module(name) for name in _SCRIPTS}
    for name in _SCRIPTS:
        sys.modules.pop(name, None)


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
def test_a_dose_changes_the_planted_benchmark_alone(scripts: dict[str, ModuleType], study: str) -> None:
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


def test_a_case_is_gated_with_its_options(scripts: dict[str, ModuleType]) -> None:
    plan, gate_command = scripts["plan"], scripts["study"].gate_command
    options = _gate_options()
    for case in _cases(scripts, "NEWER"):
        command = gate_command(case, root=Path("suite"), base="abc", head="def", ledger=Path("kept"))
        assert [sys.executable, "-m", "perfkit", "gate"] == command[:4]
        given = dict(zip(command[4::2], command[5::2], strict=True))

        assert {
            "--repo": "suite",
            "--base": "abc",
            "--head": "def",
            "--benchmarks": "bench_hard.py" if case.benchmarks == plan.HARD else "bench_six.py",
            "--margin": case.margin,
            "--ledger": "kept",
            "--seed": str(case.number),
            "--json": "-",
            **({"--fail-on": "proven"} if case.kind == _PROVEN else {}),
        } == given
        assert set(given) <= options


def _gate_options() -> set[str]:
    """Return the names of the options that the gate has."""
    return {name for parameter in whole_command_line().commands["gate"].params for name in parameter.opts}


@pytest.fixture(scope="module")
def suite(scripts: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> git.Repo:
    """Return a repository of the suite."""
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


@pytest.fixture(scope="module")
def newer(scripts: dict[str, ModuleType], older: list[Any]) -> list[Any]:
    """Return gates of the newer study, made of the older one's: the rows are real, the cases are lent.

    Plants of 2 % get those of 3 %, and each hard benchmark the rows of an easy one.
    """
    plan = scripts["plan"]
    lent_plants = dict.fromkeys(("+2 % at margin 1 %", _PROVEN), "+3 % at margin 1 %")
    kinds = {**lent_plants, "neutral": "A/A"}
    left = list(older)
    found = []
    for case in _cases(scripts, "NEWER"):
        hard = case.benchmarks == plan.HARD
        planted = {"workers": "loading", "threads": "training"}.get(case.benchmark, case.benchmark)
        kind = kinds.get(case.kind, case.kind)
        gate = next(
            (one for one in left if (one.case.kind, one.case.benchmark) == (kind, planted)),
            next(one for one in older if (one.case.kind, one.case.benchmark) == (kind, planted)),
        )
        left = [one for one in left if one is not gate]
        lent = {"workers": "loading", "threads": "training"} if hard else {name: name for name in plan.SIX}
        found.append(
            replace(
                gate,
                case=case,
                comparisons={name: gate.comparisons[other] for name, other in lent.items()},
                rows={name: gate.rows[other] for name, other in lent.items()},
            )
        )
    return found


def test_the_document_holds_promises_against_counts(
    scripts: dict[str, ModuleType], newer: list[Any], older: list[Any]
) -> None:
    text = scripts["render"].render(newer, older)

    assert "| A/A: gates with any benchmark flagged | none of 50 | 0 of 50 (at most 5.8 %) |" in text
    neutral = "| changes that add no work: gates with any benchmark flagged | none of 30 |"
    assert f"{neutral} 0 of 30 (at most 9.5 %) |" in text
    for kind, promised in (
        ("+3 % at margin 1 %", "20 of 20"),
        ("+5 % at margin 2 %", "20 of 20"),
        ("+2 % at margin 1 %", "at least 17 of 20"),
        (_PROVEN, "at least 19 of 20"),
    ):
        counted = "20 of 20 (at least 86.1 %); another benchmark flagged in 0 |"
        assert f"| {kind}: found | {promised} | {counted}" in text
    (missed,) = (line for line in text.splitlines() if "95 % intervals that" in line)
    assert "| at most 8 % of series |" in missed
    assert " of 180 (" in missed
    for heading in ("Changes that add no work", "Noisy benchmarks", "The study before"):
        assert f"\n## {heading}\n" in text
    assert "| A/A: gates with any benchmark flagged | at most 1 of 100 | 0 of 100 (at most 3.0 %) |" in text
    assert "172 of 172 planned gates\nhave run" in text
    assert "| gates that could not measure all, not counted above | none | none |" in text


def test_an_accusation_and_a_gate_that_broke_are_reported(
    scripts: dict[str, ModuleType], newer: list[Any], older: list[Any]
) -> None:
    alike = [gate for gate in newer if gate.case.kind == "A/A" and len(gate.case.benchmarks) == 6]
    python = replace(alike[0].comparisons["python"], verdict="REGRESSED")
    accusing = replace(alike[0], comparisons={**alike[0].comparisons, "python": python})
    broken = replace(alike[1], exit_code=4, comparisons={}, rows={})
    changed = {id(alike[0]): accusing, id(alike[1]): broken}
    text = scripts["render"].render([changed.get(id(gate), gate) for gate in newer], older)

    assert "| none of 50 | 1 of 49 (at most 9.3 %) |" in text
    assert f"not counted above | none | 1: case {broken.case.number} |" in text


def test_the_documents_are_what_the_rows_hold(scripts: dict[str, ModuleType], older: list[Any]) -> None:
    render, readme = scripts["render"], scripts["readme"]
    newer = scripts["gates"].read_gates(scripts["plan"].NEWER)
    text = readme.README.read_text()

    assert DOCUMENT.read_text() == render.render(newer, older)
    assert text == readme.with_lines(text, render.PLACE, render.lines_for_readme(newer))
