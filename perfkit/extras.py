"""The libraries that perfkit can do without: which are installed, and how the others are.

All of perfkit that a gate needs works without them; what does not asks here before it begins.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from perfkit.errors import UsageError

# The extra of perfkit that brings each library, by the name that code imports.
EXTRAS: Mapping[str, str] = {
    "alembic": "mlflow",
    "line_profiler": "profile",
    "mcp": "mcp",
    "mlflow": "mlflow",
    "pandas": "pandas",
    "pynvml": "gpu",
    "snakeviz": "profile",
    "sqlalchemy": "mlflow",
    "tensorboard": "tensorboard",
    "torch": "torch",
    "wandb": "wandb",
}


class MissingLibraryError(UsageError):
    """What was asked for needs a library that is not installed."""


def is_installed(library: str) -> bool:
    """Return whether a library can be imported, without importing it."""
    try:
        return importlib.util.find_spec(library) is not None
    except ValueError:
        # A module that was made by hand is loaded, without a spec of where it is from.
        return True


def need(*libraries: str, by: str) -> None:
    """Refuse to go on if a library is missing that ``by`` needs, such as "perfkit view"."""
    missing = [library for library in libraries if not is_installed(library)]
    if missing:
        extras = ",".join(dict.fromkeys(EXTRAS[library] for library in missing))
        raise MissingLibraryError(
            f"{by} needs {' and '.join(missing)}, found none; install it: pip install 'perfkit[{extras}]'"
        )
