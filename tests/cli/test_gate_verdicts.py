"""`perfkit gate` gives the timed verdicts and their exit codes, and records them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from forked_commands import run_perfkit
from gating import CONFIGURATION, SLOWER, Gated, GitProject, benchmark, git_project, work

from perfkit.ledger.store import Ledger
from perfkit.model import Row
from perfkit.model.surroundings import MACHINE_SPEEDS

pytestmark = pytest.mark.alone

DOSES = {"steady": 10, "broken": 1, "slower": 5, "faster": 5 * SLOWER, "marked": 5, "ruled": 5, "lenient": 5}
HEAD_DOSES = {"slower": 15, "faster": 5, "marked": 15, "ruled": 15, "lenient": 15}
RULE = """
[[tool.perfkit.rules]]
match = "*::test_ruled"
gate = false
[[tool.perfkit.rules]]
match = "*::test_unasked"
result = false
"""
# Functions that become faster and return something else.
OTHERS = "".join(
    f"\ndef {name}():\n    spin({{units}})\n    return [1.0, {{value}}]\n"
    for name in ("other", "near", "unasked")
)
LOCKSTEP_BREAKERS = ["-x", "--maxfail=1", "--benchmark-disable", "--benchmark-skip"]
BENCHMARKS = "import pytest\nimport work\n" + "".join(
    [
        benchmark("steady", "work.steady"),
        benchmark("slower", "work.slower"),
        benchmark("broken", "work.broken"),
        benchmark("faster", "work.faster"),
        benchmark("marked", "work.marked", "perfkit(gate=False)"),
        benchmark("ruled", "work.ruled"),
        benchmark("lenient", "work.lenient", 'perfkit(margin="900%", flush_l2=True)'),
        benchmark("other", "work.other"),
        benchmark("near", "work.near", "perfkit(result=0.2)"),
        benchmark("unasked", "work.unasked"),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A project after its gate, with the comment that the gate wrote and the rows it filed."""

    project: GitProject
    gated: Gated
    comment: str
    rows: tuple[Row, ...]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Gate a commit that makes four benchmarks three times slower, and one three times faster."""
    place = tmp_path_factory.mktemp("verdicts")
    quoted = ", ".join(f'"{option}"' for option in LOCKSTEP_BREAKERS)
    configuration = f"[tool.pytest.ini_options]\naddopts = [{quoted}]\n{CONFIGURATION}{RULE}"
    before = work(**DOSES) + OTHERS.format(units=5 * SLOWER, value=2.0)
    files = {"tests/test_speed.py": BENCHMARKS, "unused.py": "", "work.py": before}
    project = git_project(place, {**files, "pyproject.toml": configuration})
    slowed = work(**{**DOSES, **HEAD_DOSES}).replace("def broken():", "def broken():\n    raise ValueError")
    after = slowed + OTHERS.format(units=5, value=2.3)
    # What head sets itself does not decide.
    lenient = {"pyproject.toml": configuration.replace("test_unasked", "*")}
    project.commit({"work.py": after, "unused.py": "1", **lenient}, "Slow things down")
    gated = project.gate("--markdown", str(place / "comment.md"), "--budget", "60")
    return Scene(
        project=project,
        gated=gated,
        comment=(place / "comment.md").read_text(),
        rows=tuple(Ledger(project.ledger).rows()),
    )


def test_each_benchmark_gets_its_verdict(scene: Scene) -> None:
    assert {
        "test_steady": "UNCHANGED",
        "test_slower": "REGRESSED",
        "test_faster": "IMPROVED",
        "test_marked": "REGRESSED",
        "test_ruled": "REGRESSED",
        "test_lenient": "UNCHANGED",
        "test_broken": "FAILED",
        "test_other": "OTHER RESULT",
        "test_near": "IMPROVED",
        "test_unasked": "IMPROVED",
    } == scene.gated.verdicts, scene.gated.stderr


def test_marker_and_glob_keep_a_benchmark_from_gating(scene: Scene) -> None:
    assert {"test_marked", "test_ruled"} == {
        name for name, one in scene.gated.comparisons.items() if not one["gating"]
    }
    assert 8 == scene.gated.report["policy"]["family"]


def test_results_are_compared_as_base_asks_for_it(scene: Scene) -> None:
    results = {name: one["result"] for name, one in scene.gated.comparisons.items()}
    (doubt,) = scene.gated.comparisons["test_other"]["doubts"]

    assert {"test_other": "other", "test_unasked": None, "test_broken": None} == {
        name: result for name, result in results.items() if result != "same"
    }
    assert "other result" == doubt["kind"]
    assert "[1] 2 on base, 2.3 on head" in doubt["text"]


def test_the_report_has_every_number(scene: Scene) -> None:
    slower = scene.gated.comparisons["test_slower"]
    estimate = slower["estimate"]

    assert estimate["low"] < estimate["ratio"] < estimate["high"], estimate
    assert 0.75 * SLOWER < estimate["ratio"] < 1.25 * SLOWER, estimate
    assert estimate["launches"] in scene.gated.report["policy"]["looks"]
    assert estimate["launch_sd"] > 0
    assert 2 < slower["head_s"] / slower["base_s"] < 4.5
    assert (0.5, 9.0) == (slower["margin"], scene.gated.comparisons["test_lenient"]["margin"])
    assert (0.2, 60.0) == (scene.gated.report["policy"]["alpha"], scene.gated.report["budget_s"])


def test_a_regression_is_explained_by_its_functions(scene: Scene) -> None:
    explained = {one["benchmark"]: one for one in scene.gated.report["explanations"]}

    found = explained["tests/test_speed.py::test_slower"]
    section, suspect = found["section"], found["suspect"]
    assert ("slower", "work.py") == (suspect["name"], suspect["place"].partition(":")[0])
    slowed = section["parts"][0]
    assert ("spin", "own code", "") == (slowed["name"], slowed["kind"], slowed["was"])
    assert "work.py" == slowed["place"].partition(":")[0]
    assert slowed["amount"]["head_s"] > 2 * slowed["amount"]["base_s"] > 0
    parts = [part["amount"] for part in section["parts"]]
    for side in ("base_s", "head_s"):
        assert pytest.approx(section["whole"][side]) == sum(part[side] for part in parts)


def test_changed_files_that_nothing_loaded_are_listed(scene: Scene) -> None:
    assert "changed, but loaded by no benchmark: unused.py;" in scene.gated.notes


def test_options_that_break_lockstep_are_overruled_and_named(scene: Scene) -> None:
    options = ("--maxfail", "--benchmark-disable", "--benchmark-skip")

    assert any(all(one in line for one in options) for line in scene.gated.notes.splitlines())


def test_all_launches_of_both_sides_are_in_the_ledger(scene: Scene) -> None:
    sides = Counter((row.outcome.benchmark.name, row.placement.side) for row in scene.rows)
    base, head = scene.gated.report["base"]["sha"], scene.gated.report["head"]["sha"]

    for name, one in scene.gated.comparisons.items():
        if one["verdict"] == "FAILED":
            continue
        node = f"tests/test_speed.py::{name}"
        assert one["estimate"]["launches"] <= sides[node, "base"] == sides[node, "head"]
    assert {5} == {len(row.outcome.values) for row in scene.rows if row.outcome.status == "ok"}
    assert {("base", base), ("head", head)} == {(row.placement.side, row.commit.sha) for row in scene.rows}


def test_the_verdicts_follow_from_the_ledger_alone(scene: Scene) -> None:
    again = scene.project.judge(scene.gated.run_id)

    assert scene.gated.exit_code == again.exit_code
    assert _estimates(scene.gated) == _estimates(again)
    assert again.report["from_ledger"]


def test_nothing_stays_behind_in_the_repository(scene: Scene) -> None:
    assert 1 == len(scene.project.worktrees())
    assert "" == scene.project.repository.git.git.status("--porcelain")


@dataclass(frozen=True, kw_only=True)
class Continued:
    """Gates on one pair, one after the other: without time, with time, again, and after accepting."""

    project: GitProject
    first: Gated
    second: Gated
    third: Gated
    accepted: Gated


@pytest.fixture(scope="module")
def continued(tmp_path_factory: pytest.TempPathFactory) -> Continued:
    """Gate one pair of commits four times."""
    place = tmp_path_factory.mktemp("continued")
    tests = "import work\n" + "".join(
        benchmark(name, f"work.{name}") for name in ("steady", "slower", "other")
    )
    before = work(steady=10, slower=5) + OTHERS.format(units=5 * SLOWER, value=2.0)
    project = git_project(place, {"work.py": before, "tests/test_speed.py": tests})
    after = work(steady=10, slower=5 * SLOWER) + OTHERS.format(units=5, value=2.3)
    project.commit({"work.py": after}, "Slow things down")
    gates = [project.gate("--budget", seconds) for seconds in ("0.01", "60", "60")]
    for name in ("test_slower", "test_other"):
        _accept(project, name, "Exact now")
    return Continued(
        project=project, first=gates[0], second=gates[1], third=gates[2], accepted=project.gate()
    )


def test_without_time_a_gate_is_inconclusive_and_exit_code_3(continued: Continued) -> None:
    first = continued.first

    assert {"NOT REACHED"} == set(first.verdicts.values())
    assert 3 == first.exit_code
    assert {2} == {one["need"]["launches"] for one in first.comparisons.values()}


def test_a_second_gate_continues_the_test_of_the_first(continued: Continued) -> None:
    second, rows = continued.second, Ledger(continued.project.ledger).rows_of(continued.second.run_id)
    own = Counter((row.outcome.benchmark.name, row.placement.side) for row in rows)

    expected = {"test_steady": "UNCHANGED", "test_slower": "REGRESSED", "test_other": "OTHER RESULT"}
    assert expected == second.verdicts
    assert f"continues earlier gates of the same two commits: {continued.first.run_id[-8:]}" in second.notes
    for name, one in second.comparisons.items():
        assert one["estimate"]["launches"] == 1 + own[f"tests/test_speed.py::{name}", "head"]
    assert all({*MACHINE_SPEEDS} <= {*row.machine.facts} for row in rows)


def test_what_is_decided_is_not_measured_again(continued: Continued) -> None:
    rows = Ledger(continued.project.ledger).rows_of(continued.third.run_id)

    assert _estimates(continued.second) == _estimates(continued.third)
    assert 1 == continued.third.exit_code
    assert [()] * 3 == [row.outcome.values for row in rows]


def test_what_is_accepted_passes_and_is_shown(continued: Continued) -> None:
    accepted = continued.accepted

    assert 0 == accepted.exit_code
    for name, verdict in (("test_slower", "REGRESSED"), ("test_other", "OTHER RESULT")):
        assert verdict == accepted.verdicts[name]
        assert accepted.comparisons[name]["accepted"].startswith("Exact now (A Tester, ")
    assert "Exact now" in accepted.stderr


def _estimates(gated: Gated) -> dict[str, object]:
    return {name: (one["verdict"], one["estimate"]) for name, one in gated.comparisons.items()}


def _accept(project: GitProject, name: str, reason: str) -> None:
    command = ["accept", name, "--reason", reason, "--ledger", str(project.ledger)]
    run_perfkit(*command, cwd=project.root, check=True)


def test_half_the_work_at_a_margin_of_half_passes_at_once(tmp_path: Path) -> None:
    files = {"tests/test_speed.py": "import work\n" + benchmark("half", "work.half")}
    project = git_project(tmp_path, {**files, "work.py": work(half=20)})
    project.commit({"work.py": work(half=10)}, "Do half the work")

    gated = project.gate("--budget", "30")

    assert gated.exit_code == 0, gated.stderr
    (found,) = gated.comparisons.values()
    assert found["estimate"]["high"] < 1.5
    assert found["verdict"] in {"NOT SLOWER", "IMPROVED", "UNCHANGED"}
