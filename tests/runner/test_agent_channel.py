"""Messages between the coordinator and its processes arrive whole and in order, or an error explains it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from processes_seen import wait_until

from perfkit.agent.channel import Channel, ChannelClosedError, ChannelTimeoutError
from perfkit.agent.processes import read_process

# More than a socket takes at once.
LARGE = {"nodes": [f"benchmarks/bench_it.py::test_{number}" for number in range(20_000)]}


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = (Channel(end) for end in socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


def test_messages_arrive_in_order_and_one_at_a_time(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    ours.send({"kind": "run", "text": "line\nbreak"})
    ours.send({"kind": "go_on"})

    assert {"kind": "run", "text": "line\nbreak"} == theirs.receive()
    assert {"kind": "go_on"} == theirs.receive(1.0)


def test_a_message_larger_than_the_socket_arrives_whole(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    sender = threading.Thread(target=ours.send, args=[LARGE])
    sender.start()

    assert LARGE == theirs.receive()
    sender.join()


@pytest.mark.parametrize("answered", [False, True])
def test_a_descriptor_comes_with_its_message_however_large(
    ends: tuple[Channel, Channel], *, answered: bool
) -> None:
    """What is written through the received descriptor arrives where the sent one leads.

    That holds as well after an answer was waited for, which leaves a limit on the socket.
    """
    ours, theirs = ends
    if answered:
        theirs.send({"kind": "tried"})
        ours.receive(20.0)
    reading, writing = os.pipe()
    sender = threading.Thread(target=ours.send_descriptors, args=[LARGE, [writing]])
    sender.start()

    message, (received,) = theirs.receive_descriptors()
    sender.join()

    assert LARGE == message
    os.write(received, b"through")
    assert b"through" == os.read(reading, 100)
    for descriptor in (reading, writing, received):
        os.close(descriptor)


def test_silence_ends_in_time_and_the_conversation_goes_on(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends

    with pytest.raises(ChannelTimeoutError):
        theirs.receive(0.01)
    ours.send({"kind": "late"})
    theirs.send({"kind": "answer"})

    assert {"kind": "late"} == theirs.receive()
    assert {"kind": "answer"} == ours.receive()


def test_an_end_that_is_gone_is_reported_at_once(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    theirs.send({"kind": "last words"})
    theirs.close()

    assert {"kind": "last words"} == ours.receive()
    for attempt in (ours.receive, ours.receive_descriptors, lambda: ours.send({"kind": "run"})):
        with pytest.raises(ChannelClosedError):
            attempt()
    with pytest.raises(ChannelClosedError):
        ours.send_descriptors({"kind": "fork"}, [0])


def test_time_for_which_a_process_stood_still_is_no_silence(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    child = os.fork()
    if child == 0:
        answer = None
        with contextlib.suppress(ChannelTimeoutError):
            theirs.send({"kind": "waiting"})
            answer = theirs.receive(1.0)
        os._exit(answer != {"kind": "late"})
    assert {"kind": "waiting"} == ours.receive()
    os.kill(child, signal.SIGSTOP)
    stopped = time.monotonic()
    assert wait_until(lambda: time.monotonic() - stopped > 1.6)
    os.kill(child, signal.SIGCONT)
    assert wait_until(lambda: (found := read_process(child)) is None or found.state in "SZ")
    ours.send({"kind": "late"})

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
