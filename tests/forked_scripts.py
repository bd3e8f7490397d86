"""Runs Python programs in processes forked from one that has imported torch and perfkit.

They are spared the imports, which take most programs longer than all that they do besides.
"""

from __future__ import annotations

import atexit
import io
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from forked_commands import become

# As of a real program, it stays until the end: torch may wait for ever where it frees a group of ranks.
_SPACE: dict[str, object] = {"__name__": "__main__"}
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        *("pytest", "duckdb", "git", "pyarrow.parquet", "perfkit.commands.training", "forked_scripts"),
        # The first optimizer imports it.
        "torch._dynamo",
    ]
)


def start_script(
    program: str,
    *arguments: str,
    cwd: str | Path = ".",
    env: Mapping[str, str] | None = None,
    out: str | Path,
    err: str | Path,
) -> ForkServerProcess:
    """Start a program, as `python -c` does, whose outputs go to files or to a terminal of these names."""
    process = _CONTEXT.Process(
        target=_run, args=(program, arguments, Path(cwd).absolute(), dict(env or os.environ), (out, err))
    )
    process.start()
    return process


def run_script(
    program: str, *arguments: str, cwd: str | Path = ".", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, as `python -c` does."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = start_script(program, *arguments, cwd=cwd, env=env, out=out, err=err)
        process.join()
        assert process.exitcode is not None
        return subprocess.CompletedProcess(
            [program, *arguments], process.exitcode, out.read_text(), err.read_text()
        )


def _run(
    program: str,
    arguments: tuple[str, ...],
    folder: Path,
    variables: dict[str, str],
    streams: tuple[str | Path, str | Path],
) -> None:
    order = {"arguments": ["-c", *arguments], "folder": folder, "variables": variables}
    become(order, [os.open(place, os.O_WRONLY | os.O_CREAT | os.O_NOCTTY) for place in streams])
    for writer in (sys.stdout, sys.stderr):
        assert isinstance(writer, io.TextIOWrapper)
        writer.reconfigure(line_buffering=True)
    sys.path.insert(0, "")
    try:
        exec(program, _SPACE)  # noqa: S102 (a text of a test)
    finally:
        # A fork ends without them.
        atexit._run_exitfuncs()
