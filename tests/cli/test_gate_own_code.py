"""A gate measures each side's own code: in every layout, and where sides share caches, ports or files."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest
from gating import CONFIGURATION, Gated, GitProject, Project, benchmark, git_project, work

UNITS = 5
# Ten times the work shows in one launch; a budget that allows no look costs no more than that.
TENFOLD = 10 * UNITS
CLEARLY_MORE = 3
ONE_LAUNCH = ("--budget", "0.01")
ONE_BENCHMARK = "from {module} import steady\n" + benchmark("steady", "steady")


OTHERS = {
    "as it lies": {"src/found/__init__.py": "", "package/__init__.py": "from package.core import steady\n"},
    "served": {"src/package/__init__.py": ""},
}
# The file of each module; "served" ones are found as an editable installation serves them.
LAYOUTS = {
    "as it lies": {
        "package": "package/core.py",
        "found.core": "src/found/core.py",
        "space.inner.core": "space/inner/core.py",
    },
    "served": {"package.core": "src/package/core.py", "space.core": "lib/space/core.py"},
}


@pytest.mark.parametrize("how", LAYOUTS)
def test_each_side_is_measured_with_its_own_code(tmp_path: Path, how: str) -> None:
    modules = LAYOUTS[how]
    others = OTHERS[how]
    names = [module.replace(".", "_") for module in modules]
    tests = {
        f"tests/test_{name}.py": f"from {module} import steady\n" + benchmark(name, "steady")
        for name, module in zip(names, modules, strict=True)
    }
    project = git_project(
        tmp_path, {**dict.fromkeys(modules.values(), work(steady=UNITS)), **others, **tests}
    )
    project.commit(dict.fromkeys(modules.values(), work(steady=TENFOLD)))
    path = os.pathsep.join(str(project.root / folder) for folder in ("src", "lib"))

    gated = project.gate(*ONE_LAUNCH, extra={"PYTHONPATH": path} if how == "served" else {})

    ratios = {name: _ratio(gated, f"test_{name}") > CLEARLY_MORE for name in names}
    assert dict.fromkeys(names, True) == ratios, gated.stderr
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

    gated = project.gate(*ONE_LAUNCH)

    names = [f"test_loss[<app.Loss object>#{number}-of-3]" for number in (1, 2, 3)]
    assert dict.fromkeys(names, "NOT REACHED") == gated.verdicts, gated.stderr
    assert 3 == gated.exit_code

    project.commit({"app.py": losses.replace("range(8, 11)", "range(7, 11)")})
    gated = project.gate(*ONE_LAUNCH)
    assert {"MISSING", "NEW"} == set(gated.verdicts.values())
    assert 4 == gated.exit_code


CORE, APP = "packages/core/src", "packages/app/source"
# An editable installation may serve packages by a finder like this one instead of a path.
FINDER = """
import importlib.util, sys
MAPPING = {mapping!r}
class EditableFinder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in MAPPING:
            return importlib.util.spec_from_file_location(name, MAPPING[name] + "/__init__.py")
sys.meta_path.append(EditableFinder)
"""


def _workspace(place: Path) -> GitProject:
    project = git_project(
        place,
        {
            f"{CORE}/acme_core/__init__.py": work(count=10),
            f"{APP}/acme_app/__init__.py": "from acme_core import count as step\n",
            "packages/app/pyproject.toml": CONFIGURATION,
            "packages/app/tests/test_step.py": f"from acme_app import step\n{benchmark('step', 'step')}",
        },
    )
    project.commit({f"{CORE}/acme_core/__init__.py": work(count=100)})
    return project


def test_a_change_in_a_sibling_package_is_measured(tmp_path: Path) -> None:
    project = _workspace(tmp_path)
    mapping = {"acme_core": f"{project.root}/{CORE}/acme_core"}
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(FINDER.format(mapping=mapping))
    path = os.pathsep.join((f"{tmp_path}/site", f"{project.root}/{APP}"))

    gated = project.gate(*ONE_LAUNCH, cwd=project.root / "packages/app", extra={"PYTHONPATH": path})

    assert _ratio(gated, "test_step") > CLEARLY_MORE, gated.stderr


RAISES = """
def test_raises(benchmark):
    text = "-- Process 0 terminated with the following error:\\nTraceback (most recent call last):\\n"
    text += "  File 'somewhere/spawn.py', line 1, in run\\n    started = True\\n" * 20
    raise RuntimeError(text + "ValueError: the cause of it\\nframe #0: somewhere + 0x1\\n")
    benchmark(int)
"""


def test_the_cause_of_a_failure_is_shown_and_no_installed_package_suggested(tmp_path: Path) -> None:
    modules = {"tests/test_part.py": "numpy.no_such_module", "tests/test_system.py": "winreg"}
    tests = {file: f"import {module}\n{benchmark('one', 'int')}" for file, module in modules.items()}
    project = git_project(tmp_path, {"test_one.py": RAISES, **tests})
    project.commit({"work.py": ""})

    gated = project.gate(*ONE_LAUNCH)

    for file, module in modules.items():
        message = gated.comparisons[file]["message"]
        assert module.partition(".")[0] in message
        assert "pip install" not in message
    assert "ValueError: the cause of it" in gated.comparisons["test_raises"]["message"]


needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="a library has to be compiled")
SOURCE = "long work(void) {{ volatile long s = 0; for (long i = 0; i < {}; i++) s += i; return s; }}\n"
LIBRARY = """
import ctypes, os, pathlib, subprocess
cache = pathlib.Path({cache})
cache.mkdir(parents=True, exist_ok=True)
library = cache / "demo_op.so"
if not library.exists():
    source = str(pathlib.Path(__file__).with_name("op.c"))
    subprocess.run(["gcc", "-O0", "-shared", "-fPIC", "-o", str(library), source], check=True)
work = ctypes.CDLL(str(library)).work
"""
LIBRARY_TEST = (
    "from app import work\ndef test_work(benchmark):\n    benchmark.pedantic(work, rounds=5, iterations=20)\n"
)


@needs_gcc
def test_a_library_in_a_shared_cache_is_refused(tmp_path: Path) -> None:
    app = LIBRARY.format(cache="pathlib.Path.home() / '.cache/demo'")
    files = {"app.py": app, "op.c": SOURCE.format(20_000), "test_app.py": LIBRARY_TEST}
    project = git_project(tmp_path, files)
    project.commit({"op.c": SOURCE.format(200_000)})
    home = tmp_path / "home"
    home.mkdir()

    for _ in range(2):
        gated = project.gate(*ONE_LAUNCH, extra={"HOME": str(home)})
        assert 4 == gated.exit_code
        assert "demo_op.so" in gated.stderr


@needs_gcc
def test_each_side_has_its_own_folder_of_extensions(tmp_path: Path) -> None:
    app = LIBRARY.format(cache="os.environ['TORCH_EXTENSIONS_DIR']")
    project = git_project(
        tmp_path, {"app.py": app, "op.c": SOURCE.format(20_000), "test_app.py": LIBRARY_TEST}
    )
    project.commit({"op.c": SOURCE.format(200_000)})
    shared = tmp_path / "extensions"

    gated = project.gate(*ONE_LAUNCH, extra={"TORCH_EXTENSIONS_DIR": str(shared)})

    assert _ratio(gated, "test_work") > CLEARLY_MORE, gated.stderr
    assert not shared.exists()


HELD = """
import fcntl, os, pathlib, socket
import pytest
from work import steady

@pytest.fixture
def held():
    {taken}
    yield
    taken.close()

@pytest.mark.perfkit(limit=4)
def test_{way}(benchmark, held):
    benchmark.pedantic(steady, rounds=5, iterations=20)
"""
WAYS = {
    "port": "taken = socket.socket(); taken.bind(('127.0.0.1', {port})); taken.listen()",
    "lock": "taken = open('{lock}', 'w'); fcntl.flock(taken, fcntl.LOCK_EX | fcntl.LOCK_NB)",
    "wait": "taken = open('{lock}', 'w'); fcntl.flock(taken, fcntl.LOCK_EX)",
}


@pytest.mark.parametrize(("ways", "option"), [(("port", "wait"), ()), (("lock",), ("--exact-only",))])
def test_sides_that_need_the_same_run_one_after_the_other(
    tmp_path: Path, ways: tuple[str, ...], option: tuple[str, ...]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    taken = {way: WAYS[way].format(port=port, lock=tmp_path / f"{way}.lock") for way in ways}
    tests = {f"test_{way}.py": HELD.format(way=way, taken=text) for way, text in taken.items()}
    project = git_project(tmp_path, {"work.py": work(steady=10), **tests})
    project.commit({"work.py": work(steady=100)})

    gated = project.gate(*ONE_LAUNCH, *option)

    assert "FAILED" not in gated.verdicts.values(), gated.stderr
    assert "TIMEOUT" not in gated.verdicts.values(), gated.stderr
    if not option:
        assert all(_ratio(gated, name) > CLEARLY_MORE for name in ("test_port", "test_wait"))
        assert "as where both need the same port or lock file" in gated.notes
