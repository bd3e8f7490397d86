"""`perfkit bisect --base-with --head-with` names the package, or the packages, that changed a benchmark."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from forked_commands import run_perfkit
from gating import CONFIGURATION, SPIN, GitProject, git_project
from synthetic import ENVIRONMENT, MACHINE
from test_gate_environments import variables
from wheels import write_wheel

from perfkit.errors import NotMeasuredError
from perfkit.gating.packages import PackageSearch
from perfkit.gating.pairs import Earlier
from perfkit.repo.environments import Environments, side_environments
from perfkit.repo.mixed import Mixtures
from perfkit.report.bisect import guilty_lines

_IDLE = ("idle0", "idle3")
_NAMES = (*_IDLE, "alone", "left", "needy", "right")
SUITE = """
import os
import time

import alone
import pytest
import right

# Other processes do not take this time.
pytestmark = pytest.mark.benchmark(timer=time.thread_time)

def test_alone(benchmark):
    assert os.environ["LEVEL"] in {"10", "20"}
    benchmark.pedantic(alone.run, rounds=5, iterations=20)

@pytest.mark.parametrize("n", [1, 2])
def test_of_two(benchmark, n):
    benchmark(int)

def test_only_old(benchmark):
    assert not right.left.NEW, "left is too new"
    benchmark.pedantic(alone.idle, rounds=5, iterations=20)
"""


def _write_wheels(place: Path) -> None:
    wheels = place / "wheels"
    for version, new in (("1.0", False), ("2.0", True)):
        for name in _IDLE:
            write_wheel(wheels, name, version, f"NEW = {new}\n")
        run, idle = (
            f"def run():\n    return spin({20 if new else 10})\n",
            "def idle():\n    return spin(10)\n",
        )
        write_wheel(wheels, "alone", version, f"NEW = {new}\n{SPIN}\n{run}\n{idle}")
        # Two builds of one version.
        write_wheel(place / ("new" if new else "old"), "rebuilt", "1.0", f"NEW = {new}\n")
        write_wheel(wheels, "left", version, f"NEW = {new}\n", data="share/left.txt")
        write_wheel(wheels, "needy", version, "", needs=f"left=={version}")
        write_wheel(wheels, "right", version, "import left\n")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A project whose environments differ in seven packages and a variable."""

    place: Path
    project: GitProject

    def bisect(self, benchmark: str, *arguments: str) -> tuple[int, dict[str, Any], str]:
        """Return the exit code, the JSON document and what is printed."""
        written = self.place / f"{benchmark}.json"
        written.unlink(missing_ok=True)
        done = run_perfkit(
            "bisect",
            *("--ledger", str(self.project.ledger)),
            *("--base-with", str(self.place / "old.txt"), "--base-with", "LEVEL=10"),
            *("--head-with", str(self.place / "new.txt"), "--head-with", "LEVEL=20"),
            *("--benchmark", benchmark, "--json", str(written)),
            *("--markdown", str(self.place / f"{benchmark}.md"), *arguments),
            cwd=self.project.root,
            env=self.project.environment(variables(self.place)),
        )
        return done.returncode, json.loads(written.read_text()) if written.exists() else {}, done.stderr


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    place = tmp_path_factory.mktemp("packages")
    _write_wheels(place)
    for name, version in (("old", "1.0"), ("new", "2.0")):
        rebuilt = place / name / "rebuilt-1.0-py3-none-any.whl"
        (place / f"{name}.txt").write_text("".join(f"{one}=={version}\n" for one in _NAMES) + f"{rebuilt}\n")
    project = git_project(place, {"tests/test_speed.py": SUITE, "pyproject.toml": CONFIGURATION})
    return Scene(place=place, project=project)


def test_the_package_is_named_with_its_versions_and_not_measured_again(scene: Scene) -> None:
    code, report, _ = scene.bisect("test_alone")
    (found,) = report["found"]
    assert (0, "found", True) == (code, report["answer"], found["confirmed"])
    assert [[{"name": "alone", "base": "1.0", "head": "2.0"}]] == found["together"]
    assert found["low"] < 2 < found["high"] * 1.2
    assert 8 == report["packages"]
    assert "pin alone==1.0" in (scene.place / "test_alone.md").read_text()

    _, again, _ = scene.bisect("test_alone")
    assert again["earlier"] > report["earlier"]
    assert again["found"][0]["together"] == found["together"]


def test_an_end_that_cannot_run_is_named(scene: Scene) -> None:
    code, report, error = scene.bisect("test_only_old")
    assert (4, {}) == (code, report), error
    assert "perfkit: head cannot be measured: " in error
    assert "left is too new" in error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("HEAD~1",), "GOOD is for ranges of commits"),
        (("--metric", "syncs"), "--metric is for ranges of commits"),
        (("--confidence", "0.4"), "--confidence must be at least 0.5"),
        (
            ("--benchmark", "test_of_two"),
            '--benchmark "test_of_two" could mean tests/test_speed.py::test_of_two[1]',
        ),
    ],
)
def test_what_means_nothing_is_refused(scene: Scene, arguments: tuple[str, ...], expected: str) -> None:
    code, report, error = scene.bisect("test_alone", *arguments)
    assert (2, {}) == (code, report)
    assert f"perfkit: {expected}" in error


@pytest.fixture
def ends(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Environments:
    for name, value in variables(scene.place).items():
        monkeypatch.setenv(name, value)
    wanted = {
        "base": [str(scene.place / "old.txt"), "LEVEL=10"],
        "head": [str(scene.place / "new.txt"), "LEVEL=20"],
    }
    return side_environments(wanted, log=lambda _: None)  # type: ignore[arg-type]


def _meter(groups: Sequence[frozenset[str]], slow: set[str], breaking: set[str]) -> Mock:
    """Return a meter of mixtures that are slower with all of some packages, and break with one of others."""
    meter = Mock(open_pair=None, benchmark=None, machine=MACHINE, environment=ENVIRONMENT, runs=[], notes={})
    meter.earlier.return_value, meter.explain.return_value = Earlier(), None
    meter.levels.return_value, meter.name.side_effect = (None, None), str
    scatter = (0.002 * math.sin(7.0 * number) for number in itertools.count(1))

    def open_(base: int, head: int) -> Mapping[int, str]:
        failed = {one: "breaks" for one in (base, head) if 1 == len(groups[one] & breaking)}
        meter.open_pair = None if failed else (base, head)
        return failed

    def launch() -> float:
        base, head = (float(groups[place] >= slow) for place in meter.open_pair)
        return 0.7 * (head - base) + next(scatter)

    meter.open.side_effect, meter.launch.side_effect = open_, launch
    return meter


@pytest.mark.parametrize(
    ("slow", "breaking", "guilty", "hint"),
    [
        ({"alone"}, set(), [{"alone"}], "pin alone==1.0"),
        # Packages between two that break each other are not named.
        ({"alone"}, {"alone", "idle3"}, [{"alone", "idle3"}], "pin alone==1.0"),
        # needy needs the version of left.
        ({"left", "right"}, set(), [{"right"}, {"left", "needy"}], "pin left==1.0 and pin needy==1.0"),
        ({"LEVEL"}, set(), [{"LEVEL"}], "set LEVEL=10"),
    ],
)
def test_what_costs_is_named_with_what_undoes_it(
    scene: Scene,
    ends: Environments,
    slow: set[str],
    breaking: set[str],
    guilty: list[set[str]],
    hint: str,
) -> None:
    search = PackageSearch(
        mixtures=Mixtures(ends, scene.project.root),
        opening=lambda groups: nullcontext(_meter(groups, slow, breaking)),
        confidence=0.99,
        deadline=math.inf,
        progress=Mock(),
    )

    conclusion, (found,), _ = search.run()

    assert ("found", True) == (conclusion.status, found.confirmed)
    assert sorted(map(sorted, guilty)) == sorted(sorted(one.name for one in part) for part in found.together)
    assert hint in " ".join(map(str, guilty_lines(found)))


def test_mixtures_know_what_goes_together(scene: Scene, ends: Environments) -> None:
    mixtures = Mixtures(ends, scene.project.root)
    assert {*_NAMES, "rebuilt", "LEVEL"} == set(mixtures.names)
    order = mixtures.order()
    assert 1 == abs(order.index("left") - order.index("needy"))
    assert {"left", "needy"} == mixtures.with_needed(["left"])
    assert mixtures.problem(["needy"]) == "needy needs left==2.0, found 1.0"
    assert mixtures.problem(["right", "idle3"]) is None
    versions = mixtures.lay(["right"], scene.place / "mixture").packages
    assert ("2.0", "1.0") == (versions["right"], versions["left"])
    mixtures.lay(["left", "needy", "rebuilt"], scene.place / "other")
    built = [next((scene.place / name).glob("lib/python*/site-packages")) for name in ("mixture", "other")]
    assert ["NEW = False\n", "NEW = True\n"] == [(site / "rebuilt.py").read_text() for site in built]
    found = {name: (scene.place / name / "share/left.txt").read_text() for name in ("mixture", "other")}
    assert {"mixture": "1.0", "other": "2.0"} == found

    # Launches from before a package was edited in its place do not count.
    edited, again = (built[0] / "rebuilt.py").resolve(), Mixtures(ends, scene.project.root)
    edited.write_text("NEW = None\n")
    after = Mixtures(ends, scene.project.root)
    edited.write_text("NEW = False\n")
    assert mixtures.ends == again.ends == Mixtures(ends, scene.project.root).ends != after.ends

    (info,) = (scene.place / "mixture").glob("lib/python*/site-packages/alone-1.0.dist-info")
    added = info.resolve().with_name("more-1.0.dist-info")
    added.mkdir()
    with pytest.raises(NotMeasuredError, match="were changed during the search"):
        mixtures.lay(["alone"], scene.place / "third")
    added.rmdir()


def test_a_file_of_no_package_is_a_suspect_of_its_own(scene: Scene, ends: Environments) -> None:
    (site,) = Path(ends["head"].interpreter.python).parents[1].glob("lib/python*/site-packages")
    (site / "by_hand.py").touch()
    mixtures = Mixtures(ends, scene.project.root)
    places = [scene.place / "with idle0", scene.place / "with files of no package"]
    for place in places:
        mixtures.lay([place.name.removeprefix("with ")], place)
    linked = [len([*place.glob("lib/*/site-packages/by_hand.py")]) for place in places]
    (site / "by_hand.py").unlink()
    assert [0, 1] == linked
