"""What every command takes to start: ``perfkit --version``, as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

ROOT = Path(__file__).parents[1]


@pytest.mark.benchmark(group="perfkit")
def test_version(benchmark: BenchmarkFixture) -> None:
    """The commands are registered, and the version is printed; it is this tree's own perfkit that starts."""
    # Compiled files are kept, as they are where perfkit is installed.
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(ROOT)

    def start() -> str:
        command = [sys.executable, "-m", "perfkit", "--version"]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
        return done.stdout

    assert benchmark(start).startswith("perfkit ")
