"""What an interpreter has: its version, its packages, and whether the harness can be imported there."""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib import metadata


def packages() -> dict[str, str]:
    """Return the version of each installed package by its normalised name; the first on the path counts."""
    found: dict[str, str] = {}
    for one in metadata.distributions():
        name = one.metadata["Name"]
        if name:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), one.version)
    return found


def harness_problem() -> str | None:
    """Return why pytest and pytest-benchmark cannot be used, None where they can."""
    try:
        import pytest  # noqa: F401
        from pytest_benchmark.fixture import PauseInstrumentation  # noqa: F401 (older ones have none)
    except Exception as error:  # noqa: BLE001 (a package may raise anything)
        return f"{type(error).__name__}: {error}"
    return None


def report() -> str:
    """Return all of it as JSON."""
    found = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "release": sys.version_info[:2],
        "packages": packages(),
        "problem": harness_problem(),
    }
    return json.dumps(found)


if __name__ == "__main__":
    sys.stdout.write(report())
