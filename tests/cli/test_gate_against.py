"""`perfkit gate --against` judges head against a release as well; `--plan` shows what a gate would find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from gating import CONFIGURATION, SLOWER, Gated, GitProject, benchmark, git_project, work
from repositories import Repository

from perfkit.commands.gate import last_release
from perfkit.config import load_project
from perfkit.errors import RepositoryError
from perfkit.ledger.store import Ledger
from perfkit.model.policies import gate_policy

TESTS = "import work\n" + benchmark("steady", "work.steady") + benchmark("slower", "work.slower")
FAST, SLOW = work(steady=10, slower=5), work(steady=10, slower=5 * SLOWER)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> GitProject:
    """Return a repository whose release v1 is fast and configured, and whose last two commits are slow.

    The suite of an older release, v0, cannot be collected.
    """
    made = git_project(tmp_path_factory.mktemp("against"), {"work.py": FAST, "tests/test_speed.py": TESTS})
    made.commit({"tests/conftest.py": "import nowhere\n"})
    made.repository.git.create_tag("v0")
    (made.root / "tests/conftest.py").unlink()
    configuration = CONFIGURATION.replace("preload = []", 'preload = []\nagainst = "v1"')
    made.commit({"pyproject.toml": configuration}, "Release")
    made.repository.git.create_tag("v1")
    made.commit({"work.py": SLOW}, "Slow things down")
    made.commit({"work.py": f"{SLOW}\nX = 1\n"}, "Change nothing")
    return made


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Plans before and after a gate against the release, and the gate with its comment."""

    project: GitProject
    before: Gated
    gated: Gated
    comment: str
    after: Gated

    @property
    def against(self) -> dict[str, Any]:
        """The report against the release."""
        return dict(self.gated.report["against"])


@pytest.fixture(scope="module")
def scene(project: GitProject) -> Scene:
    """Plan, gate and plan again, the release as configured and the ledger empty at first."""
    assert not project.ledger.exists()
    before = project.gate("--plan", "--against", "", "--budget", "1min")
    assert not project.ledger.exists()
    comment = project.root.with_name("comment.md")
    gated = project.gate("--budget", "60", "--markdown", str(comment))
    after = project.gate("--plan", "--budget", "60", "--base", "v1", "--margin", "2%", "--against", "")
    return Scene(project=project, before=before, gated=gated, comment=comment.read_text(), after=after)


def test_the_worse_of_both_counts(scene: Scene) -> None:
    assert {"test_steady": "UNCHANGED", "test_slower": "UNCHANGED"} == scene.gated.verdicts
    assert {"test_steady": "UNCHANGED", "test_slower": "REGRESSED"} == _verdicts(scene.against)
    assert (0, 1, 1) == (scene.gated.report["exit_code"], scene.against["exit_code"], scene.gated.exit_code)


def test_each_is_a_whole_gate_of_one_head(scene: Scene) -> None:
    report, against = scene.gated.report, scene.against
    tag = scene.project.repository.git.commit("v1").hexsha

    assert ("v1", tag, report["head"]["sha"]) == (
        against["release"],
        against["base"]["sha"],
        against["head"]["sha"],
    )
    assert {60.0} == {report["budget_s"], against["budget_s"]}
    recorded = {row.run_id: gate_policy(row).base for row in Ledger(scene.project.ledger).rows()}
    assert {report["run_id"]: report["base"]["sha"], against["run_id"]: tag} == recorded
    again = scene.project.judge(against["run_id"])
    assert (1, _verdicts(against)) == (again.exit_code, again.verdicts)


def test_the_output_shows_against_what(scene: Scene) -> None:
    for text in (scene.gated.stderr, scene.comment):
        words = " ".join(text.split())
        assert "PASS against its base, FAIL against v1: exit code 1 for both." in words
        assert "at most 20 %, for both together at most 40 %" in words
    assert "PASS against its base; now against v1\n" in scene.gated.stderr


def test_a_plan_rests_on_the_gates_before_it(scene: Scene) -> None:
    before, after = (_planned(plan) for plan in (scene.before, scene.after))

    assert (0, 0) == (scene.before.exit_code, scene.after.exit_code)
    assert {("usual", 0)} == {(one["known_from"], one["gates"]) for one in before.values()}
    assert {True} == {one["launches"] in scene.before.report["policy"]["looks"] for one in before.values()}
    assert scene.before.stderr.splitlines()[3].startswith("In 60 s this gate would find a slowdown of 5")
    assert "REGRESSED" == after["test_slower"]["decided"]
    assert ("its gates", 2) == (after["test_steady"]["known_from"], after["test_steady"]["gates"])
    assert 0 < after["test_steady"]["launch_s"] < 5
    assert 2 == len({row.run_id for row in Ledger(scene.project.ledger).rows()}), "a plan records nothing"


def test_a_configured_release_that_is_head_is_refused(project: GitProject) -> None:
    gated = project.gate("--budget", "0.01", "--head", "v1", "--base", "v0", "--rules", "head")

    assert (2, "") == (gated.exit_code, gated.stdout)
    assert gated.stderr.startswith('perfkit: [tool.perfkit.gate] against = "v1" is head itself, so there is')
    assert 1 == len(gated.stderr.splitlines())


def test_the_last_release_is_the_newest_tag_before_head(project: GitProject) -> None:
    assert "v1" == last_release(load_project(project.root))
    tag = project.repository.git.create_tag("v2")
    try:
        assert "v1" == last_release(load_project(project.root))
    finally:
        project.repository.git.delete_tag(tag)


def test_without_a_release_it_is_shown_how_to_name_one(repository: Repository) -> None:
    repository.commit({"a.py": ""})

    with pytest.raises(RepositoryError, match="HEAD comes from no tag; fetch them with `git fetch --tags"):
        last_release(load_project(repository.root))


def test_a_release_that_is_the_base_is_compared_once(project: GitProject) -> None:
    gated = project.gate("--budget", "0.01", "--base", "v1", "--ledger", str(project.root.with_name("once")))

    assert None is gated.report["against"]
    assert "v1 is base itself, so head is compared once" in gated.notes
    assert 3 == gated.exit_code


def test_the_first_result_is_reported_where_the_second_cannot_be_had(project: GitProject) -> None:
    comment = project.root.with_name("none.md")
    place = ("--ledger", str(project.root.with_name("none")), "--markdown", str(comment))
    gated = project.gate("--budget", "0.01", "--against", "v0", *place)

    assert (4, 3, None) == (gated.exit_code, gated.report["exit_code"], gated.report["against"])
    assert "perfkit: against v0: pytest could not collect the benchmarks of base: " in gated.stderr
    assert gated.stderr.index("UNDECIDED: ") < gated.stderr.index("perfkit: against v0")
    assert "test_steady" in comment.read_text()


def _verdicts(report: dict[str, Any]) -> dict[str, str]:
    return {one["benchmark"]["name"].rpartition("::")[2]: one["verdict"] for one in report["comparisons"]}


def _planned(plan: Gated) -> dict[str, dict[str, Any]]:
    return {one["benchmark"]["name"].rpartition("::")[2]: one for one in plan.report["benchmarks"]}
