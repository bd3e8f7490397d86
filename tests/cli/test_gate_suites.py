"""`perfkit gate` handles suites with traits that perfkit's own suite lacks: one small repository for each."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from forked_commands import run_perfkit
from gating import CONFIGURATION, Gated, GitProject, benchmark, git_project, work

from perfkit.ledger.store import Ledger
from perfkit.profiling.passes.launch import free_port

# Time for one launch.
ONE_LAUNCH = ("--budget", "0.01")
STEADY = "import pytest\nimport work\n" + benchmark("steady", "work.steady")
FILES = {"work.py": work(steady=10), "tests/test_speed.py": STEADY}

SKIPPING = """
@pytest.fixture
def gpu():
    pytest.skip("no GPU in this machine")

def test_fixture(benchmark, gpu):
    benchmark(work.steady)

def test_body(benchmark):
    pytest.skip("needs a GPU")

@pytest.mark.skipif(not hasattr(work, "gpu"), reason="work was built without a GPU")
def test_marked(benchmark):
    benchmark(work.steady)

@pytest.mark.skipif(not hasattr(work, "old"), reason="no old way any more")
def test_gone(benchmark):
    benchmark.pedantic(work.steady, rounds=5, iterations=20)

@pytest.mark.skipif(not hasattr(work, "added"), reason="nothing was added yet")
def test_added(benchmark):
    benchmark.pedantic(work.steady, rounds=5, iterations=20)

def test_broken(benchmark):
    benchmark({}.pop, "key")

def test_untrue(benchmark):
    assert benchmark(work.steady) == "steady"

def test_lost(benchmark):
    benchmark(lambda: work.old or 1)
"""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A project and its gate."""

    project: GitProject
    gated: Gated

    @property
    def output(self) -> str:
        """What it printed for people, in one line."""
        return " ".join(self.gated.stderr.split())


@pytest.fixture(scope="module")
def skipping(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Gate benchmarks that are skipped in every way, beside one that runs."""
    before = {"work.py": work(steady=10, old=1), "tests/test_speed.py": STEADY + SKIPPING}
    project = git_project(tmp_path_factory.mktemp("skipped"), before)
    project.commit({"work.py": work(steady=10, added=1)})
    return Scene(project=project, gated=project.gate(*ONE_LAUNCH))


@pytest.mark.parametrize(
    ("name", "verdict", "message"),
    [
        ("test_fixture", "SKIPPED", "on both sides: no GPU in this machine"),
        ("test_body", "SKIPPED", "on both sides: needs a GPU"),
        ("test_marked", "SKIPPED", "on both sides: work was built without a GPU"),
        ("test_gone", "MISSING", "skipped on head: no old way any more"),
        ("test_added", "FAILED", "skipped on base: nothing was added yet"),
        ("test_broken", "FAILED", "on both sides: KeyError: 'key'"),
        ("test_untrue", "FAILED", "on both sides: AssertionError: assert"),
        ("test_lost", "FAILED", "on head: AttributeError: module 'work' has no attribute 'old'"),
    ],
)
def test_the_sides_that_skip_or_fail_decide(skipping: Scene, name: str, verdict: str, message: str) -> None:
    found = skipping.gated.comparisons[name]

    assert verdict == found["verdict"]
    assert found["message"].startswith(message)


def test_the_exit_code_is_that_of_what_is_not_skipped(skipping: Scene) -> None:
    assert 4 == skipping.gated.exit_code
    assert "NOT REACHED" == skipping.gated.verdicts["test_steady"]
    assert "3 SKIPPED" in skipping.output
    assert "perfkit accept test_" in skipping.output
    assert "perfkit accept test_body" not in skipping.output


def test_instructions_of_no_benchmark_do_not_pass(tmp_path: Path) -> None:
    for name in ("valgrind", "callgrind_control"):
        command = tmp_path / "commands" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text("#!/bin/sh\necho 'illegal instruction' >&2\nexit 132\n")
        command.chmod(0o755)
    project = git_project(tmp_path, FILES)
    project.commit({"work.py": work(steady=11)})

    path = os.pathsep.join((str(tmp_path / "commands"), os.environ["PATH"]))
    gated = project.gate("--instructions", *ONE_LAUNCH, "--margin", "1000%", extra={"PATH": path})

    output = " ".join(gated.stderr.split())
    assert 4 == gated.exit_code
    assert "NOT MEASURED: the instructions of no benchmark could be counted" in output
    assert "illegal instruction" in output


DOCTESTS = CONFIGURATION + '[tool.pytest.ini_options]\naddopts = ["--doctest-modules"]\n'


@pytest.fixture(scope="module")
def unimportable(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Gate a suite in which pytest cannot import some files, with a margin that all times keep."""
    lacking = "import nowhere\n" + STEADY
    project = git_project(
        tmp_path_factory.mktemp("unimportable"),
        {
            **FILES,
            "pyproject.toml": DOCTESTS,
            "wsgi.py": "import django_nowhere\n",
            "tests/test_extra.py": lacking,
            "tests/test_another.py": lacking,
            "tests/test_gpu.py": "import pytest\npytest.importorskip('cupy_nowhere')\n" + STEADY,
        },
    )
    project.commit({"work.py": work(steady=11)})
    return Scene(project=project, gated=project.gate("--margin", "1000%", "--budget", "60", "--verbose"))


def test_a_file_without_benchmarks_is_not_looked_at(unimportable: Scene) -> None:
    assert "wsgi" not in unimportable.output


def test_what_neither_side_can_import_is_reported_and_does_not_decide(unimportable: Scene) -> None:
    known = unimportable.gated.verdicts

    assert 0 == unimportable.gated.exit_code, unimportable.output
    assert "UNCHANGED" == known["test_steady"]
    assert 1 == unimportable.output.count(
        "does not import on either side: ModuleNotFoundError: No module named 'nowhere';"
        " install what provides it here: `pip install nowhere`; so it is with"
    )
    assert "Not looked at, for the reason above: tests/test_another.py" in unimportable.output
    assert "accept" not in unimportable.output


def test_a_file_that_skips_itself_is_reported(unimportable: Scene) -> None:
    found = unimportable.gated.comparisons["tests/test_gpu.py"]

    assert "SKIPPED" == found["verdict"]
    assert "skipped as a whole: could not import 'cupy_nowhere'" in found["message"]


GENERATED = {
    "pyproject.toml": CONFIGURATION + '[tool.setuptools_scm]\nversion_file = "pkg/_version.py"\n',
    ".gitignore": "_version.py\n_gen.py\n*.bin\n",
    "pkg/__init__.py": "from pkg._version import version\n",
    "pkg/_version.py": "version = '1'\n",
    "pkg/_gen.py": "table = 1\n",
    "tests/test_speed.py": "import pkg\n" + STEADY,
}


def test_generated_files_are_brought_or_named(tmp_path: Path) -> None:
    reading = "from pathlib import Path\nPath(__file__).with_name('table.bin').read_bytes()\n"
    made = {
        **GENERATED,
        "work.py": work(steady=10),
        "tests/test_gen.py": "from pkg import _gen\n" + STEADY,
        "tests/test_data.py": reading + STEADY,
        "tests/table.bin": "",
    }
    project = git_project(tmp_path, made)
    project.commit({"work.py": work(steady=11)})

    gated = project.gate(*ONE_LAUNCH, "--verbose")

    output = " ".join(gated.stderr.split())
    lacking = {"tests/test_gen.py": "FAILED", "tests/test_data.py": "FAILED"}
    assert {"test_steady": "NOT REACHED", **lacking} == gated.verdicts
    assert 4 == gated.exit_code
    assert "pkg/_gen.py is ignored by git" in output
    assert 'set copy = ["pkg/_gen.py"] under [tool.perfkit]' in output
    assert 'set copy = ["tests/table.bin"] under [tool.perfkit]' in output
    assert "accept" not in output


@pytest.mark.parametrize(
    ("conftest", "expected"),
    [
        (
            "import pytest\ndef pytest_collection_finish(session):\n    pytest.exit('the server is taken')\n",
            "could not collect the benchmarks of head: pytest.exit(): the server is taken; run",
        ),
        (
            "def pytest_collection_modifyitems(items):\n    raise SystemExit(5)\n",
            "could not collect the benchmarks of head: SystemExit: 5 (conftest.py:2); run",
        ),
    ],
    ids=["ends the session", "ends the process"],
)
def test_what_ends_pytest_is_reported(tmp_path: Path, conftest: str, expected: str) -> None:
    project = git_project(tmp_path, {**GENERATED, "work.py": work(steady=10)})
    project.commit({"conftest.py": conftest})

    gated = project.gate()

    assert (4, "") == (gated.exit_code, gated.stdout)
    assert expected in " ".join(gated.stderr.split())
    assert "session is over" not in gated.stderr


def test_what_pytest_itself_rests_on_is_gated(tmp_path: Path) -> None:
    found = importlib.util.find_spec("pluggy")
    assert found is not None
    assert found.origin is not None
    suite = "import pluggy\n" + benchmark("manager", "pluggy.PluginManager, args=['x']")
    project = git_project(tmp_path, {"tests/test_speed.py": suite})
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(found.origin).parent, project.root / "src/pluggy", ignore=ignored)
    project.commit({})
    more = "\ndef _more(self, *args):\n    sum(range(20_000))\n    _begin(self, *args)\n"
    with (project.root / "src/pluggy/_manager.py").open("a") as file:
        file.write(f"\n_begin = PluginManager.__init__{more}PluginManager.__init__ = _more\n")
    project.commit({})

    gated = project.gate(*ONE_LAUNCH)

    times = gated.comparisons["test_manager"]
    assert times["head_s"] > 2 * times["base_s"], gated.stderr
    assert "pytest itself needs pluggy, so that launches import it anew" in gated.notes


COMPILED = {
    ".gitignore": "*.so\n",
    "pkg/__init__.py": "from pkg import _C\n",
    "pkg/_C.c": "int one(void) { return 1; }\n",
    "setup.py": "raise SystemExit('build me')\n",
    "tests/test_speed.py": "import pkg\n" + STEADY,
    "work.py": work(steady=10),
}


def test_a_module_that_has_to_be_compiled_is_named(tmp_path: Path) -> None:
    project = git_project(tmp_path, COMPILED)
    (project.root / "pkg/_C.abi3.so").touch()
    project.commit({"work.py": work(steady=11)})

    gated = project.gate()

    assert (4, {"tests/test_speed.py": "FAILED"}) == (gated.exit_code, gated.verdicts)
    message = gated.comparisons["tests/test_speed.py"]["message"]
    assert 'compiled in each checkout: set prepare = "python setup.py build_ext --inplace" under' in message
    assert "accept" not in gated.stderr

    project.commit({"pyproject.toml": CONFIGURATION.replace("margin", 'prepare = "true"\nmargin')})

    assert "--rules head" in project.gate().comparisons["tests/test_speed.py"]["message"]


def test_stubs_beside_a_compiled_module_do_not_hide_that_it_is_missing(tmp_path: Path) -> None:
    stubbed = {**COMPILED, "pkg/__init__.py": "from pkg._C import f\n", "pkg/_C/__init__.pyi": ""}
    stubbed["pyproject.toml"] = CONFIGURATION + '[build-system]\nrequires=[]\nbuild-backend = "maturin"\n'
    project = git_project(tmp_path, {name: text for name, text in stubbed.items() if name != "pkg/_C.c"})
    (project.root / "pkg/_C.abi3.so").touch()
    project.commit({"work.py": work(steady=11)})

    gated = project.gate()

    assert (4, {"tests/test_speed.py": "FAILED"}) == (gated.exit_code, gated.verdicts)
    message = gated.comparisons["tests/test_speed.py"]["message"]
    assert "set prepare" in message
    assert "pip install --no-deps" in message


ALONE = """
import socket, subprocess, sys
taken = socket.socket()
taken.bind(("127.0.0.1", {port}))
service = [sys.executable, "-c", "import signal; signal.pause()", "{port}"]
subprocess.Popen(service, start_new_session=True)
"""


def test_a_suite_that_refuses_a_second_process_is_reported(tmp_path: Path) -> None:
    port = free_port()
    before = set(psutil.pids())
    project = git_project(tmp_path, {**FILES, "tests/conftest.py": ALONE.format(port=port)})
    project.commit({"work.py": work(steady=11)})

    gated = project.gate()

    assert (4, "") == (gated.exit_code, gated.stdout)
    assert (
        "the suite runs in one process at a time only: OSError: [Errno 98] Address already in use;"
        in " ".join(gated.stderr.split())
    )
    services = [pid for pid in set(psutil.pids()) - before if _pauses(pid, port)]
    assert [] == services


def _pauses(pid: int, port: int) -> bool:
    try:
        return psutil.Process(pid).cmdline()[2:] == ["import signal; signal.pause()", str(port)]
    except psutil.Error:
        return False


def test_options_of_the_cache_are_known(tmp_path: Path) -> None:
    options = CONFIGURATION + '[tool.pytest.ini_options]\naddopts = ["--ff", "--nf"]\ncache_dir = ".own"\n'
    project = git_project(tmp_path, {**FILES, "pyproject.toml": options})
    project.commit({"work.py": work(steady=11)})

    gated = project.gate("--exact-only")
    backfill = ["backfill", "HEAD", "--launches=1", "--benchmarks=tests"]
    done = run_perfkit(*backfill, cwd=project.root, env=project.environment())

    assert 4 != gated.exit_code, gated.stderr
    assert 0 == done.returncode, done.stderr
    assert not (project.root / ".own").exists()


MANY = """
import pytest

@pytest.mark.parametrize("number", range(250))
def test_many(benchmark, number):
    benchmark.pedantic(sum, args=([1],), rounds=2, iterations=5)
"""


def test_very_many_benchmarks_are_reported_beside_a_file_too_deep_to_read(tmp_path: Path) -> None:
    deep = "DEEP = " + " + ".join(["1"] * 600) + "\n"
    project = git_project(tmp_path, {"work.py": work(steady=10) + deep, "tests/test_speed.py": MANY})
    (project.root / "loop").symlink_to("loop")
    project.commit({"work.py": work(steady=11) + deep})

    gated = project.gate(*ONE_LAUNCH)

    assert 250 == len(gated.report["comparisons"])
    assert {"NOT REACHED"} == set(gated.verdicts.values())
    assert "measuring 250 benchmarks: about " in gated.stderr
    assert "or --select to measure fewer)" in gated.stderr
    assert "250 of 250 benchmarks were not reached, since the budget of 10.0 ms was over" in gated.notes
    assert gated.report["left_s"] > gated.report["budget_s"]
    launched = {row.outcome.benchmark.name for row in Ledger(project.ledger).rows() if row.outcome.values}
    assert 10 == len(launched)


def test_an_option_that_pytest_does_not_know_is_reported(tmp_path: Path) -> None:
    project = git_project(tmp_path, FILES)
    project.commit({"work.py": work(steady=11)})

    gated = project.gate(extra={"PYTEST_ADDOPTS": "--no-such-option"})

    assert 4 == gated.exit_code
    assert "error: unrecognized arguments: --no-such-option;" in " ".join(gated.stderr.split())


# Each is left out of head's suite in its own way.
WAYS = ("skip", "skipif", "not_run", "importorskip", "fixture", "deselected")
BENCHMARKS = "import pytest\nimport work\n" + "".join(
    benchmark(name, "work.steady") for name in ("kept", *WAYS)
)
RENAMED = "import work\n" + benchmark("renamed", "work.steady")
MARKS = {
    "skip": "skip(reason='flaky')",
    "skipif": "skipif(True, reason='flaky')",
    "not_run": "xfail(run=False)",
}
SKIPPING_FIXTURE = """
import pytest

@pytest.fixture(autouse=True)
def fast_only(request):
    if request.node.name == "test_fixture":
        pytest.skip("slow")
"""


def _left_out() -> str:
    text = BENCHMARKS.replace(
        "importorskip(benchmark):", "importorskip(benchmark):\n    pytest.importorskip('absent')"
    )
    for name, mark in MARKS.items():
        text = text.replace(f"\ndef test_{name}(", f"\n@pytest.mark.{mark}\ndef test_{name}(")
    return text


def test_what_head_alone_leaves_out_is_missing(tmp_path: Path) -> None:
    files = {"tests/test_speed.py": BENCHMARKS, "tests/test_renamed.py": RENAMED, "work.py": work(steady=10)}
    project = git_project(tmp_path, files)
    (project.root / "tests/test_renamed.py").unlink()
    deselect = 'addopts = "--deselect tests/test_speed.py::test_deselected"'
    head = {
        "tests/test_speed.py": _left_out(),
        "tests/renamed_speed.py": RENAMED,
        "tests/conftest.py": SKIPPING_FIXTURE,
        "pyproject.toml": f"{CONFIGURATION}[tool.pytest.ini_options]\n{deselect}\n",
        "work.py": work(steady=30),
    }
    project.commit(head, "Leave most out")

    gated = project.gate("--budget", "0.01")

    missing = {f"test_{name}": "MISSING" for name in (*WAYS, "renamed")}
    assert {"test_kept": "NOT REACHED", **missing} == gated.verdicts, gated.stderr
    assert gated.exit_code == 4
    assert {"tests/conftest.py", "tests/test_speed.py", "tests/test_renamed.py", "pyproject.toml"} == {
        one["path"] for one in gated.report["measuring"] if one["kind"] != "work"
    }
