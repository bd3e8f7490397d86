"""This builds the orders of passes over a training loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfkit.profiling.passes.exchange import PassSpec
from perfkit.profiling.passes.targets import Target


def pass_spec(root: Path, place: str, folder: Path, *, target: str = "train", **changes: Any) -> PassSpec:  # noqa: ANN401 (fields of a spec)
    """Return a pass over a function or script of a project, which writes into a folder."""
    fields: dict[str, Any] = {
        "name": "clean",
        "arguments": (),
        "own": (),
        "artifact": "profile",
        "from_root": True,
    } | changes
    found = Target(name=target, place=place)
    return PassSpec(target=found, root=str(root), folder=str(folder), **fields)
