"""Traces what each benchmark runs on each side, in one process a side and without timing."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfkit.agent.channel import ChannelClosedError, ChannelTimeoutError
from perfkit.errors import NotMeasuredError
from perfkit.model import SIDES, Side
from perfkit.runner.lockstep.children import Child, Tracing
from perfkit.runner.lockstep.launcher import Launcher

# A code object: its file, relative to the top, and qualified name; generated code has no file but a hash.
Code = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a benchmark ran, what it ``opened`` in the checkout, and why more may have run unseen."""

    setup: frozenset[Code] = frozenset()
    first: frozenset[Code] = frozenset()
    later: frozenset[Code] = frozenset()
    opened: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()

    @property
    def codes(self) -> frozenset[Code]:
        """All that it ran."""
        return self.setup | self.first | self.later


@dataclass(frozen=True, kw_only=True)
class SideTrace:
    """What each benchmark of a side that passed ran, and what belongs to all of them.

    ``early`` are own files that were loaded before the trace began, ``libraries`` those that were loaded.
    """

    ran: Mapping[str, Ran]
    imported: frozenset[Code] = frozenset()
    opened: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()
    early: frozenset[str] = frozenset()
    libraries: frozenset[str] = frozenset()


class NotTracedError(Exception):
    """A side could not be traced, for the reason in the message; ``finished`` benchmarks were over."""

    def __init__(self, message: str, finished: frozenset[str] | None = None) -> None:
        super().__init__(message)
        self.finished = finished


def trace_sides(
    launcher: Launcher, nodes: Sequence[str], tops: Mapping[Side, Path], *, seconds: float, limit_s: float
) -> Mapping[Side, SideTrace]:
    """Run the benchmarks of both sides at once and return what they ran.

    A benchmark that ends its process, or is silent for ``limit_s`` seconds, is left out of another try.

    Raises:
        NotTracedError: it did not work in ``seconds``, or a side ran other code than its own.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return _traced(launcher, nodes, tops, until, limit_s)
        except NotTracedError as error:
            # They run in this order.
            left = [node for node in nodes if error.finished is not None and node not in error.finished]
            if not left or len(nodes) == 1 or time.monotonic() > until:
                raise
            nodes = [node for node in nodes if node != left[0]]


def _traced(
    launcher: Launcher, nodes: Sequence[str], tops: Mapping[Side, Path], until: float, limit_s: float
) -> Mapping[Side, SideTrace]:
    launcher.draw_layout()
    children: dict[Side, Child] = {}
    files = {side: launcher.folder / f"trace-{side}.jsonl" for side in SIDES}
    seconds = max(until - time.monotonic(), 0.0)
    try:
        for side in SIDES:
            tracing = Tracing(top=str(tops[side]), file=str(files[side]), seconds=seconds)
            children[side] = launcher.start_tracing(side, nodes, tracing)
        # The last benchmark may have begun at the end of the time.
        passed = {side: _await(child, until + limit_s, limit_s) for side, child in children.items()}
    except NotMeasuredError as error:
        raise NotTracedError(str(error)) from error
    finally:
        for child in children.values():
            child.end()
    return {side: _read(files[side], passed[side]) for side in SIDES}


def _await(child: Child, until: float, limit_s: float) -> frozenset[str]:
    """Wait for the end of a child, and return the benchmarks that passed."""
    finished: dict[str, bool] = {}
    child.resume()
    try:
        while True:
            left_s = max(until - time.monotonic(), 0.0)
            # Before the first benchmark is over, all is imported.
            message = child.receive(min(left_s, limit_s) if finished else left_s)
            if message["kind"] == "done":
                break
            if message["kind"] == "finished":
                finished[message["node"]] = message["status"] == "ok"
    except ChannelTimeoutError as error:
        raise NotTracedError(f"{child.side} was not traced in time", frozenset(finished)) from error
    except ChannelClosedError as error:
        words = f"the process that traced {child.side} ended; {child.last_words()}"
        raise NotTracedError(words, frozenset(finished)) from error
    if message["foreign"]:
        raise NotTracedError(f"{child.side} imported code from elsewhere")
    return frozenset(node for node, ok in finished.items() if ok)


def _read(file: Path, passed: frozenset[str]) -> SideTrace:
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        last = lines.pop()
        codes: list[Code] = [(place, name) for place, name in last["codes"]]
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise NotTracedError("the trace was not written to its end") from error

    def ran(line: Mapping[str, Any]) -> Ran:
        parts = {
            part: frozenset(codes[number] for number in line[part]) for part in ("setup", "first", "later")
        }
        return Ran(**parts, opened=frozenset(line["opened"]), unknown=tuple(line["unknown"]))

    return SideTrace(
        ran={line["node"]: ran(line) for line in lines if line["node"] in passed},
        imported=frozenset(codes[number] for number in last["import"]),
        opened=frozenset(last["opened"]),
        unknown=tuple(last["unknown"]),
        early=frozenset(last["early"]),
        libraries=frozenset(last["libraries"]),
    )
