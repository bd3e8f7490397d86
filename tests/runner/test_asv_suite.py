"""Benchmarks of an asv suite are found as asv finds them, and become items with stable names."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from asv_project import asv_files
from forked_commands import run_pytest
from repositories import Repository, create_repository

from perfkit.ledger.store import Ledger
from perfkit.model import Row

HAS_ASV = importlib.util.find_spec("asv_runner") is not None
DISCOVER = """
import json, math, sys
from asv_runner.discovery import disc_benchmarks
from asv_runner._aux import update_sys_path
update_sys_path(sys.argv[1])
found = disc_benchmarks(sys.argv[1], True)
print(json.dumps([[one.name, math.prod(map(len, one.params))] for one in found]))
"""
# skip_params leaves out so many of one benchmark.
LEFT_OUT = 1


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("asv") / "project"
    root.mkdir()
    Repository(root, create_repository(root)).commit(dict(asv_files()))
    return root


def _pytest(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_pytest("-p", "no:cacheprovider", "-q", *arguments, cwd=project)


def _listed(project: Path, *arguments: str) -> list[str]:
    output = _pytest(project, "--collect-only", *arguments).stdout
    return [line for line in output.splitlines() if "::" in line and not line.startswith("ERROR")]


def test_benchmarks_are_listed_by_file_class_and_parameters(project: Path) -> None:
    listed = _listed(project, "benchmarks")
    assert {
        "benchmarks/common.py::Base::time_inherited[1-a]",
        "benchmarks/common.py::Base::time_inherited[1-'b c']",
        "benchmarks/common.py::Base::time_inherited[2-a]",
        "benchmarks/common.py::Base::time_inherited[2-'b c']",
        "benchmarks/inner/deep.py::Deep::time_inherited",
        "benchmarks/times.py::Suite::time_own[1-a]",
        "benchmarks/times.py::Suite::time_own[2-a]",
        "benchmarks/times.py::Suite::time_own[2-'b c']",
        "benchmarks/times.py::TimeSuite::TimeCapital",
        "benchmarks/times.py::named",
        "benchmarks/times.py::timeraw_spin",
    } <= set(listed)
    assert not [
        name
        for name in listed
        if any(part in name for part in ("hidden", "marked", "timeless", "loose", "Abstract", "time_lost"))
    ]


def test_one_benchmark_can_be_named(project: Path) -> None:
    name = "benchmarks/times.py::Suite::time_own[2-a]"
    assert [name] == _listed(project, name)


def test_a_session_of_tests_does_not_collect_benchmarks(project: Path) -> None:
    assert [] == _listed(project)


@pytest.mark.skipif(not HAS_ASV, reason="asv is not installed")
def test_discovery_is_that_of_asv(project: Path) -> None:
    # It ends where an object cannot be made, and knows mem_ benchmarks only where pympler is installed.
    text = (project / "benchmarks/failures.py").read_text()
    (project / "benchmarks/failures.py").write_text(text.replace('raise ValueError("no data")', "pass"))
    try:
        done = subprocess.run(
            [sys.executable, "-c", DISCOVER, str(project / "benchmarks")],
            cwd=project,
            capture_output=True,
            text=True,
            check=True,
        )
        ours = Counter(_as_asv(name) for name in _listed(project, "benchmarks"))
    finally:
        (project / "benchmarks/failures.py").write_text(text)
    known = Counter(dict(json.loads(done.stdout.splitlines()[-1])))
    known["times.named"] = known.pop("elsewhere.time_named")
    known["times.Suite.time_own"] -= LEFT_OUT
    for found in (known, ours):
        found.pop("numbers_.mem_list", None)
    assert known == ours


def _as_asv(name: str) -> str:
    file, *parts = name.partition("[")[0].split("::")
    module = file.removeprefix("benchmarks/").removesuffix(".py").replace("/", ".")
    return ".".join([module, *parts])


@pytest.fixture(scope="module")
def rows(project: Path) -> dict[str, Row]:
    """Return the rows of one recording of the whole suite, by benchmark."""
    ledger = project.with_name("ledger")
    done = _pytest(project, "benchmarks", "--benchmark-max-time=0.01", f"--perfkit-ledger={ledger}")
    assert 1 == done.returncode, done.stdout + done.stderr
    return {row.outcome.benchmark.name.removeprefix("benchmarks/"): row for row in Ledger(ledger).rows()}


def test_times_are_recorded(rows: dict[str, Row]) -> None:
    for name in ("times.py::time_spin", "times.py::Cached::time_cached", "times.py::timeraw_spin"):
        outcome = rows[name].outcome
        assert ("ok", "time", "s") == (outcome.status, outcome.metric.name, outcome.metric.unit)
        assert 1e-7 < min(outcome.values) < 1


def test_number_and_repeat_make_the_rounds(rows: dict[str, Row]) -> None:
    outcome = rows["times.py::Fresh::time_used_up"].outcome
    assert ("ok", 2, 4) == (outcome.status, outcome.loops, len(outcome.values))


def test_parameters_have_their_names(rows: dict[str, Row]) -> None:
    assert {"n": "2", "letter": "'b c'"} == rows[
        "times.py::Suite::time_own[2-'b c']"
    ].outcome.benchmark.params


def test_numbers_are_recorded_as_what_they_are(rows: dict[str, Row]) -> None:
    tracked = rows["numbers_.py::track_size"].outcome
    assert ("tracked value", "things", (10.0,)) == (tracked.metric.name, tracked.metric.unit, tracked.values)
    small, large = (rows[f"numbers_.py::PeakMemory::peakmem_fill[{n}]"].outcome for n in (2, 64))
    assert "peak memory" == small.metric.name
    assert 40 << 20 < large.values[0] - small.values[0] < 70 << 20


def test_a_cache_is_a_copy(rows: dict[str, Row]) -> None:
    assert (4.0,) == rows["times.py::Cached::track_changed"].outcome.values


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("failures.py::NotHere::time_skipped", "skipped", "its setup skips it: needs a network"),
        ("failures.py::time_skips_late", "skipped", "it skips itself: only now"),
        ("failures.py::time_not_implemented", "error", "NotImplementedError: a failure"),
        (
            "failures.py::Broken::time_never",
            "error",
            "RuntimeError: its object cannot be made: ValueError: no data",
        ),
        ("failures.py::time_raises", "error", "RuntimeError: no such luck"),
        ("lost.py", "error", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        (
            "numbers_.py::track_text",
            "error",
            "TypeError: track_text returned an object of type str, and only single numbers are compared",
        ),
        ("numbers_.py::track_nan", "skipped", "track_nan returned nan"),
        (
            "numbers_.py::mem_list",
            "skipped",
            "perfkit has no measure of the size of one object; peakmem_ benchmarks are measured",
        ),
    ],
)
def test_what_cannot_be_measured_gives_the_reason(
    rows: dict[str, Row], name: str, status: str, message: str
) -> None:
    assert (status, message) == (rows[name].outcome.status, rows[name].outcome.message)


def test_a_version_can_be_given(project: Path, rows: dict[str, Row]) -> None:
    ledger = project.with_name("changed")
    times = project / "benchmarks/times.py"
    before = times.read_text()
    times.write_text(
        before.replace("self.left.pop()", "self.left.pop(0)").replace("self.n = cache", "self.n = 0 + cache")
    )
    try:
        _pytest(project, "benchmarks/times.py", "-k", "used_up or time_cached", f"--perfkit-ledger={ledger}")
    finally:
        times.write_text(before)
    found = {row.outcome.benchmark.name: row.outcome.benchmark.version for row in Ledger(ledger).rows()}
    kept = {name: row.outcome.benchmark.version for name, row in rows.items()}
    same = {
        name.removeprefix("benchmarks/"): text == kept[name.removeprefix("benchmarks/")]
        for name, text in found.items()
    }
    assert {"times.py::Fresh::time_used_up": True, "times.py::Cached::time_cached": False} == same


def test_a_coroutine_that_nobody_runs_is_not_measured(tmp_path: Path) -> None:
    project, ledger = tmp_path / "project", tmp_path / "rows"
    project.mkdir()
    text = (
        "async def time_fetch():\n    pass\n\n\nasync def time_once():\n    pass\n\n\ntime_once.number = 1\n"
    )
    settings = json.dumps({"version": 1, "project": "demo", "repo": ".", "benchmark_dir": "benchmarks"})
    Repository(project, create_repository(project)).commit(
        {"asv.conf.json": settings, "benchmarks/__init__.py": "", "benchmarks/lazy.py": text}
    )

    _pytest(project, "benchmarks", "--benchmark-max-time=0.01", f"--perfkit-ledger={ledger}")

    rows = list(Ledger(ledger).rows())
    assert {"benchmarks/lazy.py::time_fetch", "benchmarks/lazy.py::time_once"} == {
        row.outcome.benchmark.name for row in rows
    }
    assert {"error"} == {row.outcome.status for row in rows}
    assert all("never run" in str(row.outcome.message) for row in rows)
