"""``tool.perfkit.prepare``: the command that makes a checkout ready, a build for example."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from perfkit.errors import NotMeasuredError
from perfkit.records import Side
from perfkit.repo.commands import outside_repository

SIDE_VARIABLE = "PERFKIT_SIDE"


def prepare_root(command: str, *, side: Side, root: Path) -> None:
    """Run a shell command in a root, ``PERFKIT_SIDE`` naming its side; no process of it outlives the call.

    Raises:
        NotMeasuredError: it failed.
    """
    # In a file, for a pipe would stay open as long as any process the command left behind.
    with tempfile.TemporaryFile() as output:
        status = _run(command, side, root, output)
        if status:
            output.seek(0)
            said = output.read().decode("utf-8", "replace").strip().splitlines() or ["it printed nothing"]
            raise NotMeasuredError(
                f"tool.perfkit.prepare: `{command}` failed on {side} with exit code {status}:"
                f" {said[-1].strip()}"
            )


def _run(command: str, side: Side, root: Path, output: IO[bytes]) -> int:
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=root,
        env={**outside_repository(os.environ), SIDE_VARIABLE: side},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
