"""A real Dask cluster on this machine for tests: processes that can be killed, and tasks that only wait."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil

from perfkit.commands.tasks import Code, MachineClass, Task, file_once, own_class, unpack
from perfkit.ledger.store import Ledger
from perfkit.profiling.passes.launch import free_port

ROOT = Path(__file__).parent.parent
# A kind of task that another distribution brings: it takes the time that it is given, and measures that.
KIND = """
import time
from perfkit.errors import NotMeasuredError
from perfkit.ledger.store import Ledger
from perfkit.runner.machine.facts import read_environment
from perfkit.runner.machine.facts import read_machine
from perfkit.identity import utc_now
from perfkit.model import Benchmark, Commit, Outcome, Row

def simulate(doing):
    seconds = float(doing.task.settings["seconds"])
    if doing.task.settings.get("fails"):
        raise NotMeasuredError("it was set to fail")
    time.sleep(seconds)
    rows = [
        Row(
            run_id="simulated", recorded_at=utc_now(), source="simulated",
            commit=Commit(sha=doing.task.commits[0]), machine=read_machine(), environment=read_environment(),
            outcome=Outcome(benchmark=Benchmark(name=f"simulated[{number}]", version="1"), values=(seconds,)),
        )
        for number in range(3)
    ]
    Ledger(doing.ledger).append(rows)
"""
ENTRY = "[perfkit.tasks]\nsimulated = simulated_task:simulate\n"
_LIMIT_S = 120.0
_POLL_S = 0.02


def simulated_tasks(count: int, *, seconds: float, fails: Sequence[int] = ()) -> list[Task]:
    """Return tasks of equal duration, of which some fail."""
    return [
        Task(
            kind="simulated",
            commits=(f"{number:040x}",),
            machine=own_class(),
            code=Code(head="0" * 40),
            stamp=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            settings={"seconds": str(seconds), **({"fails": "yes"} if number in fails else {})},
        )
        for number in range(count)
    ]


@dataclass(kw_only=True)
class Pile:
    """Tasks that wait, and the ledger in which those that are done are filed."""

    waiting: list[Task]
    ledger: Path
    filed: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    on_done: Callable[[int], None] = lambda _: None
    given: int = 0

    def next(self, machine: MachineClass) -> Task | None:
        """Return the first task of the class."""
        found = next((task for task in self.waiting if task.machine == machine), None)
        if found is not None:
            self.waiting.remove(found)
            self.given += 1
        return found

    def left(self) -> int:
        """Return how many wait."""
        return len(self.waiting)

    def done(self, task: Task, content: bytes, *, seconds: float) -> None:
        """File a task."""
        assert seconds >= 0
        unpack(task, content)
        if file_once(self.ledger, task, content):
            self.filed.append(task.commits[0])
        self.on_done(len(self.filed))

    def failed(self, task: Task, reason: str) -> None:
        """Keep why a task could not be done."""
        self.failures.append(f"{int(task.commits[0], 16)}: {reason}")

    def give_back(self, task: Task) -> None:
        """Take a task back."""
        self.waiting.insert(0, task)


def recorded(ledger: Path) -> list[tuple[str, str, str]]:
    """Return what identifies each row of a ledger, sorted: two of one row are there twice."""
    return sorted((row.run_id, row.commit.sha, row.outcome.benchmark.name) for row in Ledger(ledger).rows())


@dataclass(kw_only=True)
class Cluster:
    """A scheduler and workers as processes of their own, below a folder that takes all that they write."""

    folder: Path
    port: int = field(default_factory=free_port)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    scheduler: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What a command names it by."""
        return f"dask://127.0.0.1:{self.port}"

    def start_scheduler(self) -> None:
        """Start the scheduler, once more where it was killed, and wait until it listens."""
        self.scheduler = self._start(
            "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"
        )  # fmt: skip
        self.wait_for(self._listens)

    def start_worker(
        self,
        *,
        resources: str | None = "measure=1",
        program: str = "",
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a worker; ``program`` runs in it before all else."""
        output = [f"tcp://127.0.0.1:{self.port}", "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        output += ["--local-directory", str(self.folder / "dask"), "--death-timeout", "20"]
        output += ["--resources", resources] if resources else []
        main = f"{program}\nfrom distributed.cli.dask_worker import main\nmain({output!r})"
        self.workers.append(self._start("-c", main, variables=variables))
        return self.workers[-1]

    def wait_for_workers(self, count: int) -> None:
        """Wait until so many workers have come."""
        import distributed

        with distributed.Client(f"tcp://127.0.0.1:{self.port}", set_as_default=False) as client:
            client.wait_for_workers(count, timeout=_LIMIT_S)

    def kill_worker_at_work(self) -> None:
        """Wait for a worker that does a task just now, and end it as a power failure would."""
        found: list[subprocess.Popen[bytes]] = []

        def at_work() -> bool:
            found[:] = [worker for worker in self.workers if _has_task(worker)]
            return bool(found)

        self.wait_for(at_work)
        kill(found[0])
        self.workers.remove(found[0])

    def kill_scheduler(self) -> None:
        """End the scheduler as a power failure would; its workers, which it leaves behind, end as well."""
        assert self.scheduler is not None
        for process in (self.scheduler, *self.workers):
            kill(process)
        self.workers.clear()

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables of its processes, in which the simulated kind of task is installed."""
        installed = self.folder / "installed"
        if not installed.exists():
            (installed / "simulated_task-1.0.dist-info").mkdir(parents=True)
            (installed / "simulated_task.py").write_text(KIND)
            (installed / "simulated_task-1.0.dist-info/METADATA").write_text(
                "Metadata-Version: 2.1\nName: simulated_task\nVersion: 1.0\n"
            )
            (installed / "simulated_task-1.0.dist-info/entry_points.txt").write_text(ENTRY)
        path = [str(installed), str(ROOT), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "TMPDIR": str(self.temporary),
            **(extra or {}),
        }

    @property
    def temporary(self) -> Path:
        """Where its processes make temporary files."""
        place = self.folder / "tmp"
        place.mkdir(exist_ok=True)
        return place

    def end(self) -> None:
        """End all of its processes."""
        for process in self.processes:
            kill(process)

    def _start(self, *arguments: str, variables: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        with (self.folder / f"process-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                env=self.environment(variables),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def _listens(self) -> bool:
        assert self.scheduler is not None
        assert self.scheduler.poll() is None, "the scheduler has ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    @staticmethod
    def wait_for(done: Callable[[], bool]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + _LIMIT_S
        while not done():
            assert time.monotonic() < deadline
            time.sleep(_POLL_S)


@contextlib.contextmanager
def cluster(folder: Path, *, workers: int) -> Iterator[Cluster]:
    """Run a cluster until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Cluster(folder=folder)
    try:
        made.start_scheduler()
        for _ in range(workers):
            made.start_worker()
        yield made
    finally:
        made.end()


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started here, without a chance to tidy up."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGKILL)
    process.wait()


def _has_task(worker: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(worker.pid).children(recursive=True)
        return any("work" in process.cmdline() for process in below)
    return False
