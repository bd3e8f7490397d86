"""`perfkit doctor` runs as a process on this very machine."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from forked_commands import run_perfkit


def _doctor(place: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    temporary = place / "tmp"
    temporary.mkdir()
    return run_perfkit(
        "doctor", *arguments, cwd=place, env={**os.environ, "TMPDIR": str(temporary), **variables}
    )


@pytest.mark.alone
def test_the_doctor_measures_and_judges(tmp_path: Path) -> None:
    done = _doctor(tmp_path, "--margin", "10000%", "--seconds", "1", "--json", "-")

    assert 0 == done.returncode, done.stderr
    report = json.loads(done.stdout)
    names = {one["benchmark"].rpartition("::")[2] for one in report["noises"]}
    assert {"test_python", "test_tensors"} == names
    assert all(0 < one["launch_sd"] < 1 for one in report["noises"])
    assert {"load", "steal", "governor", "threads", "other perfkits"} <= {
        one["name"] for one in report["conditions"]
    }
    assert "FIT for a margin of 10000 %" in done.stderr
    assert [] == list((tmp_path / "tmp").iterdir())


@pytest.mark.alone
def test_no_machine_is_fit_for_next_to_nothing(tmp_path: Path) -> None:
    done = _doctor(tmp_path, "--margin", "0.001%", "--seconds", "1", PYTEST_ADDOPTS="-k nothing_of_it")

    assert 3 == done.returncode, done.stderr
    assert "UNFIT for a margin of 0.001 %" in done.stdout
