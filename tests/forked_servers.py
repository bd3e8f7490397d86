"""Fork servers, forked in turn from processes that have imported what such a server imports first.

A fork server made here is what a started one is: a process in a session of its own, under a guard, with its
own variables, folder and output. It is spared the start of two interpreters, and imports of pytest or torch.
Its hash seed is that of the process that it was forked from. A server that is to have another interpreter, or
other variables that Python or the allocator reads when a process starts, is started as usual.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

_LARGEST_ORDER = 1 << 18
_STATUS_BYTES = 32
_END_LIMIT_S = 20.0
_AGENT = "_perfkit_agent"
_TORCH = ("torch", "torch._dynamo")
# A process takes these for what they were when it started.
_FIXED_AT_START = ("PYTHON", "LC_", "LANG", "OMP_", "TZ", "MALLOC_", "GLIBC_", "LD_")


def _fixed(variables: Mapping[str, str]) -> dict[str, str]:
    return {
        name: text
        for name, text in variables.items()
        if name.startswith(_FIXED_AT_START) and name != "PYTHONHASHSEED"
    }


class _Template:
    """A process that fork servers of one kind are forked from; the first order has it import modules."""

    def __init__(
        self, entry: str, modules: Sequence[str], options: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.kind = (entry, tuple(options), _fixed(environment))
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *options, __file__, str(theirs.fileno()), entry, *modules],
                pass_fds=[theirs.fileno()],
                env={**environment, "PYTHONHASHSEED": "1"},
                stdin=subprocess.DEVNULL,
            )

    def fork(self, order: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        """Have a guard and a fork server forked with three descriptors: guard's end, channel and output."""
        socket.send_fds(self._ours, [json.dumps(order).encode()], descriptors)


def forking() -> Callable[..., Any]:
    """Return what perfkit may start agents by, in this process or in one that is forked from it."""
    from perfkit.agent.channel import Channel
    from perfkit.runner import fork_server
    from perfkit.runner.commands import ALLOCATOR, FAULTHANDLER, SAFE_PATH, ChildProcess
    from perfkit.runner.requests import ANSWER
    from perfkit.temporary import with_mark

    plain, allocating = dict(os.environ), {**os.environ, **ALLOCATOR}
    faulthandler = (*SAFE_PATH, *FAULTHANDLER)
    templates = [
        _Template(f"{_AGENT}.child:run_forked", (), SAFE_PATH, allocating),
        _Template(ANSWER, (*_TORCH, "perfkit.profiling.passes.child"), faulthandler, plain),
        _Template(ANSWER, _TORCH, faulthandler, allocating),
    ]

    class Forked(ChildProcess):
        """A fork server under a guard, neither of which is a child of this process."""

        def __init__(self, end: socket.socket) -> None:
            super().__init__()
            self._end = end
            self._lines = end.makefile("rb")
            self._pid: int | None = None
            self._status: int | None = None

        @property
        def pid(self) -> int:
            if self._pid is None:
                self._pid = int(self._lines.readline())
            return self._pid

        def wait(self, limit_s: float | None = None) -> int | None:
            _ = self.pid
            if self._status is None and select.select([self._end], [], [], limit_s)[0]:
                text = self._lines.readline()
                # A guard that was killed has reported nothing.
                self._status = int(text) if text else -signal.SIGKILL
                self._lines.close()
                self._end.close()
            return self._status

        def end(self) -> int:
            if self._status is None:
                with contextlib.suppress(OSError):
                    self._end.shutdown(socket.SHUT_WR)
            status = self.wait(_END_LIMIT_S)
            assert status is not None
            return status

    started = fork_server.start_agent

    def start(entry: str, *arguments: str, **options: Any) -> tuple[Any, Any]:  # noqa: ANN401
        given = options["environment"]
        variables = dict(os.environ if given is None else given)
        kind = (*arguments, tuple(options.get("options", SAFE_PATH)), _fixed(variables))
        template = next((one for one in templates if one.kind == kind), None)
        own = options.get("python", sys.executable) != sys.executable or options.get("under")
        if entry != "preload" or own or template is None:
            return started(entry, *arguments, **options)
        order = {"variables": with_mark(variables), "folder": str(Path.cwd())}
        channel, end = socket.socketpair(), socket.socketpair()
        with channel[1], end[1], options["log"].open("w") as output:
            template.fork(order, [one.fileno() for one in (end[1], channel[1], output)])
        return Forked(end[0]), Channel(channel[0])

    return start


def _serve(descriptor: int, entry: str, modules: Sequence[str]) -> None:
    """Import what each fork server imports first, and fork a guard with one for each order."""
    control = socket.socket(fileno=descriptor)
    imported = False
    while True:
        order, received, _, _ = socket.recv_fds(control, _LARGEST_ORDER, 3)
        if not order:
            return
        if not imported:
            imported = True
            _import(entry, modules)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        if not os.fork():
            control.close()
            _guard(json.loads(order), entry, received)
        for one in received:
            os.close(one)


def _import(entry: str, modules: Sequence[str]) -> None:
    folder = str(Path(__file__).parents[1] / "perfkit/agent")
    spec = importlib.util.spec_from_file_location(
        _AGENT, f"{folder}/__init__.py", submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[_AGENT] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    gc.disable()
    server = importlib.import_module(f"{_AGENT}.fork_server")
    for name in (f"{_AGENT}.bootstrap", entry.partition(":")[0], *modules):
        importlib.import_module(name)
    for name in server._modules_of_sessions():
        importlib.import_module(name)
    gc.enable()
    gc.freeze()


def _guard(order: Mapping[str, Any], entry: str, received: Sequence[int]) -> NoReturn:
    """Be the guard of a fork server that is forked here."""
    end, channel, output = received
    processes = sys.modules[f"{_AGENT}.processes"]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    os.environ.clear()
    os.environ.update(order["variables"])
    os.chdir(order["folder"])

    def start(_: Sequence[str]) -> int:
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            os.setsid()
            processes.die_with(parent)
            os.close(end)
            _become(entry, channel)
        return pid

    def report(status: int) -> NoReturn:
        with contextlib.suppress(OSError):
            os.write(end, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)

    processes._start, processes._end_like = start, report  # type: ignore[attr-defined]
    try:
        processes.guard(end, ())
    finally:
        os._exit(1)


def _become(entry: str, channel: int) -> NoReturn:
    """Be the fork server, and each process that it forks."""
    status = 1
    try:
        time.tzset()
        sys.argv = ["-c", "preload", str(channel), entry]
        # Python has no file where it runs a command's text.
        sys.modules["__main__"].__dict__.pop("__file__", None)
        for name in ("provenance", "child"):
            if loaded := sys.modules.get(f"{_AGENT}.{name}"):
                loaded.STARTED = time.time()  # type: ignore[attr-defined]
        sys.modules[f"{_AGENT}.bootstrap"].preload(str(channel), entry)
        status = 0
    except BaseException:  # noqa: BLE001 (the process ends here; its log has the traceback)
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
