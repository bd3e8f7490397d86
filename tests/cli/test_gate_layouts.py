"""`perfkit gate` measures each side's own code, in projects of every layout."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from gating import CONFIGURATION, Gated, GitProject, Project, benchmark, git_project, work

UNITS = 5
# Ten times the work shows in one launch; a budget that allows no look costs no more than that.
TENFOLD = 10 * UNITS
CLEARLY_MORE = 3
ONE_LAUNCH = ("--budget", "0.01")
ONE_BENCHMARK = "from {module} import steady\n" + benchmark("steady", "steady")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where a module lies in a project, its name, and the folder that an editable install would serve."""

    file: str
    module: str
    others: Mapping[str, str]
    served: str | None = None


LAYOUTS = {
    "package": Layout(
        file="package/core.py",
        module="package",
        others={"package/__init__.py": "from package.core import steady\n"},
    ),
    "src": Layout(file="src/package/core.py", module="package.core", others={"src/package/__init__.py": ""}),
    "namespace": Layout(file="space/inner/core.py", module="space.inner.core", others={}),
    "src, editable": Layout(
        file="src/package/core.py",
        module="package.core",
        others={"src/package/__init__.py": ""},
        served="src",
    ),
    "namespace in a folder, editable": Layout(
        file="lib/space/core.py", module="space.core", others={}, served="lib"
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_each_side_is_measured_with_its_own_code(
    layout: Layout, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tests = {"tests/test_speed.py": ONE_BENCHMARK.format(module=layout.module)}
    project = git_project(
        tmp_path_factory.mktemp("layout"), {layout.file: work(steady=UNITS), **layout.others, **tests}
    )
    project.commit({layout.file: work(steady=TENFOLD)})
    served = {"PYTHONPATH": str(project.root / layout.served)} if layout.served else {}

    gated = project.gate(*ONE_LAUNCH, extra=served)

    assert _ratio(gated, "test_steady") > CLEARLY_MORE, gated.stderr
    assert "loaded by no benchmark" not in gated.notes


GENERATED = """
copy = ["package/copied.py"]
link = ["package/linked.py"]
prepare = "sed s/UNITS/$(cat units.txt)/ package/built.in > package/built.py"
"""
USES_GENERATED = """
from package.built import steady
from package.copied import COPIED
from package.linked import LINKED

def test_generated(benchmark):
    assert ("copied", "linked") == (COPIED, LINKED)
    benchmark.pedantic(steady, rounds=5, iterations=20)
"""


@pytest.fixture
def generated(tmp_path: Path) -> GitProject:
    """Return a project that needs files which git does not keep, with a slower head."""
    configuration = CONFIGURATION.replace("[tool.perfkit]", f"[tool.perfkit]{GENERATED}")
    ignored = ("built", "copied", "linked")
    project = git_project(
        tmp_path,
        {
            "pyproject.toml": configuration,
            ".gitignore": "".join(f"package/{name}.py\n" for name in ignored),
            "package/__init__.py": "",
            "package/built.in": work(steady=UNITS).replace(f"spin({UNITS})", "spin(UNITS)"),
            "units.txt": f"{UNITS}",
            "package/copied.py": 'COPIED = "copied"\n',
            "package/linked.py": 'LINKED = "linked"\n',
            "tests/test_speed.py": USES_GENERATED,
        },
    )
    project.commit({"units.txt": f"{TENFOLD}"})
    return project


def test_generated_files_are_made_copied_and_linked(generated: GitProject) -> None:
    gated = generated.gate(*ONE_LAUNCH)

    assert _ratio(gated, "test_generated") > CLEARLY_MORE, gated.stderr
    assert 'LINKED = "linked"\n' == (generated.root / "package/linked.py").read_text()


def test_a_prepare_that_fails_is_exit_code_4(generated: GitProject) -> None:
    (generated.root / "package/built.in").unlink()
    generated.commit({}, "Break the build")

    gated = generated.gate()

    assert 4 == gated.exit_code
    assert "failed on head with exit code 2: sed: " in gated.stderr


@pytest.fixture(scope="module")
def subfolder(tmp_path_factory: pytest.TempPathFactory) -> tuple[GitProject, Gated]:
    """Gate the working tree of a project that is one of two in a repository."""
    inner = "packages/one"
    project = git_project(
        tmp_path_factory.mktemp("subfolder"),
        {
            "pyproject.toml": "",
            f"{inner}/pyproject.toml": CONFIGURATION,
            f"{inner}/core.py": work(steady=UNITS),
            f"{inner}/tests/test_speed.py": ONE_BENCHMARK.format(module="core"),
            "packages/two/core.py": "raise RuntimeError\n",
            "packages/two/test_two.py": "import core\n",
        },
    )
    (project.root / inner / "core.py").write_text(work(steady=TENFOLD))
    (project.root / inner / "tests/test_more.py").write_text(
        "from core import steady\n" + benchmark("more", "steady")
    )
    return project, project.gate(*ONE_LAUNCH, cwd=project.root / inner)


def test_a_project_in_a_subfolder_is_gated_by_itself(subfolder: tuple[GitProject, Gated]) -> None:
    _, gated = subfolder

    names = {one["benchmark"]["name"] for one in gated.report["comparisons"]}
    assert {"tests/test_speed.py::test_steady", "tests/test_more.py::test_more"} == names
    assert _ratio(gated, "test_steady") > CLEARLY_MORE
    assert _ratio(gated, "test_more") > CLEARLY_MORE


def test_uncommitted_work_is_head(subfolder: tuple[GitProject, Gated]) -> None:
    project, gated = subfolder
    status = project.repository.git.git.status("--porcelain", "--untracked-files=all").splitlines()

    assert gated.report["head"]["dirty"]
    assert ["M packages/one/core.py", "?? packages/one/tests/test_more.py"] == [
        line.strip() for line in status if "__pycache__" not in line
    ]


def test_a_repository_that_never_heard_of_perfkit_is_gated(tmp_path_factory: pytest.TempPathFactory) -> None:
    unmarked = "def test_without_a_benchmark():\n    raise ValueError\n"
    project = git_project(
        tmp_path_factory.mktemp("plain"),
        {
            "pyproject.toml": "",
            "core.py": work(steady=UNITS),
            "tests/unit/test_speed.py": ONE_BENCHMARK.format(module="core") + unmarked,
        },
    )
    project.commit({"core.py": work(steady=TENFOLD)})

    gated = project.gate(*ONE_LAUNCH)

    assert ["tests/unit/test_speed.py::test_steady"] == [
        one["benchmark"]["name"] for one in gated.report["comparisons"]
    ]
    assert _ratio(gated, "test_steady") > CLEARLY_MORE


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Gated]:
    """Gate two folders that no git knows, the second with a slower and a new benchmark."""
    place = tmp_path_factory.mktemp("folders")
    before, after = place / "before", place / "after"
    (before / "tests").mkdir(parents=True)
    (before / "pyproject.toml").write_text(CONFIGURATION)
    (before / "core.py").write_text(work(steady=UNITS))
    (before / "tests/test_speed.py").write_text(ONE_BENCHMARK.format(module="core"))
    shutil.copytree(before, after)
    (after / "core.py").write_text(work(steady=TENFOLD, added=1))
    (after / "tests/test_new.py").write_text("from core import added\n" + benchmark("added", "added"))
    project = Project(root=after)
    return project, project.gate("--base", "../before", "--head", ".", *ONE_LAUNCH)


def test_directories_serve_as_sides(folders: tuple[Project, Gated]) -> None:
    _, gated = folders

    assert {"test_steady": "NOT REACHED", "test_added": "NEW"} == gated.verdicts
    assert _ratio(gated, "test_steady") > CLEARLY_MORE
    assert ["directory before", "directory after"] == [
        gated.report[side]["subject"] for side in ("base", "head")
    ]


def _ratio(gated: Gated, name: str) -> float:
    found = gated.comparisons[name]
    return float(found["head_s"] / found["base_s"])


LOSSES = """
class Loss:
    def __init__(self, units):
        self.units = units
    def __call__(self):
        return spin(self.units)
LOSSES = [Loss({units}) for units in range(8, 11)]
"""
BY_ADDRESS = """
import pytest
from app import LOSSES
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_loss(benchmark, loss):
    benchmark.pedantic(loss, rounds=5, iterations=20)
"""


def test_ids_with_addresses_are_paired_in_their_order(tmp_path: Path) -> None:
    losses = work() + LOSSES.replace("{units}", "units")
    project = git_project(tmp_path, {"app.py": losses, "test_app.py": BY_ADDRESS})
    project.commit({"app.py": losses.replace("LOSSES = [", "OTHER = Loss(7)\nLOSSES = [")})
    options = ("--margin", "1000%", "--budget", "60")

    gated = project.gate(*options)

    names = [f"test_loss[<app.Loss object>#{number}-of-3]" for number in (1, 2, 3)]
    assert dict.fromkeys(names, "UNCHANGED") == gated.verdicts, gated.stderr
    assert 0 == gated.exit_code

    project.commit({"app.py": losses.replace("range(8, 11)", "range(7, 11)")})
    gated = project.gate(*options)
    assert {"MISSING", "NEW"} == set(gated.verdicts.values())
    assert 4 == gated.exit_code
