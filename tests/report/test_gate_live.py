"""A gate shows its progress while it measures, in a real terminal and in a pipe."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
# Reports on standard output how many threads ran beside the measuring.
GATE = """
import threading
from synthetic import build_comparison
from perfkit.report.gate.terminal import GateProgress

def states(verdict, high, launches):
    return (
        build_comparison("test_a[red]", verdict, 1.03, 1.025, high, launches=launches),
        build_comparison("test_b", "INCONCLUSIVE"),
    )

with GateProgress(enabled=ENABLED) as progress:
    progress.begin("gate: aaaaaaa, bbbbbbb")
    progress.info("measuring")
    progress.update(states("INCONCLUSIVE", 1.061, 8), 1.0, 59.0)
    progress.update(states("INCONCLUSIVE", 1.052, 12), 1.1, 58.9)
    progress.update(states("REGRESSED", 1.043, 18), 1.2, 58.8)
    progress.update(states("REGRESSED", 1.034, 18), 9.9, None)
    print(threading.active_count())
"""


def _script(*, enabled: bool = True) -> list[str]:
    return [sys.executable, "-c", GATE.replace("ENABLED", str(enabled))]


def _environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(TESTS), str(TESTS.parent))), **changes}


def _in_terminal(**changes: str) -> tuple[str, str]:
    terminal, side = pty.openpty()
    child = subprocess.Popen(
        _script(), stdout=subprocess.PIPE, stderr=side, env=_environment(COLUMNS="80", **changes), text=True
    )
    os.close(side)
    shown = _read_all(terminal)
    output, _ = child.communicate()
    assert 0 == child.returncode, shown
    return output, shown


def _read_all(terminal: int) -> str:
    parts = []
    with open(terminal, "rb", buffering=0) as stream:
        try:
            while part := stream.read(4096):
                parts.append(part)
        except OSError:
            pass
    return b"".join(parts).decode()


def test_the_table_is_redrawn_when_there_is_news_and_nothing_is_left_of_it() -> None:
    output, shown = _in_terminal(TERM="xterm")

    assert "1\n" == output, "another thread redraws"
    for drawn in ("+2.5 to +6.1 %", "+2.5 to +4.3 %", "1 s, about 59 s left", "test_a[red]", "measuring"):
        assert drawn in shown
    assert "+2.5 to +5.2 %" not in shown
    last = shown.rpartition("test_b")[2]
    assert re.search(r"(\x1b\[1A\x1b\[2K){5,}$", last)
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


def _in_pipe(*, enabled: bool = True) -> subprocess.CompletedProcess[str]:
    command, variables = _script(enabled=enabled), _environment(FORCE_COLOR="1")
    return subprocess.run(command, capture_output=True, text=True, env=variables, check=True)


def test_a_pipe_gets_a_line_for_each_piece_of_news() -> None:
    done = _in_pipe()

    assert [
        "gate: aaaaaaa, bbbbbbb",
        "measuring",
        "[1 s] test_a[red]: REGRESSED +3.0 % (+2.5 to +4.3 %) after 18 launches",
    ] == done.stderr.splitlines()
    assert "1\n" == done.stdout


def test_a_dumb_terminal_gets_lines() -> None:
    _, shown = _in_terminal(TERM="dumb")

    assert "\x1b" not in shown
    assert 3 == len(shown.splitlines())


def test_silence_is_silent() -> None:
    assert "" == _in_pipe(enabled=False).stderr
