"""The rules by which a gate decides are those of base: no change judges itself."""

from __future__ import annotations

import json
from pathlib import Path

from forked_commands import run_perfkit
from gating import CONFIGURATION, GitProject, benchmark, git_project

# Calls repeat to the digit, so that counting alone decides and nothing has to be timed.
EXACT = """
[tool.perfkit.gate]
preload = []
[tool.perfkit.exact]
gate = ["python_calls"]
"""
WORK = "def spin():\n    return sum(map(one, range({number})))\n\ndef one(number):\n    return number\n"
BENCHMARKS = "import pytest\nimport work\n" + benchmark("spin", "work.spin") + benchmark("two", "work.spin")
FILES = {"pyproject.toml": EXACT, "tests/test_speed.py": BENCHMARKS, "work.py": WORK.format(number=50)}
SLOWER = {"work.py": WORK.format(number=150)}


def _project(place: Path, base: dict[str, str] | None = None) -> GitProject:
    return git_project(place, {**FILES, **(base or {})})


def test_what_head_changes_in_the_rules_does_not_decide(tmp_path: Path) -> None:
    project = _project(tmp_path)
    configuration = EXACT.replace("preload", 'select = "not (spin or two)"\npreload') + (
        'tolerance = "1000%"\n[[tool.perfkit.rules]]\nmatch = "*"\ngate = false\n'
        '[tool.perfkit]\nprepare = "sed -i s/150/50/ work.py"\n'
    )
    marked = BENCHMARKS.replace("\ndef", "\n@pytest.mark.perfkit(gate=False)\ndef")
    head = {**SLOWER, "pyproject.toml": configuration, "tests/test_speed.py": marked}
    project.commit(head, "Do more, and ask for less in every way")

    gated = project.gate("--exact-only")

    assert gated.exit_code == 1, gated.stderr
    changed = gated.report["changed_rules"]
    for named in (
        "rules",
        'exact.tolerance ("5%" to "1000%")',
        'gate.select (not set to "not (spin or two)")',
        'prepare (not set to "sed -i s/150/50/ work.py")',
        "the marker of tests/test_speed.py::test_spin",
    ):
        assert named in changed


def test_rules_of_head_decide_where_a_person_asks_for_them(tmp_path: Path) -> None:
    project = _project(tmp_path)
    lenient = EXACT + 'tolerance = "1000%"\n'
    project.commit({**SLOWER, "pyproject.toml": lenient}, "Do more, and let it pass")

    gated = project.gate("--exact-only", "--rules", "head")

    assert (0, []) == (gated.exit_code, gated.report["changed_rules"]), gated.stderr


def test_a_configuration_of_base_that_is_not_valid_is_an_error(tmp_path: Path) -> None:
    project = _project(tmp_path, {"pyproject.toml": EXACT + 'tolerance = "many"\n'})
    project.commit({"pyproject.toml": EXACT}, "Mend the rules")

    done = project.gate("--exact-only")

    assert done.exit_code == 2
    assert "--rules head" in done.stderr


def test_a_gate_in_which_nothing_decides_measured_nothing(tmp_path: Path) -> None:
    rules = CONFIGURATION + '[[tool.perfkit.rules]]\nmatch = "*"\ngate = false\n'
    project = _project(tmp_path, {"pyproject.toml": rules})
    project.commit(SLOWER, "Do more")

    gated = project.gate("--budget", "10")

    assert gated.exit_code == 4, gated.stderr
    assert "nothing was compared" in gated.stderr


def test_a_plan_goes_by_the_rules_of_base(tmp_path: Path) -> None:
    project = _project(tmp_path)
    project.commit({"pyproject.toml": '[tool.perfkit]\nmargin = "900%"\n' + EXACT}, "Ask for less")

    done = run_perfkit("gate", "--plan", "--json", "-", "--ledger", str(project.ledger), cwd=project.root)

    plan = json.loads(done.stdout)
    assert {0.02} == {one["margin"] for one in plan["benchmarks"]}
    assert [("perfkit", "base's decide")] == [(one["kind"], one["effect"]) for one in plan["measuring"]]


def test_a_training_target_that_head_drops_is_missing(tmp_path: Path) -> None:
    targets = '[tool.perfkit.targets]\ntrain = "train.py"\n'
    project = _project(tmp_path, {"pyproject.toml": EXACT + targets, "train.py": "print('no steps')\n"})
    project.repository.git.git.rm("--quiet", "train.py")
    project.commit({"pyproject.toml": EXACT}, "Drop the training")

    gated = project.gate("--exact-only")

    assert (4, "MISSING") == (gated.exit_code, gated.verdicts["train"]), gated.stderr
