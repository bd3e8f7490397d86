"""Measured children: forked from a preloader, or fresh processes where fork cannot be had."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from perfkit.agent.channel import Channel
from perfkit.agent.tree import Process
from perfkit.processes.commands import AGENT, ChildProcess, GuardedCommand, agent_command, last_line
from perfkit.processes.fork_server import ForkServer
from perfkit.records import Side

# What every session needs, and what training code shares.
HARNESS = ("pytest", "pytest_benchmark.plugin", "pytest_benchmark.session")
LIBRARIES = ("torch", "numpy")


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What a child is to do: pytest over ``paths`` in ``root``; ``nodes`` None lists the benchmarks.

    ``origins`` are the user's own trees, from which no module may come; ``temporary`` is a folder to be made
    for temporary files; ``log`` is the file for its output. ``plants`` are slowdowns on purpose, as shares.
    With ``training``, a function or script, no benchmark is run: ``steps`` of its steps are counted.
    """

    root: str
    origins: tuple[str, ...]
    paths: tuple[str, ...]
    nodes: tuple[str, ...] | None
    select: str | None
    temporary: str
    log: str
    plants: Mapping[str, float]
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

    def last_words(self) -> str:
        """Return the last line of its output."""
        return last_line(self.log)


class Source(Protocol):
    """Makes children; ``number`` numbers the sources of a run."""

    number: int

    def start(self, side: Side, assignment: Assignment) -> Child:
        """Start a child."""


class Preloader:
    """A process that forks children; ``number`` numbers the preloaders of a run."""

    def __init__(self, *, number: int, environment: Mapping[str, str], folder: Path) -> None:
        self.number = number
        self.server = ForkServer(
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
        log = Path(assignment.log)
        ours, theirs = socket.socketpair()
        with theirs:
            process = self.server.start(
                asdict(assignment), log=log, folder=assignment.root, descriptors=[theirs.fileno()]
            )
        return Child(side, process, Channel(ours), log)


class FreshProcesses:
    """Starts each child as a process of its own, by the command ``under`` where there is one."""

    def __init__(self, *, number: int, environment: Mapping[str, str], under: Sequence[str] = ()) -> None:
        self.number = number
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
