"""A runner takes no message of another benchmark for its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfkit.agent.channel import Channel, ChannelTimeoutError, Message
from perfkit.runner.lockstep.children import Child
from perfkit.runner.lockstep.launch import SideReport, read_report
from perfkit.runner.lockstep.runner import BenchmarkError, Runner

DONE: Message = {"kind": "done", "foreign": {}, "loaded": ["a.py"]}


class Scripted:
    """A child whose messages a test writes beforehand, and the orders that it got."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        nothing = SimpleNamespace(resume=lambda: None, stop=lambda: None)
        self.child = Child("head", nothing, Channel(ours), Path("log"))  # type: ignore[arg-type]
        self._end = Channel(theirs)

    def sends(self, *messages: Message) -> None:
        """Have it send messages."""
        for message in messages:
            self._end.send(message)

    def runner(self, node: str) -> Runner:
        """Return the runner of a benchmark."""
        return Runner(self.child, node, limit_s=1.0)

    def orders(self) -> list[str]:
        """Return the kinds of the orders that it has got since it was asked last."""
        found = []
        while True:
            try:
                found.append(self._end.receive(0.01)["kind"])
            except ChannelTimeoutError:
                return found

    def close(self) -> None:
        """Close both ends."""
        self.child.channel.close()
        self._end.close()


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    made = Scripted()
    yield made
    made.close()


def ready(node: str) -> Message:
    """Return the message of a benchmark that is ready to be timed."""
    return {"kind": "ready", "node": node, "loops": None, "rounds": None}


def finished(node: str, status: str = "ok", message: str | None = None) -> Message:
    return {"kind": "finished", "node": node, "status": status, "message": message}


def timed(node: str, *values: float) -> Message:
    rounds = {"values": values, "running": values, "typical": (), "untimed_s": 0.0, "faults": 0}
    return {"kind": "timed", "node": node, "device": None, **rounds}


def test_a_benchmark_that_runs_again_is_not_the_next_one(scripted: Scripted) -> None:
    scripted.sends(finished("a", "error", "AssertionError"), ready("a"), finished("a"), ready("b"))
    scripted.sends(timed("b", 2.0), finished("b"))

    with pytest.raises(BenchmarkError, match="AssertionError"):
        scripted.runner("a").arrive()
    second = scripted.runner("b")
    second.arrive()
    assert ["abandon"] == scripted.orders()
    second.run(untimed=1, loops=1, rounds=1)
    second.leave()
    second.await_end()

    assert [2.0] == second.values
    assert ["run", "go_on"] == scripted.orders()


def test_a_benchmark_that_begins_again_before_it_is_over_has_failed(scripted: Scripted) -> None:
    runner = scripted.runner("a")
    scripted.sends(ready("a"), ready("a"), finished("a", "skipped", "ended early"))
    runner.arrive()

    with pytest.raises(BenchmarkError, match="began its benchmark again") as raised:
        runner.run(untimed=1, loops=1, rounds=1)

    assert ("error", False) == (raised.value.status, raised.value.fatal)
    assert ["run", "abandon"] == scripted.orders()


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([ready("b")], "was not collected again: its id may depend on the hash seed, the time or a listing"),
        ([finished("b", "error", "of b")], "was not collected again: its id may depend on the hash seed"),
        ([{"kind": "missing", "nodes": {"a": "ImportError: x"}}], "was not collected again: ImportError: x"),
        ([{"kind": "missing", "nodes": {"a": "", "b": ""}}, DONE], "was not collected again: its id may"),
    ],
)
def test_a_benchmark_that_does_not_come_has_failed_alone(
    scripted: Scripted, messages: list[Message], words: str
) -> None:
    scripted.sends(*messages)
    first = scripted.runner("a")

    with pytest.raises(BenchmarkError, match=words) as raised:
        first.arrive()
    first.abandon()

    assert not raised.value.fatal
    if ready("b") in messages:
        assert ready("b") == scripted.runner("b").arrive()
    if finished("b", "error", "of b") in messages:
        with pytest.raises(BenchmarkError, match="of b"):
            scripted.runner("b").arrive()
    if DONE in messages:
        assert ("a.py",) == (read_report(scripted.child) or SideReport(foreign={})).loaded


@pytest.mark.parametrize(
    ("message", "shown", "fatal"),
    [
        (DONE, "its session ended before it was over", True),
        (ready("b"), "its session went on to another test before it was over", False),
    ],
)
def test_a_benchmark_that_is_left_by_its_session_has_failed(
    scripted: Scripted, message: Message, shown: str, *, fatal: bool
) -> None:
    runner = scripted.runner("a")
    scripted.sends(ready("a"), message)
    runner.arrive()

    with pytest.raises(BenchmarkError, match=shown) as raised:
        runner.run(untimed=1, loops=1, rounds=1)
    assert fatal == raised.value.fatal


def test_a_test_that_passed_after_all_is_over_when_it_is_given_up(scripted: Scripted) -> None:
    runner = scripted.runner("a")
    scripted.sends(ready("a"), timed("a", 1.0), finished("a"), ready("b"))
    runner.arrive()
    runner.run(untimed=1, loops=1, rounds=1)
    runner.leave()

    runner.abandon()

    assert ["run", "go_on"] == scripted.orders()
    assert ready("b") == scripted.runner("b").arrive()
