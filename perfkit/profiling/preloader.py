"""Forks passes where torch is imported: ``python -m perfkit.profiling.preloader DESCRIPTOR``.

It imports only: a forked pass would wait for ever for the threads that a parallel operation leaves behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from perfkit.agent.process import die_with_parent
from perfkit.profiling.child import main
from perfkit.profiling.meter import import_torch

ORDER_BYTES = 1 << 14
# An order's descriptors: where its exit status goes, its output, its progress, and its turns if it has any.
_MOST_DESCRIPTORS = 4
_STANDARD_INPUT, _STANDARD_OUTPUT, _STANDARD_ERROR = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class _Order:
    """A pass to be made here, now that this process is a fork of the preloader."""

    spec_file: str
    folder: str
    output: int
    progress: int
    turns: int | None


@dataclass(frozen=True, kw_only=True)
class _Forked:
    """A pass under way, and where to write its exit status."""

    pid: int
    status: int


def serve(orders: socket.socket) -> _Order | None:
    """Fork a pass for each order: there, return the order; here, None once nobody can give any more."""
    under_way: dict[int, _Forked] = {}
    while True:
        ready, _, _ = select.select([orders.fileno(), *under_way], [], [])
        for descriptor in under_way.keys() & set(ready):
            _tell_status(under_way.pop(descriptor), descriptor)
        if orders.fileno() not in ready:
            continue
        words, descriptors, _, _ = socket.recv_fds(orders, ORDER_BYTES, _MOST_DESCRIPTORS)
        if not words:
            return None
        status, *of_pass = descriptors
        pid = os.fork()
        if pid == 0:
            _close([orders.detach(), status, *under_way, *(one.status for one in under_way.values())])
            return _order(words, of_pass)
        # Both do it, so that whoever hears of the group can count on it.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        _close(of_pass)
        under_way[os.pidfd_open(pid)] = _Forked(pid=pid, status=status)
        orders.send(str(pid).encode())


def become_pass(order: _Order) -> None:
    """Make this process what a fresh one would be: a group of its own, its own output and folder."""
    die_with_parent()
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _STANDARD_INPUT)
    os.dup2(order.output, _STANDARD_OUTPUT)
    os.dup2(order.output, _STANDARD_ERROR)
    _close([nothing, order.output])
    os.chdir(order.folder)


def _order(words: bytes, descriptors: Sequence[int]) -> _Order:
    said = json.loads(words)
    output, progress, *turns = descriptors
    return _Order(
        spec_file=said["spec_file"],
        folder=said["folder"],
        output=output,
        progress=progress,
        turns=turns[0] if turns else None,
    )


def _tell_status(one: _Forked, pidfd: int) -> None:
    _, status = os.waitpid(one.pid, 0)
    with contextlib.suppress(BrokenPipeError):
        os.write(one.status, str(os.waitstatus_to_exitcode(status)).encode())
    _close([one.status, pidfd])


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


if __name__ == "__main__":
    die_with_parent()
    # What cannot be imported is told by the pass that needs it.
    with contextlib.suppress(Exception):
        import_torch()
    order = serve(socket.socket(fileno=int(sys.argv[1])))
    if order is not None:
        become_pass(order)
        main(order.spec_file, progress=order.progress, turns=order.turns)
