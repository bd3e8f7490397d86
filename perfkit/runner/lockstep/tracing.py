"""Traces what each benchmark runs on each side, in one process a side and without timing."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfkit.agent.channel import ChannelClosedError, ChannelTimeoutError
from perfkit.errors import NotMeasuredError
from perfkit.model import SIDES, Side
from perfkit.runner.lockstep.children import Child, Tracing
from perfkit.runner.lockstep.launcher import Launcher

_PARTS = ("import", "before", "setup", "first", "later")
# A code object: its file, relative to the top ("" for generated code), its qualified name, and the hash of
# what it does itself ("" for the body of a module or class).
Code = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a process ran, what it ``opened`` in the checkout, and why more may have run unseen.

    A process of benchmarks has the parts "setup", "first" (the first call) and "later", and "before" for what
    ran earlier in it; one that imports has "import". ``generated`` are the words in generated code by its
    hash, ``looks`` those by which a library that it called may look at more than it mentions, ``modules``
    what was imported and belongs to no standard library, in order.
    """

    parts: Mapping[str, frozenset[Code]] = field(default_factory=dict)
    generated: Mapping[str, frozenset[str]] = field(default_factory=dict)
    looks: frozenset[str] = frozenset()
    opened: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()

    @property
    def codes(self) -> frozenset[Code]:
        """All that it ran."""
        return frozenset[Code]().union(*self.parts.values())


@dataclass(frozen=True, kw_only=True)
class SideTrace:
    """What each benchmark of a side that passed ran, and what was imported before the first one.

    ``early`` are own files that were loaded before the trace began.
    """

    ran: Mapping[str, Ran]
    imported: Ran = field(default_factory=Ran)
    early: frozenset[str] = frozenset()


class NotTracedError(Exception):
    """A side could not be traced, for the reason in the message."""


def trace_sides(
    launcher: Launcher, nodes: Sequence[str], tops: Mapping[Side, Path], *, seconds: float, limit_s: float
) -> Mapping[Side, SideTrace]:
    """Run the benchmarks of both sides, each in a process of its own, and return what they ran.

    One that takes longer than ``limit_s`` is ended, and those that begin after ``seconds`` are left out.

    Raises:
        NotTracedError: it did not work in ``seconds``, or a side ran other code than its own.
    """
    until = time.monotonic() + seconds
    launcher.draw_layout()
    children: dict[Side, Child] = {}
    files = {side: launcher.folder / f"trace-{side}.jsonl" for side in SIDES}
    try:
        for side in SIDES:
            tracing = Tracing(top=str(tops[side]), file=str(files[side]), seconds=seconds, limit_s=limit_s)
            children[side] = launcher.start_tracing(side, nodes, tracing)
        # The last benchmark may have begun at the end of the time.
        passed = {side: _await(child, until + limit_s) for side, child in children.items()}
    except NotMeasuredError as error:
        raise NotTracedError(str(error)) from error
    finally:
        for child in children.values():
            child.end()
    return {side: _read(files[side], passed[side]) for side in SIDES}


def _await(child: Child, until: float) -> frozenset[str]:
    """Wait for the end of a child, and return the benchmarks that passed."""
    finished: dict[str, bool] = {}
    child.resume()
    try:
        while (message := child.receive(max(until - time.monotonic(), 0.0)))["kind"] != "done":
            if message["kind"] == "finished":
                finished[message["node"]] = message["status"] == "ok"
    except ChannelTimeoutError as error:
        raise NotTracedError(f"{child.side} was not traced in time") from error
    except ChannelClosedError as error:
        raise NotTracedError(f"the process that traced {child.side} ended; {child.last_words()}") from error
    if message["foreign"]:
        raise NotTracedError(f"{child.side} imported code from elsewhere")
    return frozenset(node for node, ok in finished.items() if ok)


def _read(file: Path, passed: frozenset[str]) -> SideTrace:
    try:
        lines = [json.loads(line) for line in file.read_bytes().splitlines()]
        last = lines.pop()
        return SideTrace(
            ran={line["node"]: _ran(line) for line in lines if line["node"] in passed},
            imported=_ran(last),
            early=frozenset(last["early"]),
        )
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise NotTracedError("the trace was not written to its end") from error


def _ran(line: Mapping[str, Any]) -> Ran:
    return Ran(
        parts={part: frozenset(map(tuple, line.get(part, ()))) for part in _PARTS},
        generated={digest: frozenset(words) for digest, words in line["generated"].items()},
        looks=frozenset(line["looks"]),
        opened=frozenset(line["opened"]),
        unknown=tuple(line["unknown"]),
        modules=tuple(line["modules"]),
    )
