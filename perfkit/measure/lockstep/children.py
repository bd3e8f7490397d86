"""Measured children: forked from a preloader, or fresh processes where fork cannot be had."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from perfkit.agent import COLLECTING
from perfkit.agent.channel import Channel
from perfkit.agent.tree import Process
from perfkit.processes.commands import AGENT, ChildProcess, GuardedCommand, agent_command, last_line
from perfkit.processes.fork_server import ForkServer, ForkServerLostError
from perfkit.records import Side

# What every session needs.
HARNESS = ("pytest",)
_TRIAL_LIMIT_S = 5.0
_FAREWELL_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What a child is to do: pytest over ``paths`` in ``root``; ``nodes`` None lists the benchmarks.

    ``origins`` are the user's own trees, from which no module may come; ``temporary`` is a folder to be made
    for temporary files; ``log`` is the file for its output. ``plants`` are slowdowns on purpose, as shares.
    ``layout`` is the seed from which its memory's layout is drawn. One that ``serves`` lists the benchmarks,
    then forks a child for each launch. A listing says which benchmarks may run one of the ``changed``
    functions, given by file relative to ``root`` (None for all of a file). With ``training``, a function or
    script, no benchmark is run: ``steps`` of its steps are counted.
    """

    root: str
    origins: tuple[str, ...]
    paths: tuple[str, ...]
    nodes: tuple[str, ...] | None
    select: str | None
    temporary: str
    log: str
    plants: Mapping[str, float]
    changed: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    layout: int = 0
    serves: bool = False
    training: str | None = None
    steps: int = 0


class Child:
    """One measured process, and the channel to it."""

    def __init__(self, side: Side, process: ChildProcess, channel: Channel, log: Path) -> None:
        self.side, self.channel, self.log = side, channel, log
        self._process = process

    @property
    def pid(self) -> int:
        """The number of its process, and of its group."""
        return self._process.pid

    def stop(self) -> None:
        """Stop the whole process tree."""
        self._process.stop()

    def resume(self) -> None:
        """Let the whole process tree go on."""
        self._process.resume()

    def look(self) -> tuple[Process, ...]:
        """Return the tree; processes that left the child's group are stopped with it from now on."""
        return self._process.look()

    def end(self) -> int:
        """End the child if it has not ended, and return its exit status (below zero: the signal).

        Raises:
            ForkServerLostError: its preloader was lost, which ends the child too.
        """
        try:
            return self._process.end()
        finally:
            self.channel.close()

    def leave(self, limit_s: float) -> None:
        """Give no more orders, and end it where it has not ended itself in time.

        Raises:
            ForkServerLostError: its preloader was lost, which ends the child too.
        """
        self.channel.close()
        self._process.wait(limit_s)
        self._process.end()

    def as_server(self) -> ForkServer:
        """Return it as what it is once it forks children itself."""
        return ForkServer(self._process, self.channel, self.log)

    @property
    def collecting(self) -> str:
        """What its session said last that it collects, "" where it has not come so far."""
        try:
            return (self.log.with_suffix("") / COLLECTING).read_text(encoding="utf-8")
        except OSError:
            return ""

    def last_words(self) -> str:
        """Return the last line of its output."""
        return last_line(self.log)


class Source(Protocol):
    """Makes children."""

    def start(self, side: Side, assignment: Assignment) -> Child:
        """Start a child."""


class Preloader:
    """A process that forks children; ``number`` numbers the preloaders of a run by their logs."""

    def __init__(self, *, number: int, environment: Mapping[str, str], folder: Path) -> None:
        self.server = ForkServer.started(
            f"{AGENT}.child:run_child", log=folder / f"preloader-{number}.log", environment=environment
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self.server.close()

    def start(self, side: Side, assignment: Assignment) -> Child:
        """Fork a child.

        Raises:
            ForkServerLostError: the preloader has died meanwhile.
        """
        return _forked(self.server, side, assignment)


class SideServer:
    """A side's child that has imported and collected its benchmarks, and forks a child for each launch."""

    def __init__(self, child: Child) -> None:
        self._side, self._child = child.side, child
        self._server = child.as_server()

    def why_no_fork(self) -> str | None:
        """Return why its forks could not compute, None where they can.

        Raises:
            ForkServerLostError: it did not survive the trial.
        """
        return self._server.why_no_fork(_TRIAL_LIMIT_S)

    def start(self, assignment: Assignment) -> Child:
        """Fork a child that runs the benchmarks assigned.

        Raises:
            ForkServerLostError: it has died meanwhile.
        """
        return _forked(self._server, self._side, assignment)

    def end(self) -> None:
        """Let its session end, and end it."""
        with contextlib.suppress(ForkServerLostError):
            self._child.leave(_FAREWELL_S)


def _forked(server: ForkServer, side: Side, assignment: Assignment) -> Child:
    log = Path(assignment.log)
    ours, theirs = socket.socketpair()
    with theirs:
        process = server.start(
            asdict(assignment), log=log, folder=assignment.root, descriptors=[theirs.fileno()]
        )
    return Child(side, process, Channel(ours), log)


class FreshProcesses:
    """Starts each child as a process of its own, by the command ``under`` where there is one."""

    def __init__(self, *, environment: Mapping[str, str], under: Sequence[str] = ()) -> None:
        self._environment, self._under = environment, under

    def start(self, side: Side, assignment: Assignment) -> Child:
        """Start a fresh process."""
        log = Path(assignment.log)
        ours, theirs = socket.socketpair()
        with theirs, log.open("w") as output:
            descriptor = theirs.fileno()
            text = json.dumps(asdict(assignment))
            command = agent_command("run_fresh", str(descriptor), assignment.log, text)
            process = GuardedCommand(
                [*self._under, *command],
                output=output.fileno(),
                environment=self._environment,
                inherit=[descriptor],
            )
        return Child(side, process, Channel(ours), log)
