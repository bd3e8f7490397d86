"""Traces what each benchmark runs on each side, in forks of what imported that, and without timing."""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfkit.agent.channel import ChannelClosedError, ChannelTimeoutError
from perfkit.errors import NotMeasuredError
from perfkit.model import SIDES, Side
from perfkit.runner.lockstep.children import Child, Tracing
from perfkit.runner.lockstep.launcher import Launcher

# Larger suites than this are traced on head alone, up to this many benchmarks of one function in a process.
_MANY, _MOST_TOGETHER = 100, 16
# On a loaded machine a process takes a while to report what it has traced.
_REPORT_S = 10.0
_PARTS = ("import", "before", "setup", "first", "later")
# A code object: its file, relative to the top ("" for generated code), its qualified name, and the hash of
# what it does itself ("" for the body of a module or class).
Code = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a process ran, what it ``opened`` in the checkout, and why more may have run unseen.

    A process of benchmarks has the parts "setup", "first" (the first call) and "later", and "before" for what
    ran earlier in it; one that imports has "import". ``generated`` are the words in generated code by its
    hash, ``looks`` those by which a library that it called may look at more than it mentions. ``inspected``
    are the files and names of functions of which somebody read the code, ``modules`` what was imported and
    belongs to no standard library, in order.
    """

    parts: Mapping[str, frozenset[Code]] = field(default_factory=dict)
    generated: Mapping[str, frozenset[str]] = field(default_factory=dict)
    looks: frozenset[str] = frozenset()
    inspected: frozenset[tuple[str, str]] = frozenset()
    opened: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()

    @property
    def codes(self) -> frozenset[Code]:
        """All that it ran."""
        return frozenset[Code]().union(*self.parts.values())


@dataclass(frozen=True, kw_only=True)
class SideTrace:
    """What each benchmark of a side ran, and what was imported before the first one.

    They passed, or ``skipped`` themselves for a reason. ``early`` are own files that were loaded before the
    trace began. What ran is ``inferred`` for base where head alone was traced.
    """

    ran: Mapping[str, Ran]
    skipped: Mapping[str, str] = field(default_factory=dict)
    imported: Ran = field(default_factory=Ran)
    early: frozenset[str] = frozenset()
    inferred: bool = False


class NotTracedError(Exception):
    """A side could not be traced, for the reason in the message."""


def trace_sides(
    launcher: Launcher,
    nodes: Sequence[str],
    tops: Mapping[Side, Path],
    *,
    seconds: float,
    limit_s: float,
    again: bool = False,
) -> Mapping[Side, SideTrace]:
    """Run the benchmarks of both sides, each in a process of its own, and return what they ran.

    Many benchmarks are run on head alone, in two processes at once, and base only imports: as long as all
    that runs is the same there, base runs it as well. Then several of one function share a process,
    unless they are run ``again``.
    One that takes longer than ``limit_s`` is ended, and those that begin after ``seconds`` are left out.

    Raises:
        NotTracedError: it did not work in ``seconds``, or a side ran other code than its own.
    """
    until = time.monotonic() + seconds
    many = again or len(nodes) > _MANY
    parts: list[tuple[Side, Sequence[str]]] = [(side, nodes) for side in SIDES]
    if many:
        parts = [("base", ()), *(("head", half) for half in _halves(nodes))]
    together = _MOST_TOGETHER if many and not again else 1
    name = "traced-again" if again else "trace"
    files = [launcher.folder / f"{name}-{number}.jsonl" for number in range(len(parts))]
    try:
        with launcher.tracing(nodes, tops) as start, ExitStack() as stack:
            left_s = until - time.monotonic()
            children = []
            for (side, part), file in zip(parts, files, strict=True):
                tracing = Tracing(file=str(file), seconds=left_s, limit_s=limit_s, together=together)
                children.append(start(side, part, tracing))
                stack.callback(children[-1].end)
            # The last benchmark may have begun at the end of the time.
            finished = [_await(child, until + limit_s + _REPORT_S) for child in children]
    except NotMeasuredError as error:
        raise NotTracedError(str(error)) from error
    base, head, *rest = (_read(file, one) for file, one in zip(files, finished, strict=True))
    for other in rest:
        skipped = {**head.skipped, **other.skipped}
        head = dataclasses.replace(head, ran={**head.ran, **other.ran}, skipped=skipped)
    if many:
        base = dataclasses.replace(base, ran=head.ran, skipped=head.skipped, inferred=True)
    return {"base": base, "head": head}


def _halves(nodes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Split benchmarks into two parts that take about as long, those that may share a process together.

    One process of each file has its turn, so that a file of long ones leaves time for the others.
    """
    groups: list[tuple[str, ...]] = []
    for _, variants in itertools.groupby(nodes, key=lambda node: node.partition("[")[0]):
        left = tuple(variants)
        groups += [left[at : at + _MOST_TOGETHER] for at in range(0, len(left), _MOST_TOGETHER)]
    for half in (groups[0::2], groups[1::2]):
        files: dict[str, list[tuple[str, ...]]] = {}
        for group in half:
            files.setdefault(group[0].partition("::")[0], []).append(group)
        turns = itertools.zip_longest(*files.values(), fillvalue=())
        yield tuple(node for turn in turns for group in turn for node in group)


def _await(child: Child, until: float) -> Mapping[str, str | None]:
    """Wait for the end of a child; return the benchmarks that passed, and why others skipped themselves."""
    finished: dict[str, str | None] = {}
    child.resume()
    try:
        while (message := child.receive(max(until - time.monotonic(), 0.0)))["kind"] != "done":
            if message["kind"] == "finished" and message["status"] in ("ok", "skipped"):
                finished[message["node"]] = message["message"] if message["status"] == "skipped" else None
    except ChannelTimeoutError as error:
        raise NotTracedError(f"{child.side} was not traced in time") from error
    except ChannelClosedError as error:
        raise NotTracedError(f"the process that traced {child.side} ended; {child.last_words()}") from error
    if message["foreign"]:
        raise NotTracedError(f"{child.side} imported code from elsewhere")
    return finished


def _read(file: Path, finished: Mapping[str, str | None]) -> SideTrace:
    try:
        lines = [json.loads(line) for line in file.read_bytes().splitlines()]
        last = lines.pop()
        return SideTrace(
            ran={line["node"]: _ran(line) for line in lines if line["node"] in finished},
            skipped={node: why for node, why in finished.items() if why is not None},
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
        inspected=frozenset(map(tuple, line["inspected"])),
        opened=frozenset(line["opened"]),
        unknown=tuple(line["unknown"]),
        modules=tuple(line["modules"]),
    )
