"""`perfkit mcp` answers a coding agent with the commands' documents, and leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

import psutil
import pytest
from gating import CONFIGURATION, PERFKIT, SLOWER, GitProject, benchmark, git_project, work
from processes_seen import wait_until

anyio = pytest.importorskip("anyio")
mcp = pytest.importorskip("mcp", reason="pip install 'perfkit[mcp]'")

WAIT = "\n\ndef wait():\n    import time\n\n    time.sleep({seconds})\n"
FILES = {
    "pyproject.toml": CONFIGURATION.replace("same_code = false\n", ""),
    "demo.py": work(steady=10) + WAIT.format(seconds=0.3),
    "tests/test_speed.py": "from demo import steady, wait\n"
    + benchmark("steady", "steady")
    + benchmark("long", "wait").replace("iterations=20", "iterations=1"),
}
SLOW = {"select": "long", "budget": 100}
_LIMIT_S = 120
_OUTSIDE = ("..", "/", "HEAD:../..", "train.py --data=/etc/passwd", "away/x.py", "\0")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> GitProject:
    made = git_project(tmp_path_factory.mktemp("agent"), FILES)
    made.commit({".gitignore": "benchmarks\n__pycache__\naway\n"})
    (made.root / "away").symlink_to("/etc")
    (made.root / "demo.py").write_text(work(steady=10 * SLOWER) + WAIT.format(seconds=0.301))
    return made


def test_tools_answer_with_the_documents_of_the_commands(project: GitProject) -> None:
    progress: list[str] = []

    async def follow(_: float, __: float | None, message: str | None) -> None:
        progress.append(message or "")

    async def session(client: Any) -> None:  # noqa: ANN401 (the library may be missing)
        tools = (await client.list_tools()).tools
        assert ["check", "gate", "why", "bisect", "history"] == [one.name for one in tools]
        assert {"object"} == {one.output_schema["type"] for one in tools}
        found = await client.call_tool("check", {"select": "steady"}, progress_callback=follow)
        document = found.structured_content
        assert ({"name": "check", "version": 1}, 1) == (document["schema"], document["exit_code"])
        assert document == json.loads(found.content[0].text)
        assert any("measuring" in line for line in progress)
        why = (await client.call_tool("why", {"run": document["run_id"]})).structured_content
        assert (document["run_id"], 1) == (why["run_id"], why["exit_code"])
        history = await client.call_tool("history", {})
        assert "has no time of a commit yet" in history.content[0].text
        gate = await client.call_tool("gate", {"select": "nothing", "budget": 5})
        assert gate.is_error
        assert "no benchmark was found" in gate.content[0].text

    _run(project, session)


def test_what_is_no_call_or_names_a_place_outside_is_refused(project: GitProject) -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("steal", {}, "no tool"),
        ("check", {"select": 1}, "Expected `str"),
        ("check", {"repo": "."}, "unknown field"),
        ("why", {}, "takes a run"),
        ("why", {"run": "a", "base": "b"}, "takes a run"),
        ("history", {"benchmarks": ["a", "--ledger=/etc"]}, 'begins with "-"'),
        ("bisect", {"good": "-x", "bad": "HEAD", "benchmark": "test_steady"}, 'begins with "-"'),
        ("check", {"base": "x" * 5000}, "perfkit: "),
        *(("check", {"base": place}, "outside") for place in _OUTSIDE),
        *(("gate", {"target": place}, "outside") for place in _OUTSIDE),
    ]

    async def session(client: Any) -> None:  # noqa: ANN401
        for name, arguments, reason in wrong:
            found = await client.call_tool(name, arguments)
            assert (True, True) == (found.is_error, reason in found.content[0].text), (name, arguments)

    _run(project, session)
    assert not project.temporary.exists() or set() == project.left_behind()


def test_a_flood_is_refused_and_a_cancelled_call_leaves_nothing_behind(project: GitProject) -> None:
    async def session(client: Any) -> None:  # noqa: ANN401
        measuring = anyio.Event()

        async def follow(_: float, __: float | None, message: str | None) -> None:
            if "measuring" in (message or ""):
                measuring.set()

        async with anyio.create_task_group() as group:
            group.start_soon(lambda: client.call_tool("gate", SLOW, progress_callback=follow))
            await measuring.wait()
            for _ in range(50):
                group.start_soon(_expect_busy, client)
            await _expect_busy(client)
            group.cancel_scope.cancel()
        while (found := await client.call_tool("history", {})).is_error and "busy" in found.content[0].text:
            await anyio.sleep(0.1)
        assert [] == _left(project)

    _run(project, session)


@pytest.mark.parametrize("end", ["close", "SIGTERM", "SIGKILL"])
def test_a_client_or_a_server_that_is_gone_leaves_nothing_behind(project: GitProject, end: str) -> None:
    with subprocess.Popen(
        [PERFKIT, "mcp"],
        cwd=project.root,
        env=project.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        begin = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        }
        call = {"name": "gate", "arguments": SLOW, "_meta": {"progressToken": 1}}
        for message in (
            {"id": 1, "method": "initialize", "params": begin},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": call},
        ):
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            server.stdin.flush()
        assert any("measuring" in line for line in server.stdout)
        server.stdin.close() if end == "close" else server.send_signal(signal.Signals[end])

        assert wait_until(lambda: server.poll() is not None)
    assert wait_until(lambda: not _left(project)), _left(project)


async def _expect_busy(client: Any) -> None:  # noqa: ANN401
    found = await client.call_tool("check", {})
    assert found.is_error
    assert "busy: gate is running" in found.content[0].text


def _run(project: GitProject, session: Callable[[Any], Awaitable[None]]) -> None:
    async def main() -> None:
        server = mcp.StdioServerParameters(
            command=str(PERFKIT), args=["mcp", "--quiet"], cwd=project.root, env=project.environment()
        )
        with anyio.fail_after(_LIMIT_S):
            async with mcp.Client(mcp.stdio_client(server)) as client:
                await session(client)

    anyio.run(main)


def _left(project: GitProject) -> list[object]:
    """Return temporary files, worktrees and processes that calls left, apart from the server."""
    variable = str(project.temporary)
    processes = []
    for one in psutil.process_iter(["environ", "cmdline", "status"]):
        environment, command = one.info["environ"] or {}, one.info["cmdline"] or []
        if environment.get("TMPDIR", "").startswith(variable) and "mcp" not in command:
            processes.append((one.pid, command))
    return [*project.left_behind(), *project.worktrees()[1:], *processes]
