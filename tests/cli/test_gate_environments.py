"""`perfkit gate --base-with --head-with` compares one commit's times in two environments."""

from __future__ import annotations

import json
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from gating import CONFIGURATION, SLOWER, SPIN, Gated, GitProject, benchmark, git_project
from wheels import write_wheel

from perfkit.gating.explain import _on_environments
from perfkit.ledger.store import Ledger
from perfkit.repo.environments import SideEnvironment
from perfkit.runner.commands import Interpreter

SUITE = """
import pkgdemo

def test_pkgdemo(benchmark):
    benchmark.pedantic(pkgdemo.steady, rounds=5, iterations=20)
"""
TWO_VERSIONS = ("--base-with", "pkgdemo==1.0", "--head-with", "pkgdemo==2.0")
DECIDED = ("--budget", "60")
# A launch without a decision.
ONE_LAUNCH = ("--budget", "0.01")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A project that uses a package of two versions, where its environments are kept, and its first gate."""

    place: Path
    project: GitProject
    gated: Gated

    @property
    def kept(self) -> Path:
        """The folder of built environments."""
        return self.place / "cache/perfkit/environments"

    def gate(self, *arguments: str, select: str = "pkgdemo") -> Gated:
        """Gate what uses the package, with the wheels at hand and no network."""
        return self.project.gate("--select", select, *arguments, extra=variables(self.place))


def variables(place: Path) -> dict[str, str]:
    """Return the variables under which environments are built from the wheels alone."""
    return {
        "XDG_CACHE_HOME": str(place / "cache"),
        "PIP_FIND_LINKS": str(place / "wheels"),
        "UV_FIND_LINKS": str(place / "wheels"),
        "PIP_NO_INDEX": "1",
        "UV_NO_INDEX": "1",
    }


def write_version(place: Path, version: str, units: int) -> Path:
    text = f"{SPIN}\ndef steady():\n    return spin({units})\n"
    return write_wheel(place / "wheels", "pkgdemo", version, text)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Gate a commit with two versions of a package, the second one of which is three times slower."""
    place = tmp_path_factory.mktemp("environments")
    write_version(place, "1.0", 10)
    write_version(place, "2.0", 10 * SLOWER)
    for version in ("1.0", "2.0"):
        write_wheel(place / "wheels", "needing", version, "", needs=f"pkgdemo=={version}")
    files = {"tests/test_speed.py": SUITE, "tests/test_plain.py": benchmark("plain", "int")}
    project = git_project(place, {**files, "pyproject.toml": CONFIGURATION})
    comment = str(place / "comment.md")
    gated = project.gate(
        *TWO_VERSIONS, "--select", "pkgdemo", *DECIDED, "--markdown", comment, extra=variables(place)
    )
    return Scene(place=place, project=project, gated=gated)


def test_the_slower_version_of_a_package_regresses(scene: Scene) -> None:
    assert (1, {"test_pkgdemo": "REGRESSED"}) == (scene.gated.exit_code, scene.gated.verdicts)
    assert scene.gated.report["base"]["sha"] == scene.gated.report["head"]["sha"]
    assert "environments  pkgdemo 1.0 became 2.0" in scene.gated.stderr
    # Other tests may take the cores meanwhile, which is noted.
    expected = scene.gated.notes.splitlines()
    assert [] == [note for note in expected if not note.startswith("the machine was disturbed")]
    assert "perfkit accept" not in scene.gated.stderr


def test_a_comment_shows_how_to_reproduce_it(scene: Scene) -> None:
    comment = (scene.place / "comment.md").read_text()
    assert "Environments: pkgdemo 1.0 became 2.0" in comment
    assert "--base-with pkgdemo==1.0 --head-with pkgdemo==2.0`" in comment


def test_rows_of_each_side_have_its_environment(scene: Scene) -> None:
    rows = Ledger(scene.project.ledger).rows_of(scene.gated.run_id)
    found = {(row.placement.side, row.environment.facts["package pkgdemo"]) for row in rows}
    assert {("base", "1.0"), ("head", "2.0")} == found
    assert 1 == len({row.commit.sha for row in rows})
    assert 2 == len({row.environment.env_id for row in rows})


def test_it_is_judged_anew_from_its_rows(scene: Scene) -> None:
    again = scene.project.judge(scene.gated.run_id)
    assert (1, scene.gated.verdicts) == (again.exit_code, again.verdicts)
    assert "environments  pkgdemo 1.0 became 2.0" in again.stderr


def test_the_next_gate_uses_the_environments_again_and_goes_on(scene: Scene) -> None:
    before = {file: file.stat().st_mtime_ns for file in scene.kept.glob("*/complete.json")}
    again = scene.gate(*TWO_VERSIONS, *ONE_LAUNCH)
    assert "continues earlier gates of the same two commits" in again.notes
    assert 2 == len(before)
    assert before == {file: file.stat().st_mtime_ns for file in scene.kept.glob("*/complete.json")}


def test_packages_that_differ_unasked_are_noted() -> None:
    base, head = (
        SideEnvironment(
            wanted=(),
            interpreter=Interpreter(),
            python="CPython 3.12",
            packages={"needing": version, "pkgdemo": version},
            named=frozenset({"needing"}),
        )
        for version in ("1.0", "2.0")
    )
    (note,) = _on_environments({"base": base, "head": head})
    assert (
        "besides what was asked for, other packages differ (base, head): pkgdemo (1.0, 2.0);"
        " what is found may be theirs"
    ) == note


def test_one_side_may_stay_as_it_is(scene: Scene) -> None:
    sides = ("--base-with", "SPEED=3", "--head-with", "pkgdemo==1.0")
    found = scene.gate(*sides, "--benchmarks", "tests/test_plain.py", *ONE_LAUNCH, select="plain")
    rows = Ledger(scene.project.ledger).rows_of(found.run_id)
    facts = {(row.placement.side, row.environment.facts["package pkgdemo"]) for row in rows}
    assert {("base", "absent"), ("head", "1.0")} >= facts
    speeds = {(row.placement.side, row.environment.facts["SPEED"]) for row in rows}
    assert {("base", "3"), ("head", "absent")} >= speeds
    assert ["test_plain"] == list(found.comparisons)
    assert "only head has pkgdemo" in found.stderr


def test_a_build_that_was_killed_is_not_used(scene: Scene) -> None:
    wanted = {file.read_text(): file.parent for file in scene.kept.glob("*/wanted.txt")}
    whole = wanted["pkgdemo==2.0\n"]
    (whole / "complete.json").unlink()
    module = next(whole.glob("lib/*/site-packages/pkgdemo.py"))
    # An installer may have linked it to the file in its own cache.
    module.unlink()
    module.write_text("raise ValueError('half of it')")
    found = scene.gate(*TWO_VERSIONS, *ONE_LAUNCH)
    assert {"test_pkgdemo": "REGRESSED"} == found.verdicts
    assert (whole / "complete.json").is_file()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (["pkgdemo==9.0"], "pkgdemo==9"),
        (["pkgdemo==1.0", "needing==2.0"], "depends on pkgdemo==2.0"),
    ],
)
def test_what_cannot_be_built_is_one_line(scene: Scene, wanted: list[str], expected: str) -> None:
    before = Ledger(scene.project.ledger).files()
    found = scene.gate(*(word for one in wanted for word in (f"--head-with={one}",)))
    last = found.stderr.strip().splitlines()[-1]
    assert (2, {}) == (found.exit_code, found.report)
    assert last.startswith("perfkit: --head-with")
    assert expected in last
    assert before == Ledger(scene.project.ledger).files()


@pytest.mark.parametrize("option", ["--plan", "--against=HEAD", "--against-release"])
def test_what_contradicts_environments_is_refused(scene: Scene, option: str) -> None:
    found = scene.gate("--head-with", "pkgdemo==1.0", option)
    assert 2 == found.exit_code
    assert "contradict each other" in found.stderr


def test_an_existing_environment_is_lent_the_harness(scene: Scene) -> None:
    place = scene.place / "existing"
    venv.EnvBuilder(symlinks=True).create(place)
    packages = Path(sysconfig.get_path("purelib", scheme="venv", vars={"base": str(place)}))
    with zipfile.ZipFile(scene.place / "wheels/pkgdemo-2.0-py3-none-any.whl") as wheel:
        wheel.extractall(packages)
    before = sorted(packages.iterdir())
    found = scene.gate("--base-with", "pkgdemo==1.0", "--head-with", str(place), *ONE_LAUNCH)
    times = found.comparisons["test_pkgdemo"]
    assert times["head_s"] > 2 * times["base_s"]
    assert "pkgdemo 1.0 became 2.0" in found.stderr
    assert before == [file for file in sorted(packages.iterdir()) if file.name != "__pycache__"]


def _fake(place: Path, **output: object) -> Path:
    python = place / "bin/python"
    python.parent.mkdir(parents=True)
    answer = {"python": "CPython 3.12.1", "release": [3, 12], "packages": {}, "problem": None, **output}
    python.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
    python.chmod(0o755)
    return place


def test_an_environment_that_cannot_run_the_harness_is_reported_with_the_command(scene: Scene) -> None:
    lacking = _fake(scene.place / "lacking", problem="ModuleNotFoundError: No module named 'pytest'")
    found = scene.gate("--head-with", str(lacking))
    assert 2 == found.exit_code
    assert f"run `{lacking}/bin/python -m pip install pytest pytest-benchmark`" in found.stderr


def test_an_interpreter_that_answers_nothing_is_reported(scene: Scene) -> None:
    broken = scene.place / "broken"
    (broken / "bin").mkdir(parents=True)
    (broken / "bin/python").write_text("no program")
    found = scene.gate("--head-with", str(broken))
    assert 4 == found.exit_code
    assert "does not list its packages" in found.stderr
