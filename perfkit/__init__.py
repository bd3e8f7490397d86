"""Profiling and performance-regression harness for PyTorch training code.

docs/architecture.md has the rooms and what each is for.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.phases import phase, step

if TYPE_CHECKING:
    from perfkit.interface.timing import timed
    from perfkit.interface.training import training
    from perfkit.interface.verbs import explain, gate, profile
    from perfkit.ledger.store import Ledger

__all__ = ["explain", "gate", "open_ledger", "phase", "profile", "step", "timed", "training"]

# These take longer to import than a training script should wait for a phase.
_ELSEWHERE = {
    "explain": "perfkit.interface.verbs",
    "gate": "perfkit.interface.verbs",
    "profile": "perfkit.interface.verbs",
    "timed": "perfkit.interface.timing",
    "training": "perfkit.interface.training",
}


def __getattr__(name: str) -> object:
    """Return what is imported at its first use."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'perfkit' has no attribute '{name}'")
    found = getattr(importlib.import_module(_ELSEWHERE[name]), name)
    globals()[name] = found
    return found


def open_ledger(path: str | Path | None = None) -> Ledger:
    """Return the ledger at ``path``, a folder or a URL, or the one configured for the current folder.

    Example: ``perfkit.open_ledger().to_pandas()``. Of a ledger at ``s3://bucket/path`` it is a local copy,
    which has all that the store has now.
    """
    from perfkit.config import load_project
    from perfkit.ledger.remote import existing_folder
    from perfkit.ledger.store import Ledger

    return Ledger(existing_folder(path if path is not None else load_project(Path.cwd()).ledger_place))
