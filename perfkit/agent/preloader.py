"""A preloader: a process that has imported what both sides share, and forks launches.

It imports only. A parallel operation before the fork would leave forked children waiting for threads that
only their parent has.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import socket
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from _pytest.config import default_plugins

from .channel import Channel, ChannelClosedError, Message
from .child import run_child
from .process import adopt_orphans, die_with_parent, faults_of_reuse

_HUNG, _RAISED = 3, 4
# What every session of pytest loads.
_DEFAULT_PLUGINS = tuple(f"_pytest.{name}" for name in default_plugins)


def serve(descriptor: int) -> None:
    """Obey the coordinator at the other end of a socket until it leaves."""
    die_with_parent()
    adopt_orphans()
    channel = Channel(socket.socket(fileno=descriptor))
    with contextlib.suppress(ChannelClosedError):
        while True:
            order, received = channel.receive_descriptor()
            channel.send(_obey(order, received, channel))


def _obey(order: Message, received: int | None, channel: Channel) -> Message:
    if order["kind"] == "preload":
        return {"kind": "preloaded", "failed": _preload(order["modules"])}
    if order["kind"] == "try_fork":
        return {"kind": "tried", "reason": _try_fork(order["limit_s"]), "faults": faults_of_reuse()}
    if order["kind"] == "fork":
        assert received is not None  # noqa: S101 (the coordinator's own protocol)
        return {"kind": "forked", "pid": _fork(order, received, channel)}
    _, status = os.waitpid(order["pid"], 0)
    return {"kind": "reaped", "status": os.waitstatus_to_exitcode(status)}


def _preload(modules: Sequence[str]) -> list[str]:
    """Import modules, freeze what they left, and return those that could not be imported."""
    failed = []
    # Nearly all that an import makes stays: looking for garbage takes a sixth of its time meanwhile, and a
    # tenth afterwards.
    gc.disable()
    for name in [*modules, *_DEFAULT_PLUGINS]:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001 (whatever a module raises, it is then not preloaded)
            failed.append(name)
    gc.enable()
    # Frozen objects are not visited by a collection: their pages stay shared with the children.
    gc.freeze()
    return failed


def _fork(order: Message, descriptor: int, channel: Channel) -> int:
    """Return the number of a forked child; in the child this never returns."""
    pid = os.fork()
    if pid == 0:
        channel.close()
        die_with_parent()
        run_child(order["assignment"], descriptor)
    os.close(descriptor)
    return pid


def _try_fork(limit_s: float) -> str | None:
    """Prove that a forked child can compute in parallel and go backward; return why it cannot."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is initialised in the preloader"
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _try_and_exit(writing, limit_s)
    os.close(writing)
    said = os.read(reading, 1000).decode()
    os.close(reading)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return (
        None if status == 0 and said == "ok" else f"a forked child could not compute (exit {status}) {said}"
    )


def _try_and_exit(descriptor: int, limit_s: float) -> NoReturn:
    """Say what became of working in parallel; a deadlock ends after ``limit_s`` seconds."""
    threading.Timer(limit_s, os._exit, args=[_HUNG]).start()
    try:
        os.write(descriptor, _work_in_parallel().encode())
        os._exit(0)
    finally:
        os._exit(_RAISED)


def _work_in_parallel() -> str:
    torch = sys.modules.get("torch")
    if torch is None:
        return "ok"
    values = torch.randn(400, 400, requires_grad=True)
    (values @ values).sum().backward()
    return "ok" if values.grad is not None else "no gradient"
