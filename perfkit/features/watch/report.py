"""What a running training spends its time in, as its stacks show it."""

from __future__ import annotations

import contextlib
import json
import linecache
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from perfkit.cli import options
from perfkit.cli.output import emit, stages
from perfkit.errors import NotMeasuredError
from perfkit.extras import MissingLibraryError
from perfkit.model import profiles
from perfkit.model.profiles import (
    BACKWARD,
    COMPILING,
    COPY,
    LIBRARY,
    MODEL,
    UPDATE,
    WAIT,
    OwnLine,
    part_of_library,
)
from perfkit.model.readings import DATA, EVALUATION, FORWARD, OPTIMIZER, RANKS
from perfkit.report.names import Folded, named_table, spaced
from perfkit.report.progress import StageProgress
from perfkit.temporary import temporary_folder
from perfkit.units import counted, human_percent

_RATE = 50
_SHOWN_EVERY_S = 0.5
_DUMP_S = 5.0
# A command line may have line breaks.
_RECORD = re.compile(r'\n(?=process \d+:")')
_FRAME = re.compile(r"(.*) \((.*):(\d+)\)")
_PROCESS = re.compile(r'(?:^|;)process (\d+):"')
_THREAD = re.compile(r"(?:^|;)thread \(\w+\): ([^;]*)")
_NOT_OWN = re.compile(r"^<|/lib/python3|/(site|dist)-packages/|/bin/[^/]*$")
_WORKER = "torch/utils/data/_utils/worker.py"
_COLLECTIVES = "torch/distributed/distributed_c10d.py"
_IMPORTING, _IMPORTS = "<frozen importlib._bootstrap>", "imports"
_WITHOUT_GRADIENTS = "decorate_context"
# Of a worker that is counted, so much of the time may be missed or seen twice.
_MISSED = 0.1
_EVALUATION = re.compile(
    r"(^|[_.])(eval|evaluate|evaluation|val|valid|validate|validation)(_|$)|(^|\.)test(_epoch|_step)?$"
)
OWN, WAITING, _LOADING = "own code", "waiting", "loading"
_PARTS = {profiles.DATA: DATA, UPDATE: OPTIMIZER, MODEL: FORWARD, WAIT: WAITING, LIBRARY: OWN, COPY: OWN}


@dataclass(frozen=True, kw_only=True)
class Stack:
    """One stack of a thread, the part of a step that it shows, and how many samples found it.

    ``line`` is the innermost own one. ``frames`` are the functions, innermost first, without those that poll,
    so that they stay the same through a wait.
    """

    pid: int
    thread: str
    line: OwnLine | None
    part: str
    frames: tuple[str, ...]
    is_main: bool
    is_worker: bool
    count: int


@dataclass(frozen=True, kw_only=True)
class Watched:
    """All stacks of a process and its children in ``seconds``, with the CPU time of each process then.

    ``moved`` are the processes in whose own code a variable changed, however alike their stacks are.
    """

    pid: int
    seconds: float
    stacks: tuple[Stack, ...]
    cpu_s: dict[int, float]
    moved: frozenset[int] = frozenset()


def sampled(pid: int, seconds: int, progress: StageProgress) -> Watched:
    """Sample a process and its children; Ctrl-C ends it early.

    Raises:
        MissingLibraryError: py-spy is not installed.
        NotMeasuredError: there is no such process, it is not Python, or it may not be read.
    """
    folders = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    if (program := shutil.which("py-spy", path=folders)) is None:
        raise MissingLibraryError(
            "perfkit watch needs py-spy, found none; install it: pip install 'perfkit[watch]'"
        )
    folder = f"/proc/{pid}/cwd"
    with contextlib.suppress(OSError):
        folder = str(Path(folder).readlink())
    with temporary_folder() as place:
        file, errors = place / "stacks", place / "errors"
        command = [program, "record", "--pid", str(pid), "--subprocesses", "--idle", "--threads"]
        command += ["--full-filenames", "--format", "raw", "--output", str(file)]
        command += ["--rate", str(_RATE), "--duration", str(seconds)]
        progress.info(f"watching process {pid} for {seconds} s; Ctrl-C ends it and reports")
        variables = _own_variables(program, pid)
        cpu_s, begun = _cpu_s(), time.monotonic()
        with errors.open("w") as stream:
            # In a session of its own, so that Ctrl-C reaches it once, and from here.
            process = subprocess.Popen(command, stdout=stream, stderr=stream, start_new_session=True)
        try:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_SHOWN_EVERY_S)
                progress.advance(min(1.0, (time.monotonic() - begun) / seconds))
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
        lasted = min(time.monotonic() - begun, seconds)
        used = {one: total - cpu_s.get(one, 0.0) for one, total in _cpu_s().items()}
        later = _own_variables(program, pid)
        # One that could not be read once is taken for what its stacks show.
        moved = frozenset(one for one in variables.keys() & later.keys() if variables[one] != later[one])
        text = file.read_text() if file.exists() else ""
        records = _RECORD.split(text.rstrip("\n")) if text else []
        # A launcher may have started this process as well.
        stacks = tuple(
            one for one in (_stack(folder, record) for record in records) if one.pid != os.getpid()
        )
        if not stacks:
            raise NotMeasuredError(_problem(pid, errors.read_text()))
    return Watched(pid=pid, seconds=lasted, stacks=stacks, cpu_s=used, moved=moved)


def _own_variables(program: str, pid: int) -> dict[int, list[object]]:
    """Return the variables of the frames of own code, by process."""
    command = [program, "dump", "--json", "--locals", "--full-filenames", "--subprocesses", "--pid", str(pid)]
    found: defaultdict[int, list[object]] = defaultdict(list)
    with contextlib.suppress(subprocess.SubprocessError, ValueError, KeyError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DUMP_S, check=True)
        for thread in json.loads(done.stdout):
            for frame in thread["frames"]:
                if not _NOT_OWN.search(frame["filename"]):
                    found[thread["pid"]].append((frame["name"], frame["line"], frame["locals"]))
    return found


def _cpu_s() -> dict[int, float]:
    """Return the CPU seconds of every process."""
    tick_s, found = 1 / os.sysconf("SC_CLK_TCK"), {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        # A process may end meanwhile.
        with contextlib.suppress(OSError):
            user, system = file.read_text().rpartition(")")[2].split()[11:13]
            found[int(file.parent.name)] = (int(user) + int(system)) * tick_s
    return found


def _problem(pid: int, errors: str) -> str:
    """Return why nothing was seen; what may be traced has memory that can be opened."""
    python = "`pgrep -af python` lists those of Python"
    try:
        Path(f"/proc/{pid}/mem").open("rb").close()
    except PermissionError:
        return (
            f"process {pid} may not be read (ptrace is not permitted); run perfkit watch with sudo, or allow"
            " it: `sudo sysctl kernel.yama.ptrace_scope=0`, in a container `--cap-add SYS_PTRACE`"
        )
    except OSError:
        return f"there is no process {pid}, or it ended at once; {python}"
    found = errors.partition("Error: ")[2].partition("\n")[0] or "it ended at once"
    return f"process {pid} showed no stack of Python ({found}); {python}"


def _stack(folder: str, text: str) -> Stack:
    stack, _, count = text.rpartition(" ")
    thread, processes = _THREAD.search(stack), _PROCESS.findall(stack)
    found = [frame.groups() for one in stack.split(";") if (frame := _FRAME.fullmatch(one))]
    line: OwnLine | None = None
    frames: list[str] = []
    phase, inner = "", LIBRARY
    evaluates = False
    for function, file, number in reversed(found):
        is_own = not _NOT_OWN.search(file)
        part, kind = ("", LIBRARY) if is_own else part_of_library(file)
        part = RANKS if file.endswith(_COLLECTIVES) else part
        part = _IMPORTS if line is None and file == _IMPORTING else part
        # An optimizer calls no module itself, but a closure that it was given does.
        if (
            part
            and phase not in (COMPILING, _IMPORTS)
            and not (part == UPDATE and phase in (MODEL, BACKWARD))
        ):
            phase = part
        evaluates = evaluates or bool(_EVALUATION.search(function) and "/torch/" not in file)
        evaluates = evaluates or (function == _WITHOUT_GRADIENTS and phase == MODEL)
        if is_own and line is None:
            shown = file.removeprefix(f"{folder}/")
            source = linecache.getline(file, int(number)).strip()
            line = OwnLine(file=shown, line=int(number), function=function, text=source)
        elif line is None and inner == LIBRARY:
            inner = kind
        if kind != WAIT:
            frames.append(f"{function} ({file}:{number})" if is_own else f"{function} ({file})")
    worker = any(file.endswith(_WORKER) for _, file, _ in found)
    part = EVALUATION if evaluates and phase in ("", MODEL) else _PARTS.get(phase or inner, phase or inner)
    return Stack(
        pid=int(processes[-1]),
        thread=thread[1] if thread else "",
        line=line,
        part=part if not worker else WAITING if inner == WAIT else _LOADING,
        frames=tuple(frames),
        is_main=bool(found) and not found[0][1].endswith("/threading.py"),
        is_worker=worker,
        count=int(count),
    )


_MOST_LINES, _MOST_OF_WORKERS = 10, 3
# No process hangs that keeps half a core busy, or that was seen less often.
_BUSY, _FEWEST_SAMPLES = 0.5, 50
_MOST_OF, _SHOWN = 0.9, 0.005
_WAITS = {DATA: "waits for the loader", RANKS: "waits for other ranks", WAITING: "waits"}


@dataclass(frozen=True, kw_only=True)
class WatchLine:
    """A line, the part of a step that it is in, and its share of the time of ``who``.

    ``who`` is "training" or "loader workers", and a process and thread where the training hangs.
    """

    who: str
    part: str
    place: str
    function: str
    text: str
    share: float


@dataclass(frozen=True, kw_only=True)
class WatchReport:
    """Where a running training spends its time; ``parts`` are shares, largest first.

    A training ``hangs`` if no stack or own variable of its processes and its loaders' workers changed, and it
    used next to no CPU. ``lines`` are then of all threads.
    """

    pid: int
    verdict: str
    seconds: float
    samples: int
    processes: int
    workers: int
    hangs: bool
    parts: dict[str, float]
    lines: tuple[WatchLine, ...]
    next: str


def report_of(found: Watched) -> WatchReport:
    """Return what the stacks of a training show."""
    threads: defaultdict[tuple[int, str], list[Stack]] = defaultdict(list)
    for one in found.stacks:
        threads[one.pid, one.thread].append(one)
    workers = {one.pid for one in found.stacks if one.is_worker}
    training = _training_threads(threads, workers, found)
    of_workers = [key for key in threads if key[0] in workers and threads[key][0].is_main]
    hangs = all(_is_stuck(threads[key], found) for key in (*training, *of_workers))
    taken = [one for key in training for one in threads[key]]
    total = sum(one.count for one in taken)
    # At a time: a loader may begin new ones in each epoch.
    worked = sum(one.count for key in of_workers for one in threads[key])
    alive = min(len(workers), math.ceil(worked * len(training) / total - _MISSED)) if total else len(workers)
    parts: Counter[str] = Counter()
    for one in taken:
        parts[one.part] += one.count
    if hangs:
        # What waits for another rank or a worker hangs because that one does.
        first = sorted((*training, *of_workers), key=lambda key: threads[key][0].part in (DATA, RANKS))
        lines = [
            _lines(threads[key], " ".join(map(str, key)))[0] for key in dict.fromkeys((*first, *threads))
        ]
        function = threads[first[0]][0].frames[0].partition(" (")[0]
        verdict = f"hangs in {function} for {found.seconds:.0f} s ({lines[0].place})"
        command = f"py-spy dump --locals --pid {first[0][0]}"
    else:
        few = _lines([one for key in of_workers for one in threads[key]], "loader workers")
        lines = (
            _lines(taken, "training")[: _MOST_LINES - len(few[:_MOST_OF_WORKERS])] + few[:_MOST_OF_WORKERS]
        )
        part, count = parts.most_common(1)[0]
        most = next(one for one in lines if one.part == part)
        share = f"{human_percent(count / total)} of the time"
        alone = f" alone {human_percent(most.share)}" if most.share < _MOST_OF * count / total else ""
        verb = f"{_WAITS[part]} {share}" if part in _WAITS else f"spends {share} in {part}"
        verdict = f"{verb} ({most.place}{alone})"
        command = _next([pid for pid, _ in training], found.pid)
    return WatchReport(
        pid=found.pid,
        verdict=verdict,
        seconds=found.seconds,
        samples=total,
        processes=len(training),
        workers=alive,
        hangs=hangs,
        parts={part: count / total for part, count in parts.most_common()},
        lines=tuple(lines[:_MOST_LINES]),
        next=command,
    )


def _training_threads(
    threads: dict[tuple[int, str], list[Stack]], workers: set[int], found: Watched
) -> list[tuple[int, str]]:
    """Return the thread of each process that trains: no loader's worker, and no parent that only waits."""

    def rank(key: tuple[int, str]) -> tuple[int, bool]:
        own = [one for one in threads[key] if one.line and one.part not in (OWN, WAITING)]
        return sum(one.count for one in own), threads[key][0].is_main

    best: dict[int, tuple[int, str]] = {}
    for key, stacks in threads.items():
        if key[0] not in workers and any(one.line for one in stacks):
            best[key[0]] = max(best.get(key[0], key), key, key=rank)
    in_steps = [key for key in best.values() if rank(key)[0]]
    if any(not _is_stuck(threads[key], found) for key in in_steps):
        return in_steps
    others = [key for key in best.values() if key[0] != found.pid or key in in_steps]
    return others or list(best.values()) or [max(threads, key=lambda key: (key[0] == found.pid, *rank(key)))]


def _is_stuck(stacks: Sequence[Stack], found: Watched) -> bool:
    return (
        len({one.frames for one in stacks}) == 1
        and stacks[0].pid not in found.moved
        and sum(one.count for one in stacks) >= _FEWEST_SAMPLES
        and found.cpu_s.get(stacks[0].pid, 0.0) < _BUSY * found.seconds
    )


def _lines(stacks: Sequence[Stack], who: str) -> list[WatchLine]:
    """Return the lines of stacks, the one with the largest share first."""
    by_line: defaultdict[tuple[str, str], list[Stack]] = defaultdict(list)
    for one in stacks:
        by_line[one.part, one.line.place if one.line else one.frames[0] if one.frames else ""].append(one)
    total = sum(one.count for one in stacks)
    return sorted((_line(found, who, total) for found in by_line.values()), key=lambda one: -one.share)


def _line(stacks: Sequence[Stack], who: str, total: int) -> WatchLine:
    most = max(stacks, key=lambda one: one.count)
    function, _, file = (most.frames[0] if most.frames else "").removesuffix(")").partition(" (")
    return WatchLine(
        who=who,
        part=most.part,
        place=most.line.place if most.line else file,
        function=most.line.function if most.line else function,
        text=most.line.text if most.line else "",
        share=sum(one.count for one in stacks) / total,
    )


def _next(ranks: Sequence[int], root: int) -> str:
    """Return the command that looks closer: at the script, where a command line shows it."""
    for pid in (ranks[0], root):
        with contextlib.suppress(OSError):
            words = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")[1:-1]
            at = next((at for at, word in enumerate(words) if not word.startswith("-")), 0)
            if words[at:] and words[at].endswith(".py"):
                script = str(Path(f"/proc/{pid}/cwd").resolve() / words[at]).removeprefix(f"{Path.cwd()}/")
                given = shlex.join([script, *(["--", *words[at + 1 :]] if words[at + 1 :] else [])])
                several = f"profile --ranks {len(ranks)}" if pid != root and len(ranks) > 1 else "why"
                return f"perfkit {several} {given}"
    return f"py-spy record --output flames.svg --duration 60 --subprocesses --pid {root}"


def watch_view(report: WatchReport) -> Group:
    """Return the verdict, the parts of the time, the lines and the next command."""
    parts = ", ".join(
        f"{part} {100 * share:.0f} %" for part, share in report.parts.items() if share >= _SHOWN
    )
    ranks = f", {report.processes} ranks" if report.processes > 1 else ""
    workers = f", {counted(report.workers, 'loader worker')}" if report.workers else ""
    head = f"{report.seconds:.0f} s, {report.samples:,} samples{ranks}{workers}: {parts}"
    table = named_table("line", "part", "share")
    for one in report.lines:
        who = "" if one.who == "training" else f"{one.who}: "
        table.add_row(
            Text(f"{who}{one.place} in {one.function}: {one.text}"), one.part, human_percent(one.share)
        )
    pasted = Text(f"next: {report.next}", no_wrap=True, overflow="ignore")
    return Group(spaced(Group(Folded(report.verdict, style="bold"), Folded(head)), table), pasted)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog=options.examples("perfkit watch 4711", "perfkit watch 4711 --for 5min"))(watch)


def watch(
    pid: Annotated[int, typer.Argument(metavar="PID", help="The process of the training, or its launcher.")],
    *,
    duration: Annotated[
        str, typer.Option("--for", metavar="TIME", help='How long to sample, "90s" or "5min".')
    ] = "60s",
    json: options.JsonOption = None,
) -> None:
    """Show which lines a running training spends its time in, and whether it hangs, without changing it.

    Ranks and loader workers that the process started are watched, too. Ctrl-C ends the sampling early.
    """
    from perfkit.config import parse_duration
    from perfkit.features.watch.report import sampled

    seconds = parse_duration(duration, key="--for")
    with stages() as progress:
        found = sampled(pid, max(1, round(seconds)), progress)
    report = report_of(found)
    emit(watch_view(report), report, json=json, verdict=report.verdict)
