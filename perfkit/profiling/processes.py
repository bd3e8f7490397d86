"""Where the processes of passes come from: forked from a preloader, or fresh where fork is not safe."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Protocol, Self

# -P: the current folder must not shadow the modules that the harness needs before the target runs.
_PYTHON = (sys.executable, "-P", "-X", "faulthandler", "-m")
_PID_BYTES = 32


class PassProcess(Protocol):
    """A process in a group of its own; ``wait`` raises ``subprocess.TimeoutExpired``."""

    @property
    def pid(self) -> int:
        """Its number, and its group's."""

    def poll(self) -> int | None:
        """Return its exit status, negative for a signal; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status once it has one."""


class PassLauncher:
    """Starts the process of a pass. The first import of torch takes seconds, and is paid once for all.

    With ``fork`` all passes share what the import left, the layout of memory and hash seeds included.
    """

    def __init__(self, *, fork: bool = sys.platform == "linux") -> None:
        self._fork = fork
        self._preloader: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Begin to import torch in the background, where passes can be forked."""
        if self._fork:
            self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._preloader = subprocess.Popen(
                [*_PYTHON, "perfkit.profiling.preloader", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            theirs.close()
        return self

    def __exit__(self, *_: object) -> None:
        """Let the preloader go."""
        if self._preloader is not None:
            self._orders.close()
            self._preloader.kill()
            self._preloader.wait()

    def start(
        self, spec_file: Path, *, folder: str, output: int, progress: int, turns: int | None
    ) -> PassProcess:
        """Start a pass in a folder; it inherits the descriptors. The caller closes its own."""
        inherited = [progress, *([turns] if turns is not None else [])]
        if self._preloader is None:
            return subprocess.Popen(
                [*_PYTHON, "perfkit.profiling.child", str(spec_file), *map(str, inherited)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=inherited,
                cwd=folder,
                start_new_session=True,
            )
        status, theirs = os.pipe()
        words = json.dumps({"spec_file": str(spec_file), "folder": folder}).encode()
        try:
            socket.send_fds(self._orders, [words], [theirs, output, *inherited])
        finally:
            os.close(theirs)
        return _ForkedProcess(int(self._orders.recv(_PID_BYTES)), status)


class _ForkedProcess:
    """A pass forked from the preloader, which alone hears how it ended and writes that down a pipe."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self._descriptor = status
        self._status: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        if self._status is None:
            readable, _, _ = select.select([self._descriptor], [], [], timeout)
            if not readable:
                raise subprocess.TimeoutExpired("a pass", timeout or 0)
            said = os.read(self._descriptor, _PID_BYTES)
            os.close(self._descriptor)
            # Without the preloader nobody knows; it was killed, and so will the pass be.
            self._status = int(said) if said else -signal.SIGKILL
        return self._status
