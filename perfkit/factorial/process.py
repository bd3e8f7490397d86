"""The process of a trial, seen from the parent: fresh, in a group of its own, ended when its time is over."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from perfkit.factorial.exchange import (
    RESULT_FILE,
    TrialResult,
    TrialSpec,
    read_record,
    write_record,
)
from perfkit.measure.environment import fixed_environment
from perfkit.profiling.exchange import OUTPUT_FILE, Problem
from perfkit.temporary import temporary_folder

# -P: the current folder must not shadow the modules that the harness needs before the target runs.
_PYTHON = (sys.executable, "-P", "-X", "faulthandler", "-m", "perfkit.factorial.child")
_TAIL_LINES = 8


def run_trial(spec: TrialSpec, *, environment: Mapping[str, str], limit_s: float, seed: int) -> TrialResult:
    """Do what ``spec`` asks in a fresh interpreter and return what that gave, or the problem that ended it.

    The spec's folder is set here: a temporary one. ``seed`` fixes the hashes of the process. No process of
    the trial outlives the call.
    """
    with temporary_folder() as folder:
        spec = replace(spec, folder=str(folder))
        file = folder / "spec.json"
        write_record(spec, file)
        with (folder / OUTPUT_FILE).open("wb") as output:
            process = subprocess.Popen(
                [*_PYTHON, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=fixed_environment(environment, hash_seed=seed % 2**32),
                cwd=spec.root,
                start_new_session=True,
            )
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            message = f"it took longer than {limit_s:g} s, the experiment's limit"
            return TrialResult(problem=Problem(kind="failed", message=message, status="timeout"))
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        found = read_record(folder / RESULT_FILE, TrialResult)
        return found or TrialResult(problem=_died(process.returncode, folder))


def _died(status: int, folder: Path) -> Problem:
    """Return what to say of a process that left nothing; the kernel kills those that take all memory."""
    tail = (folder / OUTPUT_FILE).read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    if status == -signal.SIGKILL:
        return Problem(
            kind="failed", message="it was killed, as the kernel does when memory is used up", status="oom"
        )
    how = f"by signal {signal.Signals(-status).name}" if status < 0 else f"with exit code {status}"
    said = f": {tail[-1]}" if tail else ""
    return Problem(kind="failed", message=f"its process ended {how}{said}", details="\n".join(tail))
