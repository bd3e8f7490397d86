"""`perfkit gate` names what could not be compared, and its exit code follows from that."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from gating import CONFIGURATION, Gated, GitProject, benchmark, git_project, work

from perfkit.ledger.store import Ledger
from perfkit.model.policies import judged_policy

# What a comparable benchmark is in a gate that has time for one launch only.
COMPARED = "NOT REACHED"
STEADY = benchmark("steady", "work.steady")
RULE = """
[[tool.perfkit.rules]]
match = "*::test_ruled"
limit = 1
"""
# What base has; on head the functions behind them raise, hang or kill.
OLD = "import pytest\nimport work\n" + "".join(
    [
        benchmark("raises", "work.raises"),
        benchmark("killed", "work.killed"),
        benchmark("ends", "work.ends"),
        benchmark("hangs", "work.hangs", "perfkit(limit=1)"),
        benchmark("ruled", "work.hangs"),
        benchmark("memory", "work.memory"),
        benchmark("skips", "work.skips"),
        STEADY,
    ]
)
MISBEHAVIOUR = """
import os, signal, threading
import pytest

def raises():
    raise ValueError("no such value")

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def ends():
    os._exit(7)

def hangs():
    threading.Event().wait()

def memory():
    raise MemoryError

def skips():
    pytest.skip("not today")
"""
NOWHERE = (
    "ModuleNotFoundError: No module named 'nowhere'; install what provides it here: `pip install nowhere`"
)
NAMES = ("raises", "killed", "ends", "hangs", "memory", "skips")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A project and its gate."""

    project: GitProject
    gated: Gated


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Gate a commit after which most benchmarks fail, each in a way of its own, and one does not."""
    project = git_project(
        tmp_path_factory.mktemp("broken"),
        {
            "pyproject.toml": CONFIGURATION + RULE,
            "work.py": work(steady=10, **dict.fromkeys(NAMES, 1)),
            "tests/test_speed.py": OLD,
            "tests/test_gone.py": "import work\n" + benchmark("gone", "work.steady"),
            "tests/test_lost.py": "import work\n" + benchmark("lost", "work.steady"),
            "tests/test_typo.py": "import work\n" + benchmark("typo", "work.steady"),
        },
    )
    (project.root / "tests/test_gone.py").unlink()
    project.commit(
        {
            "work.py": work(steady=10) + MISBEHAVIOUR,
            "tests/test_lost.py": "import nowhere\nimport work\n" + benchmark("lost", "work.steady"),
            "tests/test_typo.py": "import work\n\ndef test_typo(:\n    pass\n",
            "tests/test_new.py": "import nowhere_either\nimport work\n" + benchmark("new", "work.steady"),
        },
        "Break things",
    )
    return Scene(project=project, gated=project.gate("--budget", "90"))


@pytest.mark.alone
@pytest.mark.parametrize(
    ("name", "verdict", "message"),
    [
        ("test_raises", "FAILED", "on head: ValueError: no such value (work.py:15)"),
        ("test_killed", "FAILED", "on head: its process was killed by SIGKILL (out of memory?)"),
        ("test_ends", "FAILED", "on head: its process ended with exit status 7"),
        ("test_hangs", "TIMEOUT", "on head: gave no sign of life within its limit of 1 s"),
        ("test_ruled", "TIMEOUT", "on head: gave no sign of life within its limit of 1 s"),
        ("test_memory", "FAILED", "on head: MemoryError: (work.py:27)"),
        ("test_skips", "MISSING", "skipped on head: not today"),
        ("test_gone", "MISSING", "base has it, head does not"),
        ("test_lost", "FAILED", f"does not import on head: {NOWHERE}"),
        (
            "test_typo",
            "FAILED",
            "does not import on head: SyntaxError: invalid syntax (tests/test_typo.py:3)",
        ),
        (
            "tests/test_new.py",
            "FAILED",
            f"does not import on head: {NOWHERE.replace('nowhere', 'nowhere_either')}",
        ),
    ],
)
def test_what_fails_is_named_with_its_cause(broken: Scene, name: str, verdict: str, message: str) -> None:
    found = broken.gated.comparisons[name]

    assert (verdict, message) == (found["verdict"], found["message"])


@pytest.mark.alone
def test_a_failure_costs_only_itself(broken: Scene) -> None:
    assert "UNCHANGED" == broken.gated.verdicts["test_steady"]


@pytest.mark.alone
def test_what_could_not_be_measured_is_exit_code_4(broken: Scene) -> None:
    assert 4 == broken.gated.exit_code


@pytest.mark.alone
def test_a_failure_is_a_row_too(broken: Scene) -> None:
    rows = {row.outcome.benchmark.name: row for row in Ledger(broken.project.ledger).rows()}
    raised, hung = (rows[f"tests/test_speed.py::test_{name}"] for name in ("raises", "hangs"))

    assert ("error", "on head: ValueError: no such value (work.py:15)") == (
        raised.outcome.status,
        raised.outcome.message,
    )
    assert ("timeout", "TIMEOUT") == (hung.outcome.status, judged_policy(hung).verdict)


@pytest.fixture(scope="module")
def gone(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Gate a commit that takes a benchmark away, which its message accepts."""
    tests = "import work\n" + benchmark("gone", "work.steady")
    project = git_project(
        tmp_path_factory.mktemp("trailer"), {"work.py": work(steady=10), "tests/test_speed.py": tests}
    )
    (project.root / "tests/test_speed.py").unlink()
    project.commit({}, "Drop it\n\nPerf-Accept: test_speed.py::test_gone: Its feature went away")
    return Scene(project=project, gated=project.gate())


def test_a_trailer_lets_a_finding_pass_and_is_shown(gone: Scene) -> None:
    found = gone.gated.comparisons["test_gone"]

    assert (0, "MISSING") == (gone.gated.exit_code, found["verdict"])
    assert found["accepted"].startswith("Its feature went away (")
    assert "Its feature went away" in gone.gated.stderr


@pytest.fixture(scope="module")
def laid_over(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Gate a working tree whose benchmark files partly do not import on base."""
    same = "import work\n" + benchmark("same", "work.steady")
    project = git_project(
        tmp_path_factory.mktemp("overlay"),
        {
            "work.py": work(steady=10),
            "tests/test_same.py": same + benchmark("other", "work.steady"),
            "tests/test_fits.py": "import work\n" + benchmark("fits", "work.steady"),
            "tests/test_mended.py": "import nowhere\nimport work\n" + benchmark("mended", "work.steady"),
        },
    )
    needs_head = "from work import added\n" + same
    other = benchmark("other", "added").replace("rounds=5", "rounds=6")
    changes = {
        "work.py": work(steady=10, added=10),
        "tests/test_same.py": needs_head + other + benchmark("absent", "added"),
        "tests/test_fits.py": "import work\n" + benchmark("fits", "work.spin, args=(10,)"),
        "tests/test_mended.py": "import work\n" + benchmark("mended", "work.steady"),
        "tests/test_uncommitted.py": "import work\n" + benchmark("uncommitted", "work.steady"),
    }
    for name, text in changes.items():
        (project.root / name).write_text(text)
    # It does not hide benchmarks that lie elsewhere.
    (project.root / "benchmarks/ledger").mkdir(parents=True)
    return Scene(project=project, gated=project.gate("--budget", "0.01"))


@pytest.mark.parametrize(
    ("name", "verdict", "behaviour"),
    [
        ("same", COMPARED, "head's file does not import on base, base's own holds the same benchmark"),
        ("other", "CHANGED", "head's file does not import on base, base's own benchmark is another one"),
        ("absent", "NEW", "head's file does not import on base, which has no such benchmark"),
        ("fits", COMPARED, "head's file imports on base: both run head's benchmark"),
        ("mended", COMPARED, "base's file does not import, head's does on both sides"),
        ("uncommitted", COMPARED, "a file that is not committed yet is laid over base as well"),
    ],
)
def test_heads_benchmarks_are_laid_over_base(
    laid_over: Scene, name: str, verdict: str, behaviour: str
) -> None:
    assert verdict == laid_over.gated.verdicts[f"test_{name}"], behaviour


def test_a_new_benchmark_shows_why_base_cannot_run_it(laid_over: Scene) -> None:
    message = laid_over.gated.comparisons["test_absent"]["message"]

    assert "base has no such benchmark, and head's file does not import on base: ImportError" in message


def test_a_dirty_working_tree_is_head_and_recorded_as_dirty(laid_over: Scene) -> None:
    head = laid_over.gated.report["head"]
    rows = Ledger(laid_over.project.ledger).rows()

    assert (True, False) == (head["dirty"], laid_over.gated.report["base"]["dirty"])
    assert {("base", False), ("head", True)} == {(row.placement.side, row.commit.dirty) for row in rows}


def test_long_calls_do_not_outlast_the_budget(tmp_path_factory: pytest.TempPathFactory) -> None:
    tests = "import time\nimport work\n" + "".join(
        f"def test_{name}(benchmark): benchmark(time.sleep, work.LONG)\n" for name in "abcdef"
    )
    project = git_project(
        tmp_path_factory.mktemp("long"), {"work.py": "LONG = 0.6\n", "tests/test_speed.py": tests}
    )
    project.commit({"work.py": "LONG = 0.61\n"})

    gated = project.gate("--budget", "2")

    assert (3, {"NOT REACHED"}) == (gated.exit_code, set(gated.verdicts.values()))
    assert gated.report["wall_s"] < 30


def test_a_conftest_that_base_cannot_import_loses_no_benchmark(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    tests = "import work\n" + STEADY
    project = git_project(
        tmp_path_factory.mktemp("conftest"), {"work.py": work(steady=10), "tests/test_speed.py": tests}
    )
    project.commit(
        {
            "work.py": work(steady=10, added=1),
            "tests/conftest.py": "from work import added\n",
            "tests/test_speed.py": tests + benchmark("added", "work.added"),
        }
    )

    gated = project.gate("--budget", "0.01")

    assert {"test_steady": COMPARED, "test_added": "NEW"} == gated.verdicts


def test_a_package_that_is_missing_on_base_alone_or_in_a_call_is_installed_and_not_accepted(
    tmp_path: Path,
) -> None:
    files = {
        "work.py": "import nowhere\n",
        "lazy.py": "def raises():\n    import nowhere\n",
        "tests/test_speed.py": "import work\n" + STEADY,
        "tests/test_lazy.py": "import lazy\n" + benchmark("raises", "lazy.raises"),
    }
    project = git_project(tmp_path, files)
    project.commit({"work.py": work(steady=10)})

    gated = project.gate("--budget", "0.01")

    assert (4, {"test_steady": "FAILED", "test_raises": "FAILED"}) == (gated.exit_code, gated.verdicts)
    assert f"does not import on base: {NOWHERE}" == gated.comparisons["test_steady"]["message"]
    shown = gated.stderr.partition("\nnext: ")[2]
    assert "\n  pip install nowhere\n" in shown
    assert "accept" not in shown


def test_a_base_that_cannot_be_collected_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    tests = "import work\n" + STEADY
    project = git_project(
        tmp_path_factory.mktemp("base"),
        {"work.py": work(steady=10), "conftest.py": "import nowhere\n", "tests/test_speed.py": tests},
    )
    project.repository.git.index.remove(["conftest.py"], working_tree=True)
    project.commit({"work.py": work(steady=30)})

    gated = project.gate()

    assert (4, "") == (gated.exit_code, gated.stdout)
    assert "pytest could not collect the benchmarks of base: " in gated.stderr
    assert "No module named 'nowhere'" in gated.stderr
    assert "pip install nowhere" in gated.stderr
    assert "accept" not in gated.stderr
    assert "Traceback" not in gated.stderr


def test_other_code_than_the_sides_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("wrong")
    (place / "elsewhere").mkdir()
    (place / "elsewhere/work.py").write_text(work(steady=10))
    tests = f"import sys\nsys.path.insert(0, {str(place / 'elsewhere')!r})\nimport work\n" + STEADY
    project = git_project(place, {"work.py": work(steady=10), "tests/test_speed.py": tests})
    project.commit({"work.py": work(steady=30)})

    gated = project.gate()

    assert 4 == gated.exit_code
    assert f"wrong code imported on head: work came from {place / 'elsewhere/work.py'}" in gated.stderr
    assert [] == list(project.ledger.glob("*.parquet"))
