"""Profiling and performance-regression harness for PyTorch training code.

From the doors down: ``cli`` and ``plugin``; ``jobs``, a straight path per command; the engines ``compare``,
``factorial``, ``tricks`` and ``history``; ``measure``, ``profiling``, ``reading``, ``ledger``, ``repo``,
``machine``, ``views``, ``workloads``; ``verdict``, ``explain`` and ``stats``, which only compute.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.phases import phase

if TYPE_CHECKING:
    from perfkit.ledger.store import Ledger

__all__ = ["open_ledger", "phase"]


def open_ledger(path: str | Path | None = None) -> Ledger:
    """Return the ledger at ``path``, or the one configured for the current folder.

    Example: ``perfkit.open_ledger().to_pandas()``.

    Raises:
        UsageError: there is no such folder.
        ConfigError: no path is given and the configuration is not valid.
    """
    from perfkit.config import load_project
    from perfkit.errors import UsageError
    from perfkit.ledger.store import Ledger

    place = Path(path) if path is not None else load_project(Path.cwd()).ledger_path
    if not place.is_dir():
        raise UsageError(f"there is no ledger at {place}; `pytest --benchmark-autosave` begins one")
    return Ledger(place)
