"""Runs perfkit's commands in processes forked from one that has imported what they need, or right here.

A forked command is a process of its own, with its folder, variables, streams and exit code. What it is
spared is the start, which takes most commands longer than all that they do besides.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

PERFKIT = Path(sys.executable).with_name("perfkit")
# What a gate, a report and a look at a ledger import, apart from torch.
_SHARED = (
    "duckdb",
    "git",
    "numpy",
    "psutil",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pytest",
    "pytest_benchmark.plugin",
    "perfkit.cli.app",
    "perfkit.gating.compare",
    "perfkit.internal_error",
    "perfkit.commands.accept",
    "perfkit.commands.gate",
    "perfkit.commands.history",
    "perfkit.commands.log",
    "perfkit.ledger.queries",
    "perfkit.report.explain",
    "perfkit.report.gate.terminal",
    "perfkit.report.gate.markdown",
    "perfkit.report.gate.plan",
    "perfkit.features.site",
)
# Has the library of the command line import what it needs.
_MISTAKE = ("ledger", "list", "--ledger", "nowhere")
_LARGEST_ORDER = 1 << 18
_PYTEST = "pytest"
# A process takes these for what they were when it started.
_FIXED_AT_START = ("PYTHON", "LC_", "LANG", "OMP_", "TZ")


def run_perfkit(
    *arguments: str | Path, cwd: str | Path = ".", env: Mapping[str, str] | None = None, check: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command of perfkit to its end, as ``subprocess.run`` does; its standard input is empty."""
    variables = dict(os.environ if env is None else env)
    command = [str(PERFKIT), *map(str, arguments)]
    server = _Server.shared()
    if _fixed(variables) != server.fixed:
        return subprocess.run(
            command,
            cwd=cwd,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=check,
        )
    done = server.run(command, cwd, variables)
    if check:
        done.check_returncode()
    return done


def run_pytest(
    *arguments: str, cwd: str | Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a session of pytest to its end, as `python -m pytest` does."""
    return _Server.shared().run([_PYTEST, *arguments], cwd, os.environ if env is None else env)


def run_here(*arguments: str | Path, cwd: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command of perfkit in this process, where fixtures can lend it what is slow to start."""
    from perfkit.cli.app import run_app
    from perfkit.errors import PerfkitError

    command = ["perfkit", *map(str, arguments)]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    given, sys.argv = sys.argv, command
    try:
        with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_app()
    except PerfkitError as error:
        code = error.exit_code
        err.write(f"perfkit: {error}\n")
    finally:
        sys.argv = given
    for stream in (out, err):
        stream.seek(0)
    return subprocess.CompletedProcess(command, code, out.read(), err.read())


def run(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401
    """Run any command to its end, with both outputs as text."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def _fixed(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in variables.items() if name.startswith(_FIXED_AT_START)}


class _Server:
    """The process that is forked, from the first command of this process on."""

    _one: _Server | None = None

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self.fixed = _fixed(os.environ)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        atexit.register(self._end)

    @classmethod
    def shared(cls) -> _Server:
        """Return that of this process."""
        if cls._one is None:
            cls._one = cls()
        return cls._one

    def run(
        self, command: list[str], cwd: str | Path, variables: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Have a command run to its end; its exit code is below zero for a signal."""
        order = {"arguments": command, "folder": str(Path(cwd).absolute()), "variables": {**variables}}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            with self._lock:
                socket.send_fds(self._ours, [msgspec.json.encode(order)], [out.fileno(), err.fileno()])
                code = int(self._ours.recv(_LARGEST_ORDER))
            for stream in (out, err):
                stream.seek(0)
            output, shown = (stream.read().decode() for stream in (out, err))
        return subprocess.CompletedProcess(command, code, output, shown)

    def _end(self) -> None:
        self._ours.close()
        self._process.wait()


def _forked(connection: socket.socket) -> bool:
    """Fork a process for each order; return True in each of them, and False when there are no more."""
    while True:
        order, streams, _, _ = socket.recv_fds(connection, _LARGEST_ORDER, 2)
        if not order:
            return False
        with warnings.catch_warnings(action="ignore"):
            # A library has a thread that does nothing; from 3.12 on Python warns of forks beside any.
            child = os.fork()
        if not child:
            connection.close()
            become(msgspec.json.decode(order), streams)
            return True
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(child, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(order: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Be the command: take over its folder, variables, arguments and streams."""
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(order["variables"])
    os.chdir(order["folder"])
    time.tzset()
    tempfile.tempdir = None
    sys.argv = order["arguments"]
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _serve(descriptor: int) -> None:
    """Import what is shared, fork for each command, and be one of them where forked."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.path.insert(0, str(PERFKIT.parent))
    for module in _SHARED:
        importlib.import_module(module)
    from perfkit.cli import main
    from perfkit.gating import explain
    from perfkit.runner.lockstep import collection, launcher

    collection.plugins()
    # Other tests need the core on which a second fork server would be raised ahead of time.
    launcher._STARTED_TOGETHER = 1
    # Of what regressed few functions are known, which a short profile shows.
    explain._PROFILED_S = 0.1
    sys.argv = [str(PERFKIT), *_MISTAKE]
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
        main()
    gc.collect()
    gc.freeze()
    if _forked(socket.socket(fileno=descriptor)):
        if sys.argv[0] == _PYTEST:
            sys.path.insert(0, str(Path.cwd()))
            _end_as(pytest.console_main)
        _end_as(main)


def _end_as(main: Callable[[], int | None]) -> None:
    """Run the command and end with its exit code, without the end of all that was imported."""
    code: object = 0
    try:
        code = main()
    except SystemExit as end:
        code = end.code
    # What Python does at its end with all that a command may have begun.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(int(code) if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
