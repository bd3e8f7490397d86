"""`perfkit gate` measures a suite of asv as it is, with a verdict for each benchmark."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from asv_project import WORK, asv_files
from forked_commands import run_perfkit
from gating import Gated, GitProject, git_project

from perfkit.config import load_project
from perfkit.errors import ConfigError
from perfkit.ledger.store import Ledger

WORSE = (
    WORK.replace("units * 200", "units * 1000")
    .replace("units << 20", "units << 21")
    .replace("SIZE = 10", "SIZE = 20")
)
FEW = "time_spin or time_cached or timeraw_spin or track_ or peakmem or mem_list or failures"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A project and its gate."""

    project: GitProject
    gated: Gated


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Gate a change that makes everything slower, larger and hungrier, and needs no file of perfkit."""
    project = git_project(
        tmp_path_factory.mktemp("asv"),
        {
            **asv_files(conf="asv_bench/asv.conf.json", suite="asv_bench/benchmarks"),
            # What tests need is none of a suite's business.
            "pytest.ini": "[pytest]\naddopts = --needs-a-plugin\nfilterwarnings = error\n",
            "conftest.py": "raise RuntimeError('tests only')\n",
        },
    )
    project.commit({"work.py": WORSE}, "Make it worse")
    return Scene(project=project, gated=project.gate("--select", FEW, "--budget", "90"))


def test_the_gate_fails(worse: Scene) -> None:
    assert 1 == worse.gated.exit_code, worse.gated.stderr


@pytest.mark.parametrize("name", ["time_spin", "time_cached", "timeraw_spin"])
def test_times_are_compared(worse: Scene, name: str) -> None:
    assert "REGRESSED" == worse.gated.verdicts[name]
    assert 2 < worse.gated.comparisons[name]["estimate"]["ratio"] < 8


def test_numbers_are_compared_as_what_they_are(worse: Scene) -> None:
    exact = {one["benchmark"]["name"].rpartition("::")[2]: one for one in worse.gated.report["exact"]}
    output = {
        name: (exact[name]["metric"]["name"], exact[name]["verdict"], exact[name]["gating"])
        for name in ("track_size", "track_zero", "track_wavering", "peakmem_fill[64]")
    }
    assert {
        "track_size": ("tracked value", "REGRESSED", True),
        "track_zero": ("tracked value", "UNCHANGED", True),
        "track_wavering": ("tracked value", "INCONCLUSIVE", True),
        "peakmem_fill[64]": ("peak memory", "REGRESSED", True),
    } == output
    assert (10.0, 20.0) == (exact["track_size"]["base"], exact["track_size"]["head"])


@pytest.mark.parametrize(
    ("name", "verdict", "message"),
    [
        ("time_skipped", "SKIPPED", "on both sides: its setup skips it: needs a network"),
        ("time_skips_late", "SKIPPED", "on both sides: it skips itself: only now"),
        ("mem_list", "SKIPPED", "on both sides: perfkit has no measure of the size of one object"),
        ("track_nan", "SKIPPED", "on both sides: track_nan returned nan"),
        ("time_never", "FAILED", "RuntimeError: its object cannot be made: ValueError: no data"),
        ("time_raises", "FAILED", "RuntimeError: no such luck"),
        ("track_text", "FAILED", "TypeError: track_text returned an object of type str"),
        ("asv_bench/benchmarks/lost.py", "SKIPPED", "No module named 'nowhere_at_all'"),
    ],
)
def test_what_is_not_measured_is_reported(worse: Scene, name: str, verdict: str, message: str) -> None:
    found = worse.gated.comparisons[name]
    assert verdict == found["verdict"]
    assert message in found["message"]


def test_the_suite_is_named(worse: Scene) -> None:
    assert "the asv suite asv_bench/benchmarks (asv_bench/asv.conf.json) has " in worse.gated.notes
    assert "leaves out 2 by its skip_benchmark and skip_params" in worse.gated.notes


def test_numbers_are_in_the_ledger(worse: Scene) -> None:
    rows = [
        row
        for row in Ledger(worse.project.ledger).rows()
        if row.outcome.benchmark.name.endswith("peakmem_fill[64]")
    ]
    assert {"base", "head"} == {row.placement.side for row in rows}
    assert all(len(row.outcome.values) > 3 and "B" == row.outcome.metric.unit for row in rows)
    again = worse.project.judge(worse.gated.run_id)
    assert 1 == again.exit_code


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"asv.conf.json": "{'benchmark_dir': 'x'}"}, "asv.conf.json cannot be read as JSON with comments"),
        (
            {"asv.conf.json": '{"benchmark_dir": "../elsewhere"}'},
            'asv.conf.json: benchmark_dir "../elsewhere" lies outside of the project',
        ),
        (
            {"a/asv.conf.json": "{}", "b/asv.conf.json": "{}"},
            "several suites of asv (a/asv.conf.json, b/asv.conf.json); set tool.perfkit.asv to one of these",
        ),
        (
            {"pyproject.toml": '[tool.perfkit]\nasv = "no.json"\n'},
            'tool.perfkit.asv: there is no file "no.json"; name an asv.conf.json',
        ),
    ],
)
def test_a_bad_configuration_is_one_line(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in {"pyproject.toml": "", **files}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    with pytest.raises(ConfigError) as caught:
        load_project(tmp_path).asv_suite()

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_benchmark_of_asv_is_bisected(tmp_path: Path) -> None:
    project = git_project(tmp_path, asv_files())
    good = project.commit({"NOTES": "one\n"}, "Note")
    called = WORK.replace("return total", "return (lambda: total)()", 1)
    worse = project.commit({"work.py": called}, "Make it worse")
    bad = project.commit({"NOTES": "two\n"}, "Note more")

    def bisect(benchmark: str) -> subprocess.CompletedProcess[str]:
        command = ["bisect", good, bad, "--benchmark", benchmark, "--metric", "python_calls"]
        return run_perfkit(*command, cwd=project.root)

    found, refused = bisect("time_spin"), bisect("track_size")

    assert 0 == found.returncode, found.stderr
    assert found.stdout.startswith(f"{worse[:10]} changed ")
    assert 2 == refused.returncode
    assert "only times and counts are bisected" in refused.stderr.splitlines()[-1]


NEWER = """
import work

class Added:
    def time_added(self):
        work.added()
    def peakmem_added(self):
        work.added()
    def track_added(self):
        return work.added()
"""


def test_benchmarks_of_a_new_function_are_new_and_a_changed_helper_is_laid_over_base(tmp_path: Path) -> None:
    old = "import work\ndef time_old():\n    work.spin(1)\ndef track_old():\n    return work.SIZE\n"
    files = {"benchmarks/__init__.py": "", "benchmarks/common.py": "", "benchmarks/bench.py": old}
    project = git_project(tmp_path, {**files, "asv.conf.json": "{}", "work.py": WORK})
    project.commit(
        {
            "work.py": f"{WORK}\ndef added():\n    return 1\n",
            "benchmarks/bench.py": old + NEWER,
            "benchmarks/common.py": "import work\n\ndef spin():\n    work.spin(5)\n",
            "benchmarks/times.py": "from .common import spin\n\ndef time_spin():\n    spin()\n",
        }
    )

    gated = project.gate("--budget", "0.01")

    added = {name: verdict for name, verdict in gated.verdicts.items() if name.endswith("_added")}
    assert {"time_added": "NEW", "peakmem_added": "NEW", "track_added": "NEW"} == added, gated.stderr
    assert gated.verdicts["time_spin"] not in {"NEW", "MISSING"}
    assert 4 != gated.exit_code
