"""Entry points of new processes; the coordinator makes the command line that loads the agent.

Each imports only what it needs, so that no process has modules that only another kind of process needs.
"""

from __future__ import annotations

from pathlib import Path

# Importing pytest and pytest-benchmark, in any of their versions, imports these packages.
_UNDER_PYTEST = frozenset(
    {
        *("_pytest", "pytest", "py", "pluggy", "iniconfig", "packaging", "pygments"),
        *("exceptiongroup", "tomli", "pytest_benchmark", "cpuinfo"),
    }
)


def guard(descriptor: str, *command: str) -> None:
    """Run a command, and end all its processes once it or the coordinator at the socket's other end ends."""
    from .processes import guard

    guard(int(descriptor), command)


def preload(descriptor: str, entry: str) -> None:
    """Run a fork server for the coordinator at a socket's other end; in each fork, do the work ordered."""
    from .fork_server import serve

    work = serve(int(descriptor), entry)
    if work is not None:
        work()


def run_fresh(descriptor: str, log: str) -> None:
    """Run a measured child that was not forked."""
    from .channel import open_channel
    from .imports import point_imports
    from .processes import become_child
    from .provenance import own_names

    channel = open_channel(int(descriptor))
    request = channel.receive()
    become_child(log, request["root"])
    root, origins = Path(request["root"]), [Path(origin) for origin in request["origins"]]
    if not _UNDER_PYTEST.isdisjoint(own_names(root, origins)):
        point_imports(root, origins)
    from .child import run_child

    run_child(channel, request)
