"""A function in a new process gets one request and gives one answer, of which errors are a field."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from perfkit.runner.fork_server import run_child

WORK = """
import os, time

def work(request, channel):
    if request["how"] == "raise":
        raise ValueError("no")
    if request["how"] == "die":
        print("the end", flush=True)
        os._exit(3)
    if request["how"] == "hang":
        time.sleep(60)
    channel.send({"kind": "progress", "done": 1})
    return {"sum": sum(request["values"]), "folder": os.getcwd()}
"""


def ask(
    folder: Path, how: str, *, limit_s: float | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the answer of a child, and the messages before it."""
    (folder / "asked.py").write_text(WORK)
    messages: list[dict[str, Any]] = []
    answer = run_child(
        "asked:work",
        {"how": how, "values": list(range(100_000))},
        messages.append,
        log=folder / "log",
        folder=folder,
        limit_s=limit_s,
        environment={**os.environ, "PYTHONPATH": str(folder)},
    )
    return answer, messages


def test_an_answer_comes_after_the_messages(tmp_path: Path) -> None:
    """The request may be larger than a socket takes at once."""
    answer, messages = ask(tmp_path, "answer")

    assert {"sum": sum(range(100_000)), "folder": str(tmp_path)} == answer
    assert [{"kind": "progress", "done": 1}] == messages


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("raise", "ValueError: no"),
        ("die", "its process ended with exit status 3; the end"),
        ("hang", "it sent nothing for 2 s"),
    ],
)
def test_what_fails_is_a_field_of_the_answer(tmp_path: Path, how: str, error: str) -> None:
    """A call that raises, a process that dies and one that hangs."""
    answer, _ = ask(tmp_path, how, limit_s=2.0 if how == "hang" else 60.0)

    assert {"error": error} == answer
