"""``perfkit view`` opens a profile in the browser, or prints an address where there is none."""

from __future__ import annotations

import cProfile
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from forked_commands import run_perfkit

PERFKIT = Path(sys.executable).with_name("perfkit")
_LONG_S = 60


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Return the profile of next to nothing."""
    file = tmp_path / "some.stat"
    profiler = cProfile.Profile()
    profiler.runcall(sorted, [3, 1, 2])
    profiler.dump_stats(file)
    return file


def test_an_address_is_printed_and_served(profile: Path) -> None:
    command = [str(PERFKIT), "view", str(profile), "--server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            with urllib.request.urlopen(_address(process), timeout=_LONG_S) as answer:  # noqa: S310 (http)
                page = answer.read().decode()
        finally:
            os.killpg(process.pid, signal.SIGINT)
    assert "snakeviz" in page
    assert 0 == process.returncode


def _address(process: subprocess.Popen[str]) -> str:
    """Return the address that the command prints."""
    assert process.stdout is not None
    address = next((line.strip() for line in process.stdout if line.startswith("http://")), None)
    assert address is not None
    return address


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 2}]}',
            "is a torch trace",
        ),
        (b"nothing of the kind", "no profile that perfkit knows"),
    ],
)
def test_what_snakeviz_cannot_show_is_reported(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "other.json"
    file.write_bytes(content)

    done = run_perfkit("view", str(file))

    assert 2 == done.returncode
    assert message in done.stderr
    assert 1 == len(done.stderr.strip().splitlines())
