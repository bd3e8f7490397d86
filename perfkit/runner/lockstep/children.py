"""Measured children: forked from a fork server or a zygote, or fresh where forking is impossible.

What asks a fork server raises ForkServerLostError where that has ended, or gave no answer in time.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, Self

from perfkit.agent import COLLECTING
from perfkit.agent.channel import Channel, ChannelClosedError, ChannelTimeoutError, Message
from perfkit.agent.processes import Process
from perfkit.config import AsvSuite
from perfkit.model import SIDES, Side
from perfkit.runner.commands import AGENT, ChildProcess, Interpreter, tail_of
from perfkit.runner.requests import ForkServer, ForkServerLostError, start_agent
from perfkit.temporary import remove_folder

# Every session imports this.
HARNESS = ("pytest",)
_TRIAL_LIMIT_S = 5.0
_FAREWELL_S = 1.0
# pytest ends the message on a wrong option with these places.
_PLACES = ("inifile:", "rootdir:")


@dataclass(frozen=True, kw_only=True)
class Tracing:
    """The request to trace what each benchmark runs, and to write that into ``file``.

    Benchmarks that begin after this many ``seconds`` are left out, and one is ended after ``limit_s``. Up to
    ``together`` of one function run in one process.
    """

    file: str
    seconds: float
    limit_s: float
    together: int


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """The request to a child: run ``nodes`` of ``paths`` in ``root`` by pytest, or list all where it is None.

    Attributes:
        origins: the user's own trees, from which no module may come.
        temporary: a folder to be made for temporary files.
        log: the file for its output.
        slowdowns: benchmarks that are made slower on purpose, each with the share.
        caches: the folder in which its side keeps what tools build as it runs.
        began: when the comparison began, in seconds since the epoch. Native libraries that were built outside
            of the checkouts since then are refused.
        oldest: when the oldest side was committed, likewise, for libraries in caches.
        asv: the suite of asv of the project, if it has one.
        layout: the seed from which its memory's layout is drawn.
        serves: it lists the benchmarks, then forks a child for each launch.
        training: a function or script of which the last of ``steps`` steps is counted, and no benchmark run.
        importing: files of benchmarks whose imports of the project are timed, and nothing else is done.
        traces: the checkout around ``root`` where it lists benchmarks to be traced: it records what that
            imports, and what it forks runs ``tracing``.
        tracing: how the benchmarks are traced, None where they are measured.
    """

    root: str
    origins: tuple[str, ...]
    paths: tuple[str, ...]
    nodes: tuple[str, ...] | None
    select: str | None
    temporary: str
    log: str
    slowdowns: Mapping[str, float]
    caches: str
    began: float
    oldest: float
    asv: AsvSuite | None = None
    layout: int = 0
    serves: bool = False
    training: str | None = None
    steps: int = 0
    importing: tuple[str, ...] = ()
    traces: str | None = None
    tracing: Tracing | None = None


class Child:
    """One measured process, and the channel to it; its temporary files go away with it.

    ``missing`` are the benchmarks that it cannot run, as it did not collect them, with the reason, "" where
    that is not known. ``over`` are those of which no message is expected any more.
    """

    def __init__(self, side: Side, process: ChildProcess, channel: Channel, log: Path) -> None:
        self.side, self.channel, self.log = side, channel, log
        self.missing: dict[str, str] = {}
        self.over: set[str] = set()
        self._process = process
        self._kept: list[Message] = []

    @property
    def _temporary(self) -> Path:
        return self.log.with_suffix("")

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

    def kill(self) -> None:
        """End the whole process tree without waiting."""
        self._process.kill()

    def look(self) -> tuple[Process, ...]:
        """Return the tree; processes that left the child's group are stopped with it from now on."""
        return self._process.look()

    def receive(self, limit_s: float) -> Message:
        """Wait for the next message of a benchmark that is not over, of the session, or for a report.

        A benchmark that begins anew although it is over, as some plugin may have it, is made to end at once.

        Raises:
            ChannelClosedError: it has ended.
            ChannelTimeoutError: it sent nothing in time.
        """
        while True:
            message = self._kept.pop() if self._kept else self.channel.receive(limit_s)
            if "error" in message:
                # It ends now, and has its own exit status where nobody ends it before.
                with contextlib.suppress(ChannelTimeoutError):
                    self.channel.receive(_FAREWELL_S)
                raise ChannelClosedError
            if message["kind"] == "missing":
                self.missing.update(message["nodes"])
            if message.get("node") not in self.over:
                return message
            if message["kind"] == "ready":
                self.channel.send({"kind": "abandon", "reason": "it is over in this launch"})

    def keep(self, message: Message) -> None:
        """Keep a message, which is the next one that is received."""
        self._kept.append(message)

    def end(self) -> int:
        """End the child if it has not ended, and return its exit status (negative: a signal)."""
        try:
            return self._process.end()
        finally:
            self.channel.close()
            self._remove_files()

    def leave(self, limit_s: float) -> None:
        """Close its channel, wait for ``limit_s`` seconds at most, and end it if it has not ended."""
        self.channel.close()
        self._process.wait(limit_s)
        self.end()

    def as_server(self) -> ForkServer:
        """Return it as a fork server, which a child that serves is once it has listed its benchmarks."""
        return ForkServer(self._process, self.channel, self.log)

    @property
    def collecting(self) -> str:
        """The file that its session is collecting, "" where it has not begun to collect."""
        try:
            return (self._temporary / COLLECTING).read_text(encoding="utf-8")
        except OSError:
            return ""

    def _remove_files(self) -> None:
        with contextlib.suppress(OSError):
            remove_folder(self._temporary)

    def last_words(self) -> str:
        """Return the last line of its output with what happened."""
        lines = [line.strip() for line in tail_of(self.log, 1 + len(_PLACES))]
        found = next((line for line in reversed(lines) if not line.startswith(_PLACES)), "")
        # So pytest frames what ended a session.
        return found.strip("! ").removeprefix("_pytest.outcomes.")


class Source(Protocol):
    """Makes children."""

    def start(self, side: Side, assignment: Assignment) -> Child:
        """Start a child."""


class ForkServers:
    """A process that has imported what both sides share, and forks children; ``number`` names its log.

    Where sides have interpreters of their own, it is a process for each of these.
    """

    def __init__(
        self,
        *,
        number: int,
        environment: Mapping[str, str],
        folder: Path,
        interpreters: Mapping[Side, Interpreter] = MappingProxyType({}),
    ) -> None:
        own = {side: interpreters.get(side, Interpreter()) for side in SIDES}
        sides = SIDES if own["base"] != own["head"] else SIDES[:1]
        started = {
            side: ForkServer.started(
                f"{AGENT}.child:run_forked",
                log=folder / f"fork-server-{number}{f'-{side}' if len(sides) > 1 else ''}.log",
                environment={**environment, **own[side].variables},
                python=own[side].python,
            )
            for side in sides
        }
        self._servers = {side: started.get(side, started["base"]) for side in SIDES}
        self.processes = tuple(started.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.processes:
            server.close()

    def loaded_own(self, roots: Sequence[Path], origins: Sequence[Path]) -> tuple[str, ...]:
        """Return the top-level names of the roots' own modules that it has loaded."""
        found = (name for server in self.processes for name in server.loaded_own(roots, origins))
        return tuple(dict.fromkeys(found))

    def why_no_fork(self) -> str | None:
        """Fork a child that computes in parallel, and return why that failed, None where it worked."""
        return next((why for server in self.processes if (why := server.why_no_fork())), None)

    @property
    def faults_of_reuse(self) -> int | None:
        """The most page faults of using memory again, None where no fork was tried or that is not known."""
        found = [server.faults_of_reuse for server in self.processes]
        return max((faults for faults in found if faults is not None), default=None)

    def start(self, side: Side, assignment: Assignment) -> Child:
        """Fork a child."""
        return _forked(self._servers[side], side, assignment)


class Zygote:
    """A side's child that has collected the tests in ``files``, and forks a child for each launch."""

    def __init__(self, child: Child, files: frozenset[str]) -> None:
        self.files = files
        self._child, self._server = child, child.as_server()

    def why_no_fork(self) -> str | None:
        """Fork a child that computes in parallel, and return why that failed, None where it worked."""
        return self._server.why_no_fork(_TRIAL_LIMIT_S)

    def start(self, assignment: Assignment) -> Child:
        """Fork a child that runs the benchmarks assigned."""
        return _forked(self._server, self._child.side, assignment)

    def end(self) -> None:
        """Give its session a second to end by itself, then end it."""
        with contextlib.suppress(ForkServerLostError):
            self._child.leave(_FAREWELL_S)


def _forked(server: ForkServer, side: Side, assignment: Assignment) -> Child:
    log = Path(assignment.log)
    ours, theirs = socket.socketpair()
    with theirs:
        process = server.start(log=log, folder=assignment.root, descriptors=[theirs.fileno()])
    return _assigned(Child(side, process, Channel(ours), log), assignment)


def _assigned(child: Child, assignment: Assignment) -> Child:
    # A child that has ended already is noticed when it is listened to.
    with contextlib.suppress(ChannelClosedError):
        child.channel.send(asdict(assignment))
    return child


class FreshProcesses:
    """Starts each child as a new process, run by the command ``under`` (such as Valgrind) if one is given."""

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        under: Sequence[str] = (),
        interpreters: Mapping[Side, Interpreter] = MappingProxyType({}),
    ) -> None:
        self._environment, self._under, self._interpreters = environment, under, interpreters

    def start(self, side: Side, assignment: Assignment) -> Child:
        """Start a fresh process, by the interpreter of its side."""
        interpreter, log = self._interpreters.get(side, Interpreter()), Path(assignment.log)
        process, channel = start_agent(
            "run_fresh",
            assignment.log,
            log=log,
            environment={**self._environment, **interpreter.variables},
            python=interpreter.python,
            under=self._under,
        )
        return _assigned(Child(side, process, channel, log), assignment)
