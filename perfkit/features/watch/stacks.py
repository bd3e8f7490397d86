"""Samples the stacks of a running process and its children with py-spy."""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

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
from perfkit.report.progress import StageProgress
from perfkit.temporary import temporary_folder

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
