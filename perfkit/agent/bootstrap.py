"""Entry points of fresh processes; the command line that loads the agent is made in the coordinator.

Each imports only what it needs: the modules of one kind of process stay out of another's.
"""

from __future__ import annotations

import json
from pathlib import Path

# What is imported with pytest and pytest-benchmark, of whatever version.
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
    """Be a fork server for the coordinator at the other end of a socket; in each fork, do what it orders."""
    from .preloader import serve

    work = serve(int(descriptor), entry)
    if work is not None:
        work()


def run_fresh(descriptor: str, log: str, assignment: str) -> None:
    """Be a measured child that was not forked.

    Where pytest itself rests on the code under test, that is found first before pytest is imported.
    """
    from .imports import point_imports
    from .process import become_child
    from .provenance import own_names

    order = json.loads(assignment)
    become_child(log, order["root"])
    root, origins = Path(order["root"]), [Path(origin) for origin in order["origins"]]
    if not _UNDER_PYTEST.isdisjoint(own_names(root, origins)):
        point_imports(root, origins)
    from .child import run_child

    run_child(order, int(descriptor))
