"""A benchmark that misbehaves costs itself: those around it are measured, in a state that is clean."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from forked_commands import run
from gating import CONFIGURATION, PERFKIT, GitProject
from repositories import Repository, create_repository

from perfkit.ledger.store import Ledger

# Each changes something that all code of the process shares, or fails; the innocent one behind it looks.
WILD = {
    "folder": "os.chdir('/')",
    "removed_folder": "os.mkdir(tmp_path / 'x'); os.chdir(tmp_path / 'x'); os.rmdir(tmp_path / 'x')",
    "variables": "os.environ.update(OMP_NUM_THREADS='7', WILD='1'); os.environ.pop('HOME', None)",
    "clock": "time.perf_counter = time.time = lambda: 0.0",
    "modules": "sys.modules['json'] = sys.modules.pop('random')",
    "collector": "gc.disable(); gc.set_threshold(1, 1, 1)",
    "path": "sys.path.insert(0, '/wild')",
    "recursion": "sys.setrecursionlimit(150)",
    "signals": "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "seed": "random.seed(7)",
    "raises": "raise BaseException('wild')",
    "leaves": "sys.exit(3)",
    "prints": "print('x' * 30_000_000); sys.stderr.write('y' * 1_000_000)",
    "forks": "os.fork() or os._exit(0)",
    "daemon": "os.fork() or (os.setsid(), os.fork() or time.sleep(600), os._exit(0))",
    "thread": "threading.Thread(target=time.sleep, args=[600], daemon=True).start()",
}
FATAL = {
    "exits": "os._exit(0)",
    "crashes": "ctypes.string_at(0)",
    "hangs": "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
}
_FAILING = {"raises", "leaves"}
_HEAD = """
import ctypes, gc, json, os, random, signal, sys, threading, time
import pytest

HERE, MODULES, CLOCK = os.getcwd(), dict(sys.modules), time.perf_counter
FIRST = {}

def state():
    return [
        os.getcwd() == HERE, "WILD" in os.environ, time.perf_counter is CLOCK, gc.isenabled(),
        gc.get_threshold(),
        sys.modules.get("json") is json, sys.modules.get("random") is random, "/wild" in sys.path,
        sys.getrecursionlimit(), signal.getsignal(signal.SIGTERM), random.getstate(),
    ]

def test_first(benchmark):
    FIRST.setdefault("state", state())
    benchmark.pedantic(sum, [range(100)], rounds=3, iterations=5)
"""
_PAIR = """
def test_wild_{name}(benchmark, tmp_path):
    FIRST.setdefault("state", state())
    benchmark.pedantic(sum, [range(100)], rounds=3, iterations=5)
    {code}

def test_innocent_after_{name}(benchmark):
    assert FIRST.setdefault("state", state()) == state()
    benchmark.pedantic(sum, [range(100)], rounds=3, iterations=5)
"""
_FATAL = """
def test_fatal_{name}(benchmark):
    def work():
        {code}
    benchmark.pedantic(work, rounds=1, iterations=1)
"""
SUITE = (
    _HEAD
    + "".join(_PAIR.format(name=name, code=code) for name, code in WILD.items())
    + "".join(_FATAL.format(name=name, code=code) for name, code in FATAL.items())
    + _PAIR.format(name="nothing", code="pass")
)
INNOCENT = {
    "test_first",
    "test_wild_nothing",
    *(f"test_innocent_after_{name}" for name in (*WILD, "nothing")),
}
# They are measured although they leave something behind.
HARMLESS = {f"test_wild_{name}" for name in WILD if name not in _FAILING}


@pytest.fixture
def project(tmp_path: Path) -> GitProject:
    """Return a project with the suite, and a second commit that changes nothing."""
    root = tmp_path / "project"
    root.mkdir()
    project = GitProject(root=root, repository=Repository(root, create_repository(root)))
    limit = CONFIGURATION.replace("[tool.perfkit.gate]", "[tool.perfkit.gate]\nlimit = 3.0")
    limit += "\n[tool.perfkit.backfill]\nlimit = 60.0\n"
    ini = '[tool.pytest.ini_options]\npython_files = ["bench_*.py"]\n'
    project.commit({"pyproject.toml": limit + ini, "benchmarks/bench_wild.py": SUITE, "a.py": "A = 1\n"})
    project.commit({"a.py": "A = 2\n"})
    return project


def _names(ledger: Path, status: str) -> set[str]:
    return {
        row.outcome.benchmark.name.rpartition("::")[2]
        for row in Ledger(ledger).rows()
        if row.outcome.status == status and row.outcome.metric.name == "time"
    }


def _end_daemons(project: GitProject) -> None:
    """End what a session that nobody guards has left."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cwd").resolve().is_relative_to(project.root) and int(folder.name) != os.getpid():
                os.kill(int(folder.name), 9)
        except OSError:
            continue


def test_a_session_of_pytest(project: GitProject) -> None:
    done = run(
        [
            sys.executable,
            "-m",
            "pytest",
            "benchmarks",
            "--benchmark-autosave",
            "-k",
            "not fatal and not daemon",
        ],
        cwd=project.root,
        env={**project.environment(), "PYTEST_ADDOPTS": ""},
        timeout=120,
    )
    _end_daemons(project)

    ledger = project.root / "benchmarks" / "ledger"
    assert 1 == done.returncode, done.stdout[-3_000:]
    assert {f"test_wild_{name}" for name in _FAILING} == _names(ledger, "error")
    assert (INNOCENT | HARMLESS) - _names(ledger, "ok") <= {"test_wild_daemon", "test_innocent_after_daemon"}
    for name, what in (("folder", "working directory"), ("clock", "clock"), ("modules", "modules")):
        assert f"put back what benchmarks/bench_wild.py::test_wild_{name} changed: {what}" in done.stdout


@pytest.mark.slow
def test_a_gate(project: GitProject) -> None:
    done = project.gate("--budget", "90", "--seed", "1")

    shown = done.verdicts
    bad = {f"test_fatal_{name}" for name in FATAL} | {f"test_wild_{name}" for name in _FAILING}
    assert bad == {name for name, verdict in shown.items() if verdict in ("FAILED", "TIMEOUT")}
    assert INNOCENT | HARMLESS | bad == set(shown)
    assert 4 == done.exit_code
    assert [] == _left(project)


@pytest.mark.slow
def test_a_backfill(project: GitProject) -> None:
    sha = project.repository.git.head.commit.hexsha
    done = run(
        [
            str(PERFKIT),
            "backfill",
            sha,
            "--launches",
            "1",
            "--select",
            "not fatal",
            "--ledger",
            project.ledger,
        ],
        cwd=project.root,
        env=project.environment(),
        timeout=200,
    )

    assert done.returncode in (0, 4), done.stderr
    assert INNOCENT | HARMLESS <= _names(project.ledger, "ok")
    assert {f"test_wild_{name}" for name in _FAILING} == _names(project.ledger, "error")
    assert [] == _left(project)


def _left(project: GitProject) -> list[str]:
    """Return the command lines of processes that are still in a folder of the project's."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            place = (folder / "cwd").readlink()
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            # The tests' own library asks git through a process of its own.
            if place.is_relative_to(project.root.parent) and not command.startswith("git\0"):
                found.append(command)
        except OSError:
            continue
    return found
