"""Typed requests to functions in processes of their own, answered by messages of one type.

Such a function takes ``(request: Request, parent: Parent)``; requests and messages travel as JSON.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import socket
import sys
import time
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from perfkit.agent.channel import Channel, ChannelClosedError, ChannelTimeoutError, load_entry, open_channel
from perfkit.runner.commands import ChildProcess, Ending, GuardedCommand, python_command, tail_of
from perfkit.runner.fork_server import ForkServer, ForkServerLostError
from perfkit.temporary import temporary_folder

_M = TypeVar("_M")
# What the children of a fork server call that is started for requests.
ANSWER = "perfkit.runner.requests:answer"


class Child(Generic[_M]):
    """A process that answers a request with messages of the type ``kind``."""

    def __init__(self, process: ChildProcess, channel: Channel, kind: type[_M]) -> None:
        self.process = process
        self._channel, self._kind = channel, kind

    def fileno(self) -> int:
        """Return the descriptor of its messages, so that several children can be waited for at once."""
        return self._channel.fileno()

    def send(self, message: object) -> None:
        """Send it a request or an order; a child that has ended gets none."""
        with contextlib.suppress(ChannelClosedError):
            self._channel.send_line(msgspec.json.encode(message))

    def receive(self, limit_s: float | None = None) -> list[_M]:
        """Wait until it sends something, and return the messages that are complete."""
        return [msgspec.json.decode(line, type=self._kind) for line in self._channel.receive_lines(limit_s)]

    def end(self) -> None:
        """End it with all of its processes; those of a lost fork server are lost with it."""
        self._channel.close()
        with contextlib.suppress(ForkServerLostError):
            self.process.end()


@dataclass(frozen=True, kw_only=True)
class Reply(Generic[_M]):
    """What a child sent, and how it ended."""

    messages: tuple[_M, ...]
    ending: Ending


def start_child(
    entry: str,
    request: object,
    kind: type[_M],
    *,
    log: Path,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    server: ForkServer | None = None,
) -> Child[_M]:
    """Have a new process, forked from a ``server`` if there is one, call ``entry``, "module:function".

    Its current folder is ``folder``, and what it prints goes to the file ``log``.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            descriptor = theirs.fileno()
            process: ChildProcess
            if server is not None:
                place = str(folder or Path.cwd())
                process = server.start(entry, log=log, folder=place, descriptors=[descriptor])
            else:
                with log.open("wb") as output:
                    process = GuardedCommand(
                        python_command(__name__, entry, str(descriptor)),
                        output=output.fileno(),
                        environment=environment,
                        folder=folder,
                        inherit=[descriptor],
                    )
    except BaseException:
        ours.close()
        raise
    child = Child(process, Channel(ours), kind)
    child.send(request)
    return child


def ask(
    entry: str,
    request: object,
    kind: type[_M],
    *,
    limit_s: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    server: ForkServer | None = None,
) -> Reply[_M]:
    """Return what a new process answers within ``limit_s`` seconds; nothing of it outlives the call."""
    deadline = time.monotonic() + limit_s
    messages: list[_M] = []
    with temporary_folder() as place, contextlib.ExitStack() as stack:
        log = place / "output.log"
        child = start_child(
            entry, request, kind, log=log, folder=folder, environment=environment, server=server
        )
        stack.callback(child.end)
        # A child that runs into a limit, or is hostile, may also send what is no message.
        with contextlib.suppress(ChannelClosedError, ChannelTimeoutError, msgspec.DecodeError):
            while True:
                messages += child.receive(deadline - time.monotonic())
        status = child.process.wait(max(0.0, deadline - time.monotonic()))
        child.end()
        return Reply(messages=tuple(messages), ending=Ending(status=status, tail=tail_of(log)))


class Parent:
    """The process that sent a request, as its child sees it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def send(self, message: object) -> None:
        """Send a message; raises ChannelClosedError where the parent has ended."""
        self._channel.send_line(msgspec.json.encode(message))

    def receive(self, kind: type[_M]) -> _M:
        """Wait for an order; raises ChannelClosedError where no more come."""
        return msgspec.json.decode(self._channel.receive_line(), type=kind)


def limit_process(
    *, address_space: int | None = None, data: int | None = None, cpu_s: int | None = None
) -> None:
    """Limit the memory of this process, in bytes, and its CPU time, where the system can; dump no core."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if address_space is not None:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
        if data is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (data, data))
        if cpu_s is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))


def answer(entry: str, descriptor: int) -> None:
    """Receive a request through a socket, and call ``entry`` with it."""
    # Shared objects were frozen before a fork; a target expects a process whose objects can be collected.
    gc.unfreeze()
    os.set_inheritable(descriptor, False)  # noqa: FBT003 (positional only)
    parent = Parent(open_channel(descriptor))
    call = load_entry(entry)
    call(parent.receive(typing.get_type_hints(call)["request"]), parent)


if __name__ == "__main__":
    answer(sys.argv[1], int(sys.argv[2]))
