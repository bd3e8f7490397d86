"""The tools for coding agents, served on standard input and output: each call is a perfkit of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from msgspec import Meta

from perfkit.commands.schemas import document_named, schema_of
from perfkit.errors import PerfkitError, UsageError

_INSTRUCTIONS = (
    "perfkit measures whether a change of this repository is faster, and whether its results are the same."
    " After an edit call check; it takes some 5 to 30 seconds. A verdict other than faster or unchanged is no"
    " success: other result and doubtful mean a gain that is none. Then do what next suggests."
)
# An agent reads all of an answer.
_MOST_BYTES = 200_000
_MOST_LINES, _MOST_CHARACTERS = 12, 300
_REPORT_EVERY_S = 0.2
# Longer than a perfkit takes to remove what it has made.
_ENDS_WITHIN_S = 20.0


def serve(folder: Path, top: Path) -> None:
    """Serve the project in a folder of a repository until the client is gone."""
    anyio.run(_serve, _Calls(folder, top))


async def _serve(calls: _Calls) -> None:
    server = Server(
        "perfkit",
        version=version("perfkit"),
        instructions=_INSTRUCTIONS,
        on_list_tools=calls.list_tools,
        on_call_tool=calls.call,
    )
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


class _Calls:
    """Answers one call at a time; others are refused while it runs, so that a flood holds nothing up."""

    def __init__(self, folder: Path, top: Path) -> None:
        self._folder, self._top = folder, top
        self._busy = ""

    async def list_tools(
        self, _: ServerRequestContext[Any], __: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                Tool(
                    name=name,
                    description=tool.__doc__,
                    input_schema=input_schema(tool),
                    output_schema=output_schema(tool),
                    annotations=ToolAnnotations(destructive_hint=False, open_world_hint=False),
                )
                for name, tool in TOOLS.items()
            ]
        )

    async def call(self, context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        try:
            command = command_of(params.name, params.arguments or {}, self._top)
        except PerfkitError as error:
            return _failed(str(error))
        if self._busy:
            return _failed(f"busy: {self._busy} is running; try again when it has ended, or cancel it")
        with self._held(params.name):
            return await self._run(command, context.session)

    @contextlib.contextmanager
    def _held(self, name: str) -> Iterator[None]:
        self._busy = name
        try:
            yield
        finally:
            self._busy = ""

    async def _run(self, command: Sequence[str], session: ServerSession) -> CallToolResult:
        process = await anyio.open_process(
            [sys.executable, "-P", "-m", "perfkit", *command, "--json", "-"],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            # No signal to the server's group cuts short what the child cleans up.
            start_new_session=True,
        )
        lines: deque[str] = deque(maxlen=_MOST_LINES)
        document = bytearray()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_report, process.stderr, session, lines)
                group.start_soon(_read, process.stdout, document)
            code = await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
        shown = "\n".join(lines)
        if len(document) > _MOST_BYTES:
            return _failed(
                f"the answer (exit code {code}) is longer than {_MOST_BYTES} bytes: name fewer benchmarks;"
                f" it ends\n{shown}"
            )
        try:
            found = msgspec.json.decode(document)
        except msgspec.DecodeError:
            return _failed(shown or f"perfkit ended with exit code {code}, without an answer")
        text = msgspec.json.encode(found).decode()
        return CallToolResult(content=[TextContent(text=text)], structured_content=found)


def _failed(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


async def _report(stream: ByteReceiveStream | None, session: ServerSession, lines: deque[str]) -> None:
    """Report what the command prints as progress, and keep the last lines."""
    begun = reported = time.monotonic()
    rest = ""
    if stream is None:
        return
    async for text in TextReceiveStream(stream, errors="replace"):
        *whole, rest = (rest + text).split("\n")
        lines.extend(line[:_MOST_CHARACTERS] for line in whole if line.strip())
        rest = rest[:_MOST_CHARACTERS]
        if whole and lines and time.monotonic() - reported > _REPORT_EVERY_S:
            reported = time.monotonic()
            await session.report_progress(reported - begun, message=lines[-1])


async def _read(stream: ByteReceiveStream | None, document: bytearray) -> None:
    if stream is None:
        return
    async for chunk in stream:
        # What is too long is read on, so that the command can end.
        document += chunk[: _MOST_BYTES + 1 - len(document)]


async def _end(process: Process) -> None:
    """Interrupt a command that still runs, and wait until it has removed what it had made."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        with anyio.move_on_after(_ENDS_WITHIN_S):
            await process.wait()
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.aclose()


_Ref = Annotated[str | None, Meta(description="a commit, branch or tag")]
_Select = Annotated[str | None, Meta(description="only benchmarks that match, as pytest's -k")]
_Target = Annotated[str | None, Meta(description="a script, package.module:function or configured name")]
_Budget = Annotated[float | None, Meta(description="seconds")]
_BETWEEN_PATHS = re.compile(r"""[\s='",;:]+""")


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a call may have; each field is the option of its name unless it is positional."""

    words: ClassVar[tuple[str, ...]]
    positional: ClassVar[tuple[str, ...]] = ()
    documents: ClassVar[tuple[str, ...]]

    def command(self) -> list[str]:
        """Return the arguments of perfkit for it."""
        given = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        placed = [given.pop(name, ()) for name in self.positional]
        options = [f"--{name}={value}" for name, value in given.items()]
        return [*self.words, *options, *(one for value in placed for one in _listed(value))]


class Check(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Is the working tree (or HEAD) faster than its base, and are its results the same? A short answer."""

    words = ("check",)
    documents = ("check",)
    base: _Ref = None
    select: _Select = None
    target: _Target = None
    budget: _Budget = None


class Gate(Check, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Compare two commits in full: verdict and interval of each benchmark, counters, what moved."""

    words = ("gate",)
    documents = ("gate",)
    head: _Ref = None
    margin: Annotated[str | None, Meta(description="the largest change to ignore, such as 2%")] = None


class Why(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Explain a recorded gate (run), or profile two commits (base, head) and explain what differs."""

    words = ("explain",)
    positional = ("run", "base", "head")
    documents = ("explain", "gate")
    run: Annotated[str | None, Meta(description="the run_id of a check or gate")] = None
    base: _Ref = None
    head: _Ref = None
    target: _Target = None

    def command(self) -> list[str]:
        """Return the arguments of perfkit for it: a run is judged anew, commits are profiled."""
        if self.run is not None and (self.base, self.head, self.target) == (None, None, None):
            return ["ledger", "judge", self.run]
        if self.run is not None or self.base is None or self.head is None:
            raise UsageError("why takes a run, or base and head")
        # With a target no name of a commit is taken for a file.
        return Arguments.command(msgspec.structs.replace(self, target=self.target or "train"))


class Bisect(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Find the commit between good and bad that made a benchmark slower."""

    words = ("bisect",)
    positional = ("good", "bad")
    documents = ("bisect",)
    good: Annotated[str, Meta(description="the older commit, before the change")]
    bad: Annotated[str, Meta(description="a later commit, after the change")]
    benchmark: Annotated[str, Meta(description="a node id, or the end of one")]
    metric: Annotated[str | None, Meta(description="time (default), or a counter such as syncs")] = None
    budget: _Budget = None


class History(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Show trends of recorded measurements, their change points and alarms; measures nothing."""

    words = ("history", "show")
    positional = ("benchmarks",)
    documents = ("history",)
    benchmarks: Annotated[list[str] | None, Meta(description="node ids, or ends of some")] = None
    since: Annotated[str | None, Meta(description="30d, 8w, 1y or a date")] = None


TOOLS: Mapping[str, type[Arguments]] = {
    kind.__name__.lower(): kind for kind in (Check, Gate, Why, Bisect, History)
}


def command_of(name: str, given: Mapping[str, Any], top: Path) -> list[str]:
    """Return the arguments of perfkit for a call, none of which names a path outside of a repository."""
    if name not in TOOLS:
        raise UsageError(f'there is no tool "{name}"; there are {", ".join(TOOLS)}')
    try:
        arguments = msgspec.convert(given, TOOLS[name])
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {error}") from error
    for key, value in msgspec.structs.asdict(arguments).items():
        for text in _listed(value):
            if isinstance(text, str):
                _check_inside(f"{name}: {key}", text, top)
    return arguments.command()


def input_schema(tool: type[Arguments]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments."""
    _, defined = msgspec.json.schema_components([tool])
    return {
        key: value for key, value in defined[tool.__name__].items() if key not in ("title", "description")
    }


def output_schema(tool: type[Arguments]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's answer, an object at its root, as clients ask for."""
    schemas = [schema_of(document_named(name)) for name in tool.documents]
    defined = {name: one for schema in schemas for name, one in schema["$defs"].items()}
    roots = [{"$ref": schema["$ref"]} for schema in schemas]
    return {"type": "object", **(roots[0] if len(roots) == 1 else {"anyOf": roots}), "$defs": defined}


def _listed(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _check_inside(what: str, text: str, top: Path) -> None:
    """Refuse a text that is an option, or in which a word names a place outside of the repository."""
    if text.startswith("-"):
        raise UsageError(f'{what} begins with "-": {text!r}')
    for word in _BETWEEN_PATHS.split(text):
        try:
            inside = (top / word).resolve().is_relative_to(top)
        except (OSError, ValueError, RuntimeError):
            inside = False
        if not inside:
            raise UsageError(f"{what} names a place outside of {top}: {text!r}")
