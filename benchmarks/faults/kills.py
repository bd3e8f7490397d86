"""Kill a command, run the next one, and look from outside at what is lost or left behind.

What was complete is judged by the staged file at the kill, and not by the output of perfkit. ``make faults``
kills at random moments.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pyarrow.parquet as pq
from gating import CONFIGURATION, PERFKIT, benchmark, work
from ledger_files import add_run
from repositories import Repository, create_repository

# Processes that a benchmark starts and leaves: one in its group, and one that has left group and session.
STRAYS = """
import subprocess, sys
import pytest

@pytest.fixture(scope="session", autouse=True)
def strays():
    waits = [sys.executable, "-c", "import signal; signal.pause()"]
    mute = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    subprocess.Popen(waits, **mute)
    subprocess.Popen(waits, **mute, start_new_session=True)
"""
# A session that takes a few seconds, since it measures most of the time.
MANY = """
import pytest
import work

@pytest.mark.parametrize("number", range(24))
def test_many(benchmark, number):
    benchmark(work.steady)
"""
BENCHMARKS = "import work\n" + "".join(benchmark(name, "work.steady") for name in ("a", "b", "c", "d"))
EXPERIMENT = """
name = "killed"
target = "training:main"
seed_argument = "seed"
blocks = 2
warmup_steps = 0
warmup = "0.01s"
[factors]
size = [1, 2]
"""
TRAINING = """
def main(size=1, seed=0):
    total = 0
    for number in range(size * 1000):
        total += number
"""
FILES = {
    "pyproject.toml": CONFIGURATION,
    "work.py": work(steady=20),
    "training.py": TRAINING,
    "experiment.toml": EXPERIMENT,
    "tests/test_speed.py": BENCHMARKS,
    "many/test_many.py": MANY,
}
# What distinguishes rows; a recovered one is marked partial, and its policy may hold more.
_KEY = (
    "run_id",
    "commit",
    "benchmark",
    "params",
    "metric",
    "side",
    "launch",
    "block",
    "order",
    "seed",
    "status",
)
_KNOWN_BY = (("cmdline", "environ"), ("cwd", "fd/1", "fd/2"))
_PATIENCE_S = 20.0
_POLL_S = 0.005
LIMIT_S = 300.0
_ANYWHERE = 0.5
_AGAIN = 0.25
_STOPPED_FIRST = 0.33

Done = TypeVar("Done")
Moment = Callable[["Scene", "subprocess.Popen[bytes]"], None]

# A command that measures, as short as can be.
_SHORT = ("backfill", "HEAD", "--launches", "1", "--benchmarks", "tests", "--select", "test_a")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A command that is killed, and the one that comes after it.

    ``strays`` are left by its benchmarks; ``runs`` are in the ledger before it, a file each.
    """

    name: str
    killed: tuple[str, ...]
    after: tuple[str, ...] = _SHORT
    strays: bool = False
    runs: int = 0


_PLUGIN = (
    "-m",
    "pytest",
    "many",
    "--benchmark-autosave",
    "--benchmark-max-time=0.1",
    "-p",
    "no:cacheprovider",
)
_EXPERIMENT = ("experiment", "run", "experiment.toml")
_COMPACT = ("ledger", "compact", "--all")
KINDS = (
    Kind(
        name="gate",
        killed=("gate", "--base", "HEAD~1", "--head", "HEAD", "--benchmarks", "tests", "--budget", "15"),
        strays=True,
    ),
    Kind(
        name="backfill",
        killed=("backfill", "HEAD~1", "HEAD", "--launches", "2", "--benchmarks", "tests"),
        strays=True,
    ),
    Kind(name="experiment", killed=_EXPERIMENT, after=_EXPERIMENT),
    Kind(name="pytest", killed=_PLUGIN),
    Kind(name="compact", killed=_COMPACT, after=_COMPACT, runs=150),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one kill: ``staged`` rows were complete, and all is well without ``problems``."""

    kind: str
    number: int
    seed: int
    after_s: float
    staged: int
    published: int
    again: bool = False
    shown: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scene:
    """A fresh repository with two commits and a ledger, and all that perfkit could leave, in one folder."""

    folder: Path
    repository: Repository = field(init=False)

    def __post_init__(self) -> None:
        root = self.folder / "project"
        for place in (root, self.temporary, self.machine):
            place.mkdir()
        object.__setattr__(self, "repository", Repository(root, create_repository(root)))

    @property
    def root(self) -> Path:
        """The project."""
        return self.repository.root

    @property
    def temporary(self) -> Path:
        """Where its commands make temporary files."""
        return self.folder / "tmp"

    @property
    def machine(self) -> Path:
        """Where the lock of its machine is."""
        return self.folder / "machine"

    @property
    def ledger(self) -> Path:
        """Its ledger, where the plugin looks for it by default."""
        return self.root / "benchmarks/ledger"

    def commit(self, kind: Kind) -> None:
        """Make the two commits."""
        strays = {"tests/conftest.py": STRAYS} if kind.strays else {}
        self.repository.commit({**FILES, **strays, ".gitignore": "benchmarks/\n"}, "Begin")
        self.repository.commit({"work.py": work(steady=21)}, "Change")
        for number in range(kind.runs):
            add_run(self.ledger, number, month=number * 3 // kind.runs)

    def start(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a command; its output goes to a file."""
        program = sys.executable if arguments[0].startswith("-") else str(PERFKIT)
        variables = {
            "TMPDIR": str(self.temporary),
            "PERFKIT_LOCK_FOLDER": str(self.machine),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "OMP_NUM_THREADS": "1",
        }
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
        with (self.folder / "output").open("wb") as output:
            return subprocess.Popen(
                [program, *arguments],
                cwd=self.root,
                env={**inherited, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def printed(self) -> list[str]:
        """Return the lines that the last command printed."""
        return (self.folder / "output").read_text(errors="replace").splitlines()

    def staged(self) -> Iterator[Mapping[str, Any]]:
        """Yield the rows that stand complete in staged files, read without perfkit's own reader."""
        unfinished = self.ledger.with_name(f"{self.ledger.name}-unfinished")
        for file in (*self.ledger.glob(".staged/*.jsonl"), *unfinished.glob("*/*.jsonl")):
            _, *lines = file.read_bytes().split(b"\n")
            for line in lines[:-1]:
                yield from json.loads(line.partition(b" ")[2])

    def recorded(self) -> list[Mapping[str, Any]]:
        """Return the rows of the ledger's files, read without perfkit's own reader."""
        files = sorted(self.ledger.glob("*.parquet"))
        return [row for file in files for row in pq.read_table(file).to_pylist()]

    def left_behind(self) -> Iterator[str]:
        """Yield what is still there that should not be."""
        # Torch makes a folder for its own cache when it is imported, and keeps it for the next process.
        left = (path for path in self.temporary.iterdir() if not path.name.startswith("torchinductor_"))
        yield from (f"left: {path}" for path in left)
        yield from (f"staged: {path}" for path in self.ledger.glob(".staged/*.jsonl"))
        yield from (f"half written: {path}" for path in self.ledger.glob(".*.tmp"))
        worktrees = self.repository.git.git.worktree("list").splitlines()
        yield from (f"worktree: {line}" for line in worktrees[1:])
        administered = self.root / ".git/worktrees"
        if administered.is_dir():
            yield from (f"worktree in git's books: {path.name}" for path in administered.iterdir())
        for process in processes_of(self.folder):
            with contextlib.suppress(psutil.NoSuchProcess):
                yield f"process {process.pid} ({process.status()}): {process.cmdline()}"


def processes_of(folder: Path) -> list[psutil.Process]:
    """Return the living processes that know a folder, by command line, environment, place or output.

    Those that this process started itself, such as git's, do not count.
    """
    own = {os.getpid(), *(one.pid for one in psutil.Process().children(recursive=True))}
    return [one for one in psutil.process_iter() if one.pid not in own and _knows(one, str(folder))]


def _knows(process: psutil.Process, folder: str) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        if process.status() != psutil.STATUS_ZOMBIE:
            return any(folder in text for text in _texts(Path("/proc", str(process.pid))))
    return False


def _texts(place: Path) -> Iterator[str]:
    texts, links = _KNOWN_BY
    for name in texts:
        with contextlib.suppress(OSError):
            yield (place / name).read_bytes().decode(errors="replace")
    for name in links:
        with contextlib.suppress(OSError):
            yield str((place / name).readlink())


def after(seconds: float) -> Moment:
    """Return the moment so many seconds after the start, or the end of the command where that is sooner."""

    def wait(_: Scene, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)

    return wait


def once_staged(scene: Scene, process: subprocess.Popen[bytes]) -> None:
    """Wait for the moment at which the first rows are staged."""
    deadline = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < deadline and not any(scene.staged()):
        time.sleep(_POLL_S)


def once_compacting(scene: Scene, process: subprocess.Popen[bytes]) -> None:
    """Wait for the moment at which the first file is written that takes the place of others."""
    deadline = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < deadline and not any(scene.ledger.glob("*-and-*")):
        time.sleep(_POLL_S)


def first_moment(kind: Kind) -> Moment:
    """Return the moment from which on there is something to lose."""
    return once_compacting if kind.runs else once_staged


def kill_once(
    kind: Kind,
    folder: Path,
    moment: Moment,
    *,
    number: int = 0,
    seed: int = 0,
    stop: bool = False,
    again: float | None = None,
) -> Outcome:
    """Kill a command at a moment, run the next one, and return what that left to be desired.

    With ``stop`` it is stopped before it is killed, as by Ctrl-Z; with ``again`` the command that comes after
    it is killed too, after so many seconds, and another one follows.
    """
    scene = Scene(folder)
    scene.commit(kind)
    begun = time.monotonic()
    process = scene.start(kind.killed)
    moment(scene, process)
    after_s = time.monotonic() - begun
    _kill(process, stop=stop)
    staged, published = list(scene.staged()), scene.recorded()
    if again is not None:
        second = scene.start(kind.after)
        after(again)(scene, second)
        _kill(second, stop=False)
    last = scene.start(kind.after)
    last.wait(LIMIT_S)
    shown = tuple(line for line in scene.printed() if "cut off" in line or "swept" in line or "kept" in line)
    problems = (
        *_of_rows(staged, published, scene.recorded()),
        *_of_the_command(last, scene),
        *_of_leftovers(scene),
    )
    return Outcome(
        kind=kind.name,
        number=number,
        seed=seed,
        after_s=round(after_s, 3),
        staged=len(staged),
        published=len(published),
        again=again is not None,
        shown=shown,
        problems=problems,
    )


def _kill(process: subprocess.Popen[bytes], *, stop: bool) -> None:
    if stop and process.poll() is None:
        process.send_signal(signal.SIGSTOP)
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.wait()


def _of_rows(
    staged: Sequence[Mapping[str, Any]],
    published: Sequence[Mapping[str, Any]],
    recorded: Sequence[Mapping[str, Any]],
) -> Iterator[str]:
    """Yield each row that was complete at the kill and is not in the ledger, or is there twice."""
    found = Counter(map(row_key, recorded))
    for row in (*staged, *published):
        if found[row_key(row)] == 0:
            yield f"lost: {row_key(row)}"
    yield from (f"recorded {times} times: {key}" for key, times in found.items() if times > 1)


def row_key(row: Mapping[str, Any]) -> str:
    """Return what distinguishes a row from all others, its values included."""
    known = {name: row[name] for name in _KEY} | {
        "params": dict(row["params"]),
        "values": list(row["values"]),
    }
    return json.dumps(known, sort_keys=True)


def _of_the_command(process: subprocess.Popen[bytes], scene: Scene) -> Iterator[str]:
    """Yield what is wrong with the command that came after."""
    lines = scene.printed()
    if process.returncode not in (0, 3) or any("Traceback" in line for line in lines):
        yield f"the next command ended with {process.returncode}: {lines[-6:]}"


def _of_leftovers(scene: Scene) -> list[str]:
    """Return what stays behind although a patient person waited for it to go."""
    deadline = time.monotonic() + _PATIENCE_S
    while (left := list(scene.left_behind())) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return left
