"""A slower import and a larger peak of memory fail a gate, though calls take as long as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from gating import CONFIGURATION, git_project

MODULE = """
held = b"1" * (1 << 20)
def work(number):
    return sum(range(number))
"""
SUITE = """
from demo import work
def test_work(benchmark):
    benchmark(work, 20_000)
"""


@pytest.mark.slow
def test_a_slower_import_and_a_larger_peak_end_a_gate(tmp_path: Path) -> None:
    settings = CONFIGURATION.replace("count = false", "count = true")
    project = git_project(
        tmp_path, {"pyproject.toml": settings, "benchmarks/test_it.py": SUITE, "demo.py": MODULE}
    )
    slower = f"import time\ntime.sleep(0.15)\n{MODULE.replace('1 << 20', '64 << 20')}"
    project.commit({"demo.py": slower}, "Hold more, begin later")

    done = project.gate("--base", "HEAD~1")

    assert 1 == done.exit_code, done.stderr
    found = {one["metric"]["name"]: one for one in done.report["exact"]}
    for metric, least in (("import_time", 0.1), ("peak_resident", 48 << 20)):
        one = found[metric]
        assert ("REGRESSED", True) == (one["verdict"], one["gating"])
        assert one["head"] - one["base"] > least
    again = project.judge(done.run_id)
    kept = {one["metric"]["name"]: one["verdict"] for one in again.report["exact"]}
    assert "REGRESSED" == kept["import_time"] == kept["peak_resident"]
