"""Messages between the coordinator and its processes: one JSON object a line, over a socket."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

Message = dict[str, Any]
_CHUNK_BYTES = 1 << 16
_MOST_DESCRIPTORS = 4
# A process that wakes so much too late was stopped itself, as all of a paused container are. The other
# end had no time to answer then.
_STOOD_STILL_S = 0.5


class ChannelClosedError(Exception):
    """The other end of the channel is closed."""


class ChannelTimeoutError(Exception):
    """The other end sent nothing in time."""


class Channel:
    """One end of a socket over which messages are sent."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._received = bytearray()

    def send(self, message: Mapping[str, object]) -> None:
        """Send a message."""
        self.send_line(json.dumps(message).encode())

    def send_line(self, line: bytes) -> None:
        """Send a message that is encoded already."""
        try:
            self._end.sendall(line + b"\n")
        except OSError as error:
            raise ChannelClosedError from error

    def receive(self, timeout_s: float | None = None) -> Message:
        """Wait for the next message, at most ``timeout_s`` seconds, in which this process is not stopped."""
        message: Message = json.loads(self.receive_line(timeout_s))
        return message

    def receive_line(self, timeout_s: float | None = None) -> bytes:
        """Wait for the next message, and return it as it was sent."""
        deadline = _deadline(timeout_s)
        while b"\n" not in self._received:
            self._received += self._read(deadline)
        return self._next()

    def receive_lines(self, timeout_s: float | None = None) -> list[bytes]:
        """Wait until something comes, and return all messages that are complete, as they were sent."""
        self._received += self._read(_deadline(timeout_s))
        *lines, self._received = self._received.split(b"\n")
        return [bytes(line) for line in lines]

    def send_descriptors(self, message: Mapping[str, object], descriptors: Sequence[int]) -> None:
        """Send a message and file descriptors with it, at most four."""
        data = json.dumps(message).encode() + b"\n"
        try:
            # A socket that has a time limit may send only a part.
            sent = socket.send_fds(self._end, [data], descriptors)
            self._end.sendall(data[sent:])
        except OSError as error:
            raise ChannelClosedError from error

    def receive_descriptors(self) -> tuple[Message, list[int]]:
        """Wait for a message and the descriptors that came with it, if any."""
        descriptors: list[int] = []
        while b"\n" not in self._received:
            data, found, _, _ = socket.recv_fds(self._end, _CHUNK_BYTES, _MOST_DESCRIPTORS)
            if not data:
                raise ChannelClosedError
            self._received += data
            descriptors += found
        return json.loads(self._next()), descriptors

    def fileno(self) -> int:
        """Return the descriptor of this end."""
        return self._end.fileno()

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _next(self) -> bytes:
        line, _, self._received = self._received.partition(b"\n")
        return bytes(line)

    def _read(self, deadline: float | None) -> bytes:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise ChannelTimeoutError
        self._end.settimeout(left)
        try:
            data = self._end.recv(_CHUNK_BYTES)
        except TimeoutError as error:
            if deadline is not None and left is not None and time.monotonic() - deadline > _STOOD_STILL_S:
                return self._read(time.monotonic() + left)
            raise ChannelTimeoutError from error
        except OSError as error:
            raise ChannelClosedError from error
        if not data:
            raise ChannelClosedError
        return data


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def open_channel(descriptor: int) -> Channel:
    """Return the channel at an inherited end of a socket."""
    return Channel(socket.socket(fileno=descriptor))


def load_entry(entry: str) -> Callable[..., Any]:
    """Import "module:function" and return the function."""
    module, _, name = entry.partition(":")
    call: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return call


def answer_request(
    channel: Channel, work: Callable[[Message, Channel], Message], request: Message | None = None
) -> NoReturn:
    """Receive a request, send what ``work`` returns as the answer, and end this process."""
    status = 1
    try:
        answer = work(channel.receive() if request is None else request, channel)
        channel.send({"kind": "done", **answer})
        status = 0
    except BaseException as error:  # noqa: BLE001 (a child ends here; its log has the traceback)
        traceback.print_exc()
        with contextlib.suppress(ChannelClosedError):
            channel.send({"kind": "done", "error": f"{type(error).__name__}: {error}"})
    finally:
        end_process(status)


def end_process(status: int) -> NoReturn:
    """End at once: the interpreter's usual exit would wait for threads and workers of the benchmarks."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
