"""A request is answered by messages of its type, or the reply has one line on why it was not."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import pytest

from perfkit.runner.requests import Parent, ask


@dataclass(frozen=True, kw_only=True)
class Deed:
    """What the child is to do, and how often it answers."""

    name: str
    answers: int = 0


@dataclass(frozen=True, kw_only=True)
class Done:
    """One answer."""

    number: int
    text: str = ""


def do(request: Deed, parent: Parent) -> None:
    """Answer, then do the deed."""
    for number in range(request.answers):
        parent.send(Done(number=number, text="line\nbreak"))
    if request.name == "raise":
        raise ValueError("no such deed")
    if request.name == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if request.name == "wait":
        time.sleep(600)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return an environment in which a child can import this file."""
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))  # noqa: PTH120
    return dict(os.environ)


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("nothing", 0, "ended with exit status 0"),
        ("raise", 1, "ended with exit status 1; ValueError: no such deed"),
        ("die", -9, "was killed by SIGKILL (out of memory?)"),
    ],
)
def test_messages_arrive_whether_or_not_it_fails_next(
    environment: dict[str, str], name: str, status: int, words: str
) -> None:
    """All of them, in order, and the reply has how the child ended."""
    deed = Deed(name=name, answers=3)
    reply = ask(f"{__name__}:do", deed, Done, limit_s=60.0, environment=environment)

    assert [Done(number=number, text="line\nbreak") for number in range(3)] == list(reply.messages)
    assert status == reply.ending.status
    assert words == reply.ending.words


def test_a_child_that_takes_too_long_is_ended(environment: dict[str, str]) -> None:
    """Its messages until then are there."""
    reply = ask(f"{__name__}:do", Deed(name="wait", answers=1), Done, limit_s=2.5, environment=environment)

    assert (1, None) == (len(reply.messages), reply.ending.status)
