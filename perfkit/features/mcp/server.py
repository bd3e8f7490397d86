"""Serves the tools on standard input and output: each call is a perfkit in a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

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

from perfkit.errors import PerfkitError
from perfkit.features.mcp.tools import TOOLS, command_of, input_schema, output_schema

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
