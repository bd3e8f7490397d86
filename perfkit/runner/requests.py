"""Typed requests to functions in processes of their own, answered by messages of one type.

Such a function takes ``(request: Request, parent: Parent)``; requests and messages travel as JSON.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import socket
import sys
import time
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Self, TypeVar

import msgspec

from perfkit.agent.channel import (
    Channel,
    ChannelClosedError,
    ChannelTimeoutError,
    Message,
    load_entry,
    open_channel,
)
from perfkit.errors import NotMeasuredError
from perfkit.runner.commands import (
    SAFE_PATH,
    ChildProcess,
    Ending,
    GuardedCommand,
    agent_command,
    ended_in_words,
    last_line,
    python_command,
    tail_of,
)
from perfkit.temporary import temporary_folder

_IMPORT_LIMIT_S = 120.0
_FORK_LIMIT_S = 20.0
_END_LIMIT_S = 2.0


class ForkServerLostError(NotMeasuredError):
    """A fork server has ended, or no longer answers."""


def start_agent(
    entry: str,
    *arguments: str,
    log: Path,
    environment: Mapping[str, str] | None,
    options: Sequence[str] = SAFE_PATH,
    python: str = sys.executable,
    under: Sequence[str] = (),
) -> tuple[GuardedCommand, Channel]:
    """Start a process at an entry of the agent's ``bootstrap``, and return it with the channel to it."""
    ours, theirs = socket.socketpair()
    with theirs, log.open("w") as output:
        descriptor = theirs.fileno()
        command = agent_command(entry, str(descriptor), *arguments, options=options, python=python)
        process = GuardedCommand(
            [*under, *command], output=output.fileno(), environment=environment, inherit=[descriptor]
        )
    return process, Channel(ours)


class ForkServer:
    """A process that forks children, at the other end of a channel; it writes to the file ``log``."""

    def __init__(self, process: ChildProcess, channel: Channel, log: Path) -> None:
        self.faults_of_reuse: int | None = None
        self._process, self._channel, self._log = process, channel, log
        self._preloading = False

    @classmethod
    def started(
        cls,
        entry: str,
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        options: Sequence[str] = SAFE_PATH,
        python: str = sys.executable,
    ) -> Self:
        """Start a fork server whose children each call ``entry``, "module:function"."""
        process, channel = start_agent(
            "preload", entry, log=log, environment=environment, options=options, python=python
        )
        return cls(process, channel, log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it with all its children."""
        self._channel.close()
        self._process.end()

    @property
    def pid(self) -> int:
        """The number of the server's process."""
        return self._process.pid

    def begin_preload(self, modules: Sequence[str], rewritten: Sequence[str] = ()) -> None:
        """Order it to import modules, without waiting; those that cannot be imported are skipped."""
        self.finish_preload()
        with self._named_if_lost("import what is shared"):
            self._channel.send({"kind": "preload", "modules": list(modules), "rewritten": list(rewritten)})
        self._preloading = True

    def finish_preload(self) -> None:
        """Wait until the modules ordered last are imported."""
        if self._preloading:
            self._preloading = False
            with self._named_if_lost("import what is shared"):
                self._receive(_IMPORT_LIMIT_S)

    def loaded_own(self, roots: Sequence[Path], origins: Sequence[Path]) -> tuple[str, ...]:
        """Return the top-level names of the roots' own modules that it has loaded, from wherever."""
        order = {"kind": "own_names", "roots": [*map(str, roots)], "origins": [*map(str, origins)]}
        with self._named_if_lost("name what it has imported"):
            return tuple(self._ask(order, _FORK_LIMIT_S)["names"])

    def why_no_fork(self, limit_s: float = _FORK_LIMIT_S) -> str | None:
        """Fork a child that computes in parallel, and return why that failed, None where it worked."""
        with self._named_if_lost("try a fork"):
            answer = self._ask({"kind": "try_fork", "limit_s": limit_s}, 2 * _FORK_LIMIT_S)
        self.faults_of_reuse = answer["faults"]
        reason: str | None = answer["reason"]
        return reason

    def start(
        self, *arguments: object, log: Path, folder: str, descriptors: Sequence[int] = ()
    ) -> ForkedProcess:
        """Fork a child that calls the entry with ``arguments`` and its copies of ``descriptors``."""
        self.finish_preload()
        order = {"kind": "fork", "arguments": arguments, "log": str(log.absolute()), "folder": folder}
        with self._named_if_lost("fork a child"):
            self._channel.send_descriptors(order, descriptors)
            pid = self._receive(_FORK_LIMIT_S)["pid"]
        return ForkedProcess(pid, self)

    def reap(self, pid: int) -> int:
        """Return the exit status of a child that has ended, and end the processes that it left behind."""
        with self._named_if_lost("report how a child ended"):
            return int(self._ask({"kind": "reap", "pid": pid}, _FORK_LIMIT_S)["status"])

    def _ask(self, order: Message, limit_s: float) -> Message:
        self.finish_preload()
        self._channel.send(order)
        return self._receive(limit_s)

    def _receive(self, limit_s: float) -> Message:
        message = self._channel.receive(limit_s)
        if message["kind"] == "done":
            raise ChannelClosedError
        return message

    @contextlib.contextmanager
    def _named_if_lost(self, task: str) -> Iterator[None]:
        try:
            yield
        except (ChannelClosedError, ChannelTimeoutError) as error:
            raise ForkServerLostError(
                f"the process that children are forked from failed to {task}: {self._how_lost(error)};"
                " see what else takes memory or ends processes here, then run the command again"
            ) from error

    def _how_lost(self, error: Exception) -> str:
        if isinstance(error, ChannelTimeoutError):
            how = "it gave no answer in time"
        else:
            # It may still print why it ends; ending it now would hide that behind SIGKILL.
            status = self._process.wait(_END_LIMIT_S)
            how = f"it {ended_in_words(self._process.end() if status is None else status)}"
        return "; ".join(filter(None, (how, last_line(self._log))))


class ForkedProcess(ChildProcess):
    """A child of a fork server, which alone can collect its exit status."""

    def __init__(self, pid: int, server: ForkServer) -> None:
        super().__init__()
        self._pid = pid
        self._server = server
        self._status: int | None = None

    @property
    def pid(self) -> int:
        """The number of the process, and of its group."""
        return self._pid

    def wait(self, limit_s: float | None = None) -> int | None:
        """Wait for ``limit_s`` seconds at most, and return its exit status, None if it still runs."""
        if self._status is None and self._is_over(limit_s):
            try:
                self._status = self._server.reap(self._pid)
            except ForkServerLostError:
                self._status = -signal.SIGKILL
        return self._status

    def end(self) -> int:
        """End it with its whole tree, if it has not ended, and return its exit status."""
        if self._status is None:
            self.kill()
            self._status = self._server.reap(self._pid)
        return self._status

    def _is_over(self, limit_s: float | None) -> bool:
        # No other process can have its number until the server has collected its status.
        try:
            descriptor = os.pidfd_open(self._pid)
        except ProcessLookupError:
            return True
        try:
            readable, _, _ = select.select([descriptor], [], [], limit_s)
        finally:
            os.close(descriptor)
        return bool(readable)


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
