"""A session that does not use perfkit runs as if perfkit were not installed, with any other plugins."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest
from asv_project import asv_files
from forked_commands import run_pytest

# Like pytest-codspeed's: it passes for pytest-benchmark's fixture in isinstance, and has nothing of it.
LOOKALIKE = """
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

class Lookalike:
    @property
    def __class__(self):
        return BenchmarkFixture

    def __call__(self, function, *args, **kwargs):
        return function(*args, **kwargs)

@pytest.fixture
def benchmark():
    found = Lookalike()
    yield found
    # pytest-benchmark itself notes of each fixture whether its test was skipped.
    assert vars(found).keys() <= {'skipped'}
"""

# What a session has imported of perfkit, and of the libraries that perfkit uses.
IMPORTED = """
import sys

def pytest_unconfigure():
    tops = {"msgspec", "duckdb", "pyarrow", "numpy", "scipy", "git", "rich", "torch", "psutil"}
    found = sorted(name for name in sys.modules if name.split(".")[0] in tops | {"perfkit"})
    print("imported:", *found)
"""

# The hooks by which common plugins change a session, one plugin each.
PLUGINS = {
    "reruns": "def pytest_runtest_protocol(item, nextitem):\n    item.execution_count = 1",
    "randomly": "import random\ndef pytest_runtest_setup(item):\n    random.seed(0)",
    "order": "def pytest_collection_modifyitems(items):\n    items.sort(key=lambda item: item.name)",
    "timeout": "@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_call(item):\n    yield",
    "cov": "import sys\ndef pytest_sessionstart(session):\n    sys.setprofile(None)",
    "html": "@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
    "    report = (yield).get_result()\n    report.extra = []",
    "asyncio": "@pytest.hookimpl(wrapper=True)\ndef pytest_fixture_setup(fixturedef, request):\n"
    "    return (yield)",
    "anyio": "@pytest.hookimpl(tryfirst=True)\ndef pytest_pyfunc_call(pyfuncitem):\n    return None",
    "repeat": "def pytest_generate_tests(metafunc):\n    if 'again' in metafunc.fixturenames:\n"
    "        metafunc.parametrize('again', [1, 2])",
    "sugar": "def pytest_report_teststatus(report):\n    return None",
    "env": "import os\ndef pytest_load_initial_conftests():\n    os.environ['APP'] = 'test'",
    "mock": "@pytest.fixture\ndef mocker():\n    from unittest import mock\n    return mock",
    "freezer": "import time\n@pytest.fixture\ndef frozen(monkeypatch):\n"
    "    monkeypatch.setattr(time, 'time', lambda: 0.0)",
    "socket": "import socket\n@pytest.fixture(autouse=True)\ndef no_socket(monkeypatch):\n"
    "    monkeypatch.setattr(socket, 'create_connection', None)",
    "django": "@pytest.fixture(scope='session', autouse=True)\ndef database():\n    yield",
    "memray": "@pytest.hookimpl(wrapper=True)\ndef pytest_pyfunc_call(pyfuncitem):\n    return (yield)",
    "subtests": "@pytest.fixture\ndef subtests_like(request):\n    return request.node",
    "strict": "import warnings\ndef pytest_configure(config):\n"
    "    config.addinivalue_line('filterwarnings', 'error')",
    "instafail": "def pytest_runtest_logreport(report):\n    assert report.when",
    "picked": "def pytest_ignore_collect(collection_path, config):\n    return None",
    "lookalike": LOOKALIKE,
}
# Real ones take part where they are installed.
INSTALLED = ("pytest_asyncio.plugin", "pytest_mock", "pytest_randomly", "pytest_rerunfailures")

SUITE = """
import random, time
import pytest

def test_fixture(benchmark):
    assert 3 == benchmark(max, 1, 3)

@pytest.mark.parametrize("n", [1, 2])
def test_frozen(n, frozen):
    assert 0.0 == time.time()

def test_again(again, mocker):
    assert again

@pytest.mark.skip(reason="not here")
def test_skipped():
    pass

@pytest.mark.xfail
def test_fails():
    assert random.random() > 1
"""


@pytest.fixture
def folder(pytester: pytest.Pytester) -> Path:
    """Return the folder of a project with a suite of asv."""
    for name, text in asv_files().items():
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return pytester.path


@pytest.mark.parametrize("arguments", [(), ("test_own.py",)])
@pytest.mark.usefixtures("folder")
def test_nothing_is_imported_that_takes_time(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    pytester.makeconftest(IMPORTED)
    pytester.makepyfile(test_own="def test_own(benchmark):\n    benchmark(sum, [])\n")

    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)

    result.assert_outcomes(passed=1)
    found = next(line for line in result.outlines if line.startswith("imported:")).split()[1:]
    allowed = {"perfkit", "perfkit.agent", "perfkit.phases", "perfkit.plugin"}
    # Configuration has the place of the suite, for a session that is given a place that may lie in it.
    if "test_own.py" in arguments:
        assert not [
            name for name in found if name.startswith(("perfkit.agent.", "duckdb", "pyarrow", "numpy"))
        ]
    else:
        assert allowed == set(found)


def test_a_session_in_the_folder_of_a_suite_of_asv_collects_no_benchmark_of_it(folder: Path) -> None:
    (folder / "benchmarks/test_own.py").write_text("def test_own():\n    pass\n")
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = benchmarks\n")

    assert "1 passed" in run_pytest(cwd=folder).stdout.splitlines()[-1]


def test_a_session_with_common_plugins_runs_as_without_perfkit(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in PLUGINS.items():
        pytester.makepyfile(**{f"plugin_{name}": f"import pytest\n{text}\n"})
    pytester.makepyfile(test_suite=SUITE)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    installed = [name for name in INSTALLED if importlib.util.find_spec(name.partition(".")[0])]
    others = ["pytest_benchmark.plugin", *(f"plugin_{name}" for name in PLUGINS), *installed]
    draw = random.Random(0)  # noqa: S311 (orders that repeat)

    def outcomes(plugins: list[str]) -> list[str]:
        loaded = [word for name in plugins for word in ("-p", name)]
        output = run_pytest("-rA", "-p", "no:cacheprovider", *loaded, cwd=pytester.path).stdout
        kinds = ("PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL", "XPASS")
        return sorted(line for line in output.splitlines() if line.startswith(kinds))

    expected = outcomes(others)
    assert expected
    for place in (0, len(others) // 2, len(others)):
        order = draw.sample(others, len(others))
        assert expected == outcomes([*order[:place], "perfkit.plugin", *order[place:]])
