"""Entry points of new processes; the coordinator makes the command line that loads the agent.

Each imports only what it needs, so that no process has modules that only another kind of process needs.
"""

from __future__ import annotations

import json
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
    from .guard import guard

    guard(int(descriptor), command)


def preload(descriptor: str, entry: str) -> None:
    """Run a fork server for the coordinator at a socket's other end; in each fork, do the work ordered."""
    from .preloader import serve

    work = serve(int(descriptor), entry)
    if work is not None:
        work()


def run_fresh(descriptor: str, log: str, assignment: str) -> None:
    """Run a measured child that was not forked, as a file says that is removed then.

    Where pytest itself needs the code under test, imports are pointed at that before pytest is imported.
    """
    from .imports import point_imports
    from .process import become_child
    from .provenance import own_names

    file = Path(assignment)
    order = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    become_child(log, order["root"])
    root, origins = Path(order["root"]), [Path(origin) for origin in order["origins"]]
    if not _UNDER_PYTEST.isdisjoint(own_names(root, origins)):
        point_imports(root, origins)
    from .child import run_child

    run_child(order, int(descriptor))
