"""Disturbs short trainings at drawn moments, and checks that they end as they do without perfkit.

``make faults`` runs it, and it continues where it stopped. ``--report`` writes the sums into a file and a
table of the document.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import random
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
from forked_commands import run_perfkit
from journal import Journal, replace_table
from object_server import BUCKET, ObjectServer, object_server
from repositories import Repository, create_repository
from steps import leftovers

from perfkit.ledger.soundness import verify
from perfkit.profiling.passes.launch import free_port

RESULTS = Path(__file__).with_name("results.json")
DOCUMENT = Path(__file__).parents[2] / "docs/measured/reliability.md"
# Of each kind so many cases.
KINDS = {
    "disk full": 35,
    "dead store": 35,
    "killed": 30,
    "worker killed": 20,
    "rank killed": 15,
    "stopped": 30,
    "exception": 35,
}
SHAPES = ("alone", "workers", "ranks")
_TURNS = ("alone", "workers", "alone", "ranks")
_SHAPE_OF = {"worker killed": "workers", "rank killed": "ranks"}
_DIES = {"killed": -signal.SIGKILL, "worker killed": 1, "rank killed": 1}
_ALLOWED_S, _LIMIT_S, _GROUP_ENDS_S = 1.0, 60.0, 15.0
_POLL_S = 0.02
_TRIES = 3
_LARGEST_FILE = 20_000
_ACKNOWLEDGED = re.compile(r"-> run (\w+) of the ledger")
TRAINING = """
import atexit
import os
import sys
import time
from pathlib import Path

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset

from perfkit.interface.training import training
from injected import inject

shape, rank, port, ledger, fault = sys.argv[1:]
torch.set_num_threads(1)
torch.manual_seed(0)
rows = TensorDataset(torch.randn(4096, 32), torch.randn(4096, 1))
net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
if shape == "ranks":
    distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=int(rank), world_size=2)
    net = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
loader = DataLoader(rows, batch_size=16, shuffle=True, num_workers=2 if shape == "workers" else 0)


def spent():
    # Other work on the machine only makes the training wait for a core.
    return time.monotonic() - int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


begun = spent()
atexit.register(lambda: print(spent() - begun, flush=True))
print("begun", flush=True)
run = iter
if ledger:
    ledger = None if ledger == "-" else ledger
    run = training("net", warmup=5, steps=60, balance=20, counts=True, ledger=ledger)
inject(fault)
for epoch in range(5 if shape == "alone" else 2):
    for values, goals in run(loader):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(values), goals)
        loss.backward()
        optimizer.step()
print(loss.item().hex(), flush=True)
"""
# A call is one of perfkit's functions by another one of them: what torch calls first has nothing to catch it.
INJECTED = """
import atexit
import json
import sys
from collections import Counter
from pathlib import Path

import perfkit
import torch

ROOT, TORCH = (str(Path(one.__file__).parent) for one in (perfkit, torch))
GUARDS = (
    "_harmless.<locals>.call",
    "_guarded.<locals>.call",
    "Guard.__call__.<locals>.guarded",
    "Followed._fast_end.<locals>.end_step",
    "Dispatched._handle",
)
GENERATOR = 0x20


def is_own(code):
    return code.co_filename.startswith(ROOT) and code.co_name != "<module>"


def inject(fault):
    if not fault:
        return
    name, _, number = fault.partition(" ")
    calls = Counter()

    def trace(frame, event, _):
        code = frame.f_code
        if not is_own(code) or code.co_qualname in GUARDS or code.co_flags & GENERATOR:
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith((ROOT, TORCH)):
            caller = caller.f_back
        if caller is not None and is_own(caller.f_code):
            called = f"{code.co_filename.removeprefix(ROOT)}:{code.co_qualname}".replace(" ", "")
            calls[called] += 1
            if called == name and calls[called] == int(number):
                raise RuntimeError("injected")

    if name == "list":
        atexit.register(lambda: Path(number).write_text(json.dumps(calls)))
    sys.settrace(trace)
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """The outcome of one case, without ``problems`` if all is well.

    ``added_s`` is the time of a single process beyond that without perfkit and beyond the fault's own; it was
    ``reached`` if it still ran when the fault came.
    """

    kind: str
    shape: str
    number: int
    fault: str = ""
    reached: bool = True
    acknowledged: int = 0
    added_s: float | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a training ended: its exit code, its loss and its seconds.

    The seconds are from its beginning, after all imports, and without those in which it waited for a core.
    """

    code: int | None
    loss: str
    seconds: float
    shown: str
    reached: bool


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens ``at`` so many seconds: a call with the processes; it takes ``lasts_s`` itself."""

    name: str = ""
    at: float = 0.0
    lasts_s: float = 0.0
    do: Callable[[Sequence[subprocess.Popen[str]]], bool] = lambda _: True
    injected: str = ""
    silent: bool = False


class Scene:
    """A repository with a training in it, its ledger and its caches."""

    def __init__(self, folder: Path, server: ObjectServer | None = None) -> None:
        self.folder, self.project = folder, folder / "project"
        self.project.mkdir(parents=True)
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "TMPDIR": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
            **(server.environment() if server else {}),
        }
        self.url = f"s3://{BUCKET}/{folder.name}" if server else ""
        files = {"pyproject.toml": "", "train.py": TRAINING, "injected.py": INJECTED, ".gitignore": "*.pyc\n"}
        Repository(self.project, create_repository(self.project)).commit(files)

    def train(self, shape: str, fault: Fault | None = None, *, recorded: bool = True) -> Ended:
        """Run a training to its end and disturb it."""
        fault = fault or Fault()
        ledger, port = (self.url or "-") if recorded else "", free_port()
        ranks = [
            self._start(shape, str(rank), str(port), ledger, fault.injected if recorded else "", fault.silent)
            for rank in range(1 + (shape == "ranks"))
        ]
        first = ranks[0]
        assert first.stdout is not None
        first.stdout.readline()
        begun = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            first.wait(max(0.0, fault.at))
        reached = first.poll() is None and fault.do(ranks)
        with contextlib.suppress(subprocess.TimeoutExpired):
            first.wait(_LIMIT_S)
        ended = time.monotonic()
        code = first.poll()
        for rank in ranks[1:]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                rank.wait(_LIMIT_S if code is not None else 0.0)
            code = None if rank.poll() is None else code
        left = [rank.pid for rank in ranks if not _group_ends(rank.pid)]
        outputs = [rank.communicate() for rank in ranks]
        *losses, spent = outputs[0][0].split() or [""]
        shown = "".join(err or "" for _, err in outputs)
        if left:
            shown += "\nprocesses are left"
        return Ended(
            code=code,
            loss="".join(losses),
            seconds=float(spent) if code is not None and code >= 0 else ended - begun,
            shown=shown,
            reached=reached,
        )

    def _start(self, *arguments: str | bool) -> subprocess.Popen[str]:
        *given, silent = arguments
        with Path("/dev/full").open("w") as full:
            return subprocess.Popen(
                [sys.executable, "train.py", *map(str, given)],
                cwd=self.project,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=full if silent else subprocess.PIPE,
                text=True,
                start_new_session=True,
            )

    def functions(self, shape: str) -> Mapping[str, int]:
        """Return how often each function of perfkit is called by another one in a training."""
        file = self.folder / "functions.json"
        self.train(shape, Fault(injected=f"list {file}"))
        found: dict[str, int] = json.loads(file.read_text())
        return found

    def problems(self, acknowledged: Sequence[str]) -> Iterator[str]:
        """Yield what is wrong with the ledger after the next command."""
        folders = [*self.folder.glob("cache/perfkit/ledgers/*"), self.project / "benchmarks/ledger"]
        place = self.url or str(folders[-1])
        folder = next((one for one in folders if one.is_dir()), None)
        if folder is not None:
            done = run_perfkit("ledger", "list", "--ledger", place, cwd=self.project, env=self.environment)
            if done.returncode:
                yield f"ledger list ends with {done.returncode}: {done.stderr[-300:]}"
            yield from (f"{one.kind} {one.file}" for one in verify(folder)[0].problems)
            yield from (f"left: {name}" for name in leftovers(folder) if not name.startswith(".remote"))
        for run in acknowledged:
            elsewhere = {**self.environment, "XDG_CACHE_HOME": str(self.folder / "elsewhere")}
            shown = run_perfkit("ledger", "show", run, "--ledger", place, cwd=self.project, env=elsewhere)
            if shown.returncode:
                yield f"run {run} is lost: {shown.stderr[-300:]}"
        for file in (self.folder / "cache/perfkit/errors").glob("*.txt"):
            yield f"internal error: {file.read_text()[-1000:]}"


def _group_ends(group: int) -> bool:
    deadline = time.monotonic() + _GROUP_ENDS_S
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(_POLL_S)
    os.killpg(group, signal.SIGKILL)
    return False


def drawn(
    kind: str, number: int, seconds: float, server: ObjectServer, functions: Mapping[str, int]
) -> Fault:
    """Draw a fault of a kind: its moment in a training of so many seconds, and what it does."""
    lot = random.Random(f"{kind} {number}")  # noqa: S311 (moments, not secrets)
    at = lot.uniform(0.0, seconds)
    if kind == "disk full":
        size = lot.choice((0, lot.randrange(_LARGEST_FILE)))
        at *= lot.choice((0.0, 1.0))

        def fill(ranks: Sequence[subprocess.Popen[str]]) -> bool:
            for rank in ranks:
                resource.prlimit(rank.pid, resource.RLIMIT_FSIZE, (size, size))
            return True

        return Fault(name=f"after {size} B", at=at, do=fill, silent=lot.random() < 0.5)
    if kind == "dead store":
        name = lot.choice(("refuses", "is silent"))
        is_dead = lot.random() < 0.5

        def die(_: object) -> bool:
            server.broken, server.held = name == "refuses", threading.Event() if name == "is silent" else None
            return True

        if is_dead:
            die(None)
            return Fault(name=f"{name} from the start on")
        return Fault(name=f"{name} from then on", at=at, do=die)
    if kind == "exception":
        function = lot.choice(sorted(functions))
        return Fault(name=function, injected=f"{function} {lot.randint(1, functions[function])}")
    if kind == "stopped":
        lasts_s = lot.uniform(0.2, 1.0)
        return Fault(at=at, lasts_s=lasts_s, do=functools.partial(_stop, lot.randrange(2), lasts_s))
    return Fault(at=at, do=functools.partial(_kill, kind, lot.randrange(2)))


def _stop(place: int, seconds: float, ranks: Sequence[subprocess.Popen[str]]) -> bool:
    victim = ranks[place % len(ranks)]
    victim.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    victim.send_signal(signal.SIGCONT)
    return True


def _kill(kind: str, place: int, ranks: Sequence[subprocess.Popen[str]]) -> bool:
    if kind == "killed":
        ranks[0].kill()
    elif kind == "rank killed":
        ranks[1].kill()
    else:
        workers = psutil.Process(ranks[0].pid).children()
        if not workers:
            return False
        workers[place % len(workers)].kill()
    return True


@dataclass
class _Study:
    """The trainings without perfkit that all cases are compared with, and the journal."""

    journal: Journal[Case]
    bare: Mapping[str, Ended]
    functions: Mapping[str, Mapping[str, int]]

    def do(self, kind: str, number: int) -> None:
        """Do one case, again where it only took too long, and keep the outcome."""
        case = self._case(kind, number)
        for _ in range(_TRIES - 1):
            if not case.problems or not all("s added" in one for one in case.problems):
                break
            case = self._case(kind, number)
        self.journal.add(case)
        if case.problems:
            print(f"{kind} {number} ({case.shape}, {case.fault}): {'; '.join(case.problems)}", flush=True)

    def _case(self, kind: str, number: int) -> Case:
        shape = _shape(kind, number)
        folder = Path(tempfile.mkdtemp(prefix="faults-")).resolve()
        with contextlib.ExitStack() as around:
            server = around.enter_context(object_server()) if kind == "dead store" else None
            scene = Scene(folder, server)
            bare = self.bare[shape]
            store = server or ObjectServer(_no_store)
            fault = drawn(kind, number, bare.seconds, store, self.functions[shape])
            ended = scene.train(shape, fault)
            if server is not None:
                if server.held is not None:
                    server.held.set()
                server.broken, server.held = False, None
            acknowledged = _ACKNOWLEDGED.findall(ended.shown)
            problems = list(scene.problems(acknowledged))
            # Others wait for each other's turns on the cores, too.
            added_s = (
                ended.seconds - bare.seconds - fault.lasts_s * ended.reached if shape == "alone" else None
            )
            if kind in _DIES and ended.reached and ended.code:
                # It dies of the fault in any case: here only that it ends matters, and what is left.
                bare, added_s = replace(bare, code=_DIES[kind], loss=ended.loss), None
        problems += _differences(ended, bare, added_s)
        if not problems:
            shutil.rmtree(folder)
        return Case(
            kind=kind,
            shape=shape,
            number=number,
            fault=f"{fault.name} at {fault.at:.2f} s {fault.injected}".strip(),
            reached=ended.reached and (not fault.injected or "injected" in ended.shown),
            acknowledged=len(acknowledged),
            added_s=None if added_s is None else round(added_s, 3),
            problems=tuple(problems),
        )


def _shape(kind: str, number: int) -> str:
    shape = _SHAPE_OF.get(kind, _TURNS[number % len(_TURNS)])
    # The semaphores of workers are files, which the limit that stands for a full disk would refuse.
    return "alone" if (kind, shape) == ("disk full", "workers") else shape


def _differences(ended: Ended, bare: Ended, added_s: float | None) -> Iterator[str]:
    """Yield how a training ended in another way than one without perfkit."""
    if ended.code is None or "processes are left" in ended.shown:
        yield "it hangs, or processes are left"
    elif ended.code != bare.code:
        yield f"ends with {ended.code}, not {bare.code}: {ended.shown[-2000:]}"
    if ended.loss != bare.loss:
        yield f"the loss is {ended.loss}, not {bare.loss}"
    if added_s is not None and added_s > _ALLOWED_S:
        yield f"{added_s:.1f} s added"


def _no_store(*_: object) -> list[bytes]:
    return []


def _bare(shape: str) -> tuple[Ended, Mapping[str, int]]:
    """Return a typical training without perfkit, and the calls of perfkit in one that it follows."""
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        scene = Scene(Path(place).resolve())
        runs = sorted((scene.train(shape, recorded=False) for _ in range(3)), key=lambda one: one.seconds)
        if len({one.loss for one in runs}) != 1 or {one.code for one in runs} != {0}:
            raise RuntimeError(f"the training itself differs from run to run: {runs}")
        return runs[1], scene.functions(shape)


def _prepared(journal: Journal[Case]) -> _Study:
    with ThreadPoolExecutor() as at_once:
        found = dict(zip(SHAPES, at_once.map(_bare, SHAPES), strict=True))
    return _Study(
        journal=journal,
        bare={shape: bare for shape, (bare, _) in found.items()},
        functions={shape: functions for shape, (_, functions) in found.items()},
    )


def main() -> int:
    """Do the cases that are not done yet, and print the sums of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".faults"), help="keeps the journal")
    parser.add_argument("--cases", type=int, default=max(KINDS.values()), help="of each kind, at most")
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--report", action="store_true", help=f"write {RESULTS.name}, and do nothing else")
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    journal = Journal(file=given.folder / "trainings.jsonl", kind=Case)
    if not given.report:
        done = {(one.kind, one.number) for one in journal.outcomes()}
        left = [
            (kind, number)
            for number in range(given.cases)
            for kind in given.kind or KINDS
            if number < KINDS[kind] and (kind, number) not in done
        ]
        if left:
            study = _prepared(journal)
            with ThreadPoolExecutor(given.at_once) as at_once:
                for done_case in [at_once.submit(study.do, *one) for one in left]:
                    done_case.result()
    return _report(journal.outcomes(), write=given.report)


def _report(cases: Sequence[Case], *, write: bool) -> int:
    parts: dict[str, dict[str, float | str]] = {}
    for kind in KINDS:
        mine = [case for case in cases if case.kind == kind]
        added = [case.added_s for case in mine if case.added_s is not None]
        parts[kind] = {
            "cases": len(mine),
            "reached": sum(case.reached for case in mine),
            "acknowledged": sum(case.acknowledged for case in mine),
            "bad": sum(bool(case.problems) for case in mine),
            "median_s": round(statistics.median(added), 2) if added else "",
            "most_s": round(max(added), 2) if added else "",
        }
        print(f"{kind}: {', '.join(f'{what} {number}' for what, number in parts[kind].items())}")
    if write:
        known = json.loads(RESULTS.read_text())
        RESULTS.write_text(json.dumps({**known, "trainings": parts}, indent=1) + "\n")
        replace_table(DOCUMENT, "trainings", table_of(parts))
    return int(any(case.problems for case in cases))


def table_of(parts: Mapping[str, Mapping[str, float | str]]) -> str:
    """Return the results as a table in Markdown."""
    lines = [
        "| fault | cases | reached | rows acknowledged | s added, median | at most | with a problem |",
        "| :--- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind, part in parts.items():
        cells = (part[key] for key in ("cases", "reached", "acknowledged", "median_s", "most_s", "bad"))
        lines.append(f"| {kind} | {' | '.join(map(str, cells))} |")
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
