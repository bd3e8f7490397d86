"""Where children come from: forked from a preloader, or fresh processes where fork cannot be had."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from perfkit import agent
from perfkit.agent.channel import Channel, ChannelClosedError, ChannelTimeoutError, Message
from perfkit.errors import NotMeasuredError
from perfkit.measure.lockstep import processes
from perfkit.records import Side

# What every session needs, and what training code shares.
HARNESS = ("pytest", "pytest_benchmark.plugin", "pytest_benchmark.session")
LIBRARIES = ("torch", "numpy")
_AGENT = "_perfkit_agent"
_BOOTSTRAP = f"""
import importlib.util, sys
folder, entry, *arguments = sys.argv[1:]
spec = importlib.util.spec_from_file_location(
    {_AGENT!r}, folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules[{_AGENT!r}] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from {_AGENT} import bootstrap
getattr(bootstrap, entry)(int(arguments[0]), *arguments[1:])
"""
_IMPORT_LIMIT_S = 120.0
_FORK_LIMIT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What a child is to do: pytest over ``paths`` in ``root``; ``nodes`` None lists the benchmarks.

    ``origins`` are the user's own trees, which no module may come from; ``temporary`` a folder to be made
    for temporary files; ``log`` the file its output goes to. ``plants`` are slowdowns on purpose, as shares.
    With ``training``, a function or script, no benchmark is run: so many ``steps`` of it are counted.
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
    """One measured process and its end of the conversation."""

    def __init__(self, side: Side, pid: int, channel: Channel, log: Path, source: Source) -> None:
        self.side, self.pid, self.channel, self.log = side, pid, channel, log
        self._source = source
        self._strays: tuple[int, ...] = ()

    def stop(self) -> None:
        """Stop the whole process tree."""
        processes.stop(self.pid, self._strays)

    def resume(self) -> None:
        """Let the whole process tree go on."""
        processes.resume(self.pid, self._strays)

    def look(self) -> tuple[processes.Process, ...]:
        """Return the tree; processes that left the child's group are stopped with it from now on."""
        found = processes.tree(self.pid)
        self._strays = tuple(process.pid for process in found if process.group != self.pid)
        return found

    def end(self) -> int:
        """End the child if it has not ended, and return its exit status (below zero: the signal)."""
        processes.kill(self.pid, self._strays)
        self.channel.close()
        return self._source.reap(self.pid)

    def last_words(self) -> str:
        """Return the last line of its output."""
        return _last_line(self.log)


class Source(Protocol):
    """Makes children and learns how they ended."""

    number: int

    def start(self, side: Side, assignment: Assignment) -> Child:
        """Start a child."""

    def reap(self, pid: int) -> int:
        """Return the exit status of a child that has ended."""


class Preloader:
    """A process that forks children; ``number`` counts the preloaders of a run."""

    def __init__(self, *, number: int, environment: Mapping[str, str], folder: Path) -> None:
        self.number = number
        self.faults_of_reuse: int | None = None
        self._children: set[int] = set()
        ours, theirs = socket.socketpair()
        self._log = folder / f"preloader-{number}.log"
        with theirs, self._log.open("w") as log:
            self._process = _start_agent("preload", theirs, environment=environment, log=log.fileno())
        self._channel = Channel(ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self._channel.close()
        processes.kill(self._process.pid)
        self._process.wait()

    def begin_preload(self, modules: Sequence[str]) -> None:
        """Let it import modules; those that cannot be imported are passed over."""
        self._send({"kind": "preload", "modules": list(modules)})

    def finish_preload(self) -> None:
        """Wait until it has.

        Raises:
            NotMeasuredError: the preloader did not survive them.
        """
        self._receive("preload", _IMPORT_LIMIT_S)

    def why_no_fork(self) -> str | None:
        """Let a throwaway child compute; return why forked children cannot, None where they can."""
        answer = self._ask({"kind": "try_fork", "limit_s": _FORK_LIMIT_S}, 2 * _FORK_LIMIT_S)
        self.faults_of_reuse = answer["faults"]
        reason: str | None = answer["reason"]
        return reason

    def start(self, side: Side, assignment: Assignment) -> Child:
        """Fork a child."""
        ours, theirs = socket.socketpair()
        with theirs:
            order = {"kind": "fork", "assignment": asdict(assignment)}
            self._channel.send_descriptor(order, theirs.fileno())
            answer = self._channel.receive(_FORK_LIMIT_S)
        self._children.add(answer["pid"])
        return Child(side, answer["pid"], Channel(ours), Path(assignment.log), self)

    def reap(self, pid: int) -> int:
        """Return the exit status of a forked child that has ended; what it left behind is ended too."""
        status = int(self._ask({"kind": "reap", "pid": pid}, _FORK_LIMIT_S)["status"])
        self._children.discard(pid)
        self._end_orphans()
        return status

    def _end_orphans(self) -> None:
        """End processes that lost their child: the kernel made them the preloader's own."""
        for pid in processes.children(self._process.pid):
            if pid not in self._children:
                processes.kill(pid)

    def _ask(self, order: Message, limit_s: float) -> Message:
        self._send(order)
        return self._receive(order["kind"], limit_s)

    def _send(self, order: Message) -> None:
        try:
            self._channel.send(order)
        except ChannelClosedError as error:
            raise self._lost(order["kind"]) from error

    def _receive(self, what: str, limit_s: float) -> Message:
        try:
            return self._channel.receive(limit_s)
        except (ChannelClosedError, ChannelTimeoutError) as error:
            raise self._lost(what) from error

    def _lost(self, what: str) -> NotMeasuredError:
        cause = _last_line(self._log) or "it said nothing in time"
        return NotMeasuredError(f"the preloader failed to {what}: {cause}")


class FreshProcesses:
    """Starts each child as a process of its own, by the command ``under`` where there is one."""

    def __init__(self, *, number: int, environment: Mapping[str, str], under: Sequence[str] = ()) -> None:
        self.number = number
        self._environment, self._under = environment, under
        self._started: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, side: Side, assignment: Assignment) -> Child:
        """Start a fresh process."""
        ours, theirs = socket.socketpair()
        with theirs, Path(assignment.log).open("w") as log:
            text = json.dumps(asdict(assignment))
            process = _start_agent(
                "run_fresh",
                theirs,
                text,
                environment=self._environment,
                log=log.fileno(),
                under=self._under,
            )
        self._started[process.pid] = process
        return Child(side, process.pid, Channel(ours), Path(assignment.log), self)

    def reap(self, pid: int) -> int:
        """Return the exit status of a process that has ended."""
        return self._started.pop(pid).wait()


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip() if lines else ""


def _start_agent(
    entry: str,
    end: socket.socket,
    *arguments: str,
    environment: Mapping[str, str],
    log: int,
    under: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    folder = str(Path(agent.__path__[0]))
    return subprocess.Popen(
        [*under, sys.executable, "-P", "-c", _BOOTSTRAP, folder, entry, str(end.fileno()), *arguments],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=[end.fileno()],
        start_new_session=True,
    )
