"""A pass in a fresh process, seen from the parent."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from perfkit.profiling.exchange import (
    DONE,
    OUTPUT_FILE,
    PassResult,
    PassSpec,
    Problem,
    read_result,
    write_spec,
)

_ALIVE_EVERY_S = 1.0
_FAREWELL_S = 10.0
_TAIL_LINES = 20


def run_pass(spec: PassSpec, on_steps: Callable[[int], None]) -> PassResult:
    """Make a pass in a fresh process and return what it gave; ``on_steps`` hears how many steps are done.

    What the target prints goes to a file in the pass's folder. No process of the pass outlives the call.
    """
    folder = Path(spec.folder)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0), (folder / OUTPUT_FILE).open("wb") as output:
        write_spec(replace(spec, progress_descriptor=writing), folder / "spec.json")
        with _process(folder / "spec.json", output.fileno(), writing) as process:
            _follow(process, reading, on_steps)
            status = _farewell(process)
    return read_result(folder) or _died(spec, status)


def output_tail(folder: Path) -> str:
    """Return the last lines that the target of a pass printed."""
    lines = (folder / OUTPUT_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-_TAIL_LINES:])


@contextlib.contextmanager
def _process(spec_file: Path, output: int, writing: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start the child in a process group of its own, and end whatever is left of that group."""
    # -P: the current folder must not shadow the modules that the harness needs before the target runs.
    command = [sys.executable, "-P", "-X", "faulthandler", "-m", "perfkit.profiling.child", str(spec_file)]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(writing,),
            start_new_session=True,
        )
    finally:
        os.close(writing)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _follow(process: subprocess.Popen[bytes], reading: int, on_steps: Callable[[int], None]) -> None:
    """Pass on step counts until the child is done or dead; the end of the pipe may be held by its workers."""
    while True:
        readable, _, _ = select.select([reading], [], [], _ALIVE_EVERY_S)
        words = os.read(reading, 4096).decode().split() if readable else []
        counts = [int(word) for word in words if word != DONE]
        if counts:
            on_steps(counts[-1])
        if DONE in words or (readable and not words) or process.poll() is not None:
            return


def _farewell(process: subprocess.Popen[bytes]) -> int | None:
    """Give the child time for its own clean-up; threads of the target may keep it for ever."""
    try:
        return process.wait(_FAREWELL_S)
    except subprocess.TimeoutExpired:
        return None


def _died(spec: PassSpec, status: int | None) -> PassResult:
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        hint = " (out of memory?)" if status == -signal.SIGKILL else ""
        said = f"was killed by {name}{hint}"
    else:
        said = f"ended its process with exit status {status} before the harness could tell the times"
    return PassResult(problem=Problem(kind="failed", message=f"{spec.target.name} {said}"))
