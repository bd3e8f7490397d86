"""Identical code is not accused or praised because something disturbed it, and the report names it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from gating import GitProject, benchmark, git_project
from processes_seen import wait_until

from perfkit.ledger.store import Ledger
from perfkit.model.counters import is_count
from perfkit.model.policies import What, judged_policy

# Once in a gate, in the midst of a round, the process that is measured or perfkit is stopped for a second.
WORK = """
import os, signal, subprocess

FLAG, WHOM = {flag!r}, {whom!r}

calls = 0

def steady():
    global calls
    calls += 1
    total = 0
    for number in range(4000):
        total += number
    if WHOM and calls == 60 and not os.path.exists(FLAG):
        open(FLAG, "w").close()
        pid = os.getpid()
        while WHOM == "perfkit" and "gate" not in open(f"/proc/{{pid}}/cmdline").read().split("\\0"):
            pid = int(open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[1])
        subprocess.Popen(["sh", "-c", f"sleep 1; kill -CONT {{pid}}"])
        os.kill(pid, signal.SIGSTOP)
    return total
"""
SPIN = "while True: pass"


def _project(place: Path, whom: str) -> GitProject:
    """Return a repository whose second commit changes nothing that is measured."""
    files = {
        "work.py": WORK.format(flag=str(place / "flag"), whom=whom),
        "tests/test_speed.py": "import work\n" + benchmark("a", "work.steady"),
    }
    project = git_project(place, files)
    project.commit({"README": "nothing"})
    return project


@contextlib.contextmanager
def _neighbours() -> Iterator[None]:
    """Keep all cores busy with processes that do not descend from perfkit."""
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(psutil.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def _gate(project: GitProject, *, neighbours: bool = False) -> tuple[set[str], set[What], str]:
    """Gate identical code and return verdicts, marks and notes; neighbours come with the first rows."""
    command = project.command("--budget", "20", "--benchmarks", "tests", "--base", "HEAD~1", "--json", "-")
    environment = project.environment()
    with contextlib.ExitStack() as busy:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, cwd=project.root, env=environment, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )
        if neighbours:
            staged = project.ledger.glob
            assert wait_until(lambda: process.poll() is not None or any(staged(".staged/*.jsonl")))
            busy.enter_context(_neighbours())
        report = json.loads(process.communicate()[0])
    rows = [row for row in Ledger(project.ledger).rows() if not is_count(row)]
    marks = {one.what for row in rows for one in judged_policy(row).disturbed}
    return {one["verdict"] for one in report["comparisons"]}, marks, "\n".join(report["notes"])


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["measured", "perfkit"])
def test_a_process_that_is_stopped_for_a_while_decides_nothing(tmp_path: Path, whom: str) -> None:
    verdicts, marks, notes = _gate(_project(tmp_path, whom))

    assert (tmp_path / "flag").exists()
    assert verdicts <= {"UNCHANGED", "INCONCLUSIVE"}
    assert (whom == "measured") == ("stood still" in marks)
    assert (whom == "measured") == ("a side stood still for " in notes)


@pytest.mark.slow
def test_neighbours_in_the_middle_of_a_gate_decide_nothing(tmp_path: Path) -> None:
    verdicts, marks, notes = _gate(_project(tmp_path, ""), neighbours=True)

    assert verdicts <= {"UNCHANGED", "INCONCLUSIVE"}
    assert "other work" in marks
    assert "other work took up to " in notes
