"""The studies of the gate's error rates follow their plans, and their document says what rows say."""

from __future__ import annotations

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

ROOT = Path(__file__).parent.parent
CALIBRATION = ROOT / "benchmarks" / "calibration"
DOCUMENT = ROOT / "docs" / "calibration.md"
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


def test_the_older_plan_is_the_one_that_was_promised(scripts: dict[str, ModuleType]) -> None:
    """A hundred gates of identical code, sixty plants of each dose, and one in each tenth call."""
    kinds = Counter(case.kind for case in _cases(scripts, "OLDER"))

    assert {
        "A/A": 100,
        "+3 % at margin 1 %": 60,
        "+5 % at margin 2 %": 60,
        "+20 % in each tenth call": 1,
    } == kinds


def test_the_newer_plan_is_the_one_that_was_promised(scripts: dict[str, ModuleType]) -> None:
    """Its counts, margins and options, those of the hard benchmarks apart."""
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
def test_a_dose_changes_the_planted_benchmark_alone(scripts: dict[str, ModuleType], study: str) -> None:
    """The files that a case commits differ at one place: its units of work on each side."""
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
    """Return a repository of the suite."""
    created: git.Repo = scripts["study"].create_suite(tmp_path_factory.mktemp("study") / "suite")
    return created


def test_each_neutral_change_is_committed_and_imports(
    scripts: dict[str, ModuleType], suite: git.Repo, tmp_path: Path
) -> None:
    """Head differs from base in work.py or doses.py alone, or in a new module, and does what base does."""
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

    said = _works_of(list(checkouts.values()))
    assert len(cases) + 1 == len(said)
    assert {said[0]} == set(said)


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


def test_a_study_goes_on_where_it_stood(
    scripts: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A case that has a line is not run again, and each that runs has one, those that failed included."""
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


def test_the_newer_document_holds_promises_against_counts(
    scripts: dict[str, ModuleType], newer: list[Any], older: list[Any]
) -> None:
    """Counts with their exact bounds; the document's other parts are there, and the older promises."""
    text = scripts["render"].render(newer, older)
    lines = scripts["render"].lines_for_readme(newer, older)

    assert "| A/A: gates with any REGRESSED or IMPROVED | none of 50 | 0 of 50 (at most 5.8 %) |" in lines
    assert (
        "| changes that add no work: gates with any REGRESSED or IMPROVED | none of 30 |"
        " 0 of 30 (at most 9.5 %) |"
    ) in lines
    for kind, promised in (
        ("+3 % at margin 1 %", "20 of 20"),
        ("+5 % at margin 2 %", "20 of 20"),
        ("+2 % at margin 1 %", "at least 17 of 20"),
        (_PROVEN, "at least 19 of 20"),
    ):
        counted = "20 of 20 (at least 86.1 %); another benchmark accused or praised in 0 |"
        assert f"| {kind}: REGRESSED, that one and no other | {promised} | {counted}" in lines
    (missed,) = (line for line in lines if "95 % intervals" in line)
    assert "| at most 8 % of series |" in missed
    assert " of 180 (" in missed
    assert set(lines) <= set(text.splitlines())
    for heading in ("Changes that add no work", "The hard ones", "The history of the suite", "Every gate"):
        assert f"\n## {heading}\n" in text
    assert "\n## The study before\n" in text
    assert (
        "| A/A: gates with any REGRESSED or IMPROVED | at most 1 of 100 | 0 of 100 (at most 3.0 %) |" in text
    )
    assert "172 of 172 gates\nhave run" in text
    assert "| gates that could not measure all, counted nowhere above | none | none |" in text


def test_the_older_study_is_rendered_whole(scripts: dict[str, ModuleType], older: list[Any]) -> None:
    """Judged anew, its gates come to what they came to; until the newer one runs, that is the document."""
    render = scripts["render"]

    assert 221 == len(older)
    assert "221 of 221 gates have run" in render.render_older(older)
    assert render.render([], older) == render.render_older(older)
    counted = "| A/A at margin 2 %: verdicts that are UNCHANGED | at least 90 % | 595 of 600 (99.2 %) |"
    assert counted in render.lines_for_readme([], older)


def test_the_documents_are_what_the_rows_say(scripts: dict[str, ModuleType], older: list[Any]) -> None:
    """The document and the table in the README, rendered anew from the committed rows, are the same text."""
    render, readme = scripts["render"], scripts["readme"]
    newer = scripts["gates"].read_gates(scripts["plan"].NEWER)
    text = readme.README.read_text()

    assert DOCUMENT.read_text() == render.render(newer, older)
    assert text == readme.with_lines(text, render.PLACE, render.lines_for_readme(newer, older))
