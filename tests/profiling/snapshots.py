"""Snapshots of an allocator in the structure that torch documents in torch/cuda/_memory_viz.py."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

MIB = 1 << 20
Frames = list[dict[str, Any]]


def frames(*places: tuple[str, int, str]) -> Frames:
    """Return a stack, innermost place first."""
    return [{"filename": file, "line": line, "name": name} for file, line, name in places]


def block(
    size: int, state: str = "active_allocated", *, requested: int | None = None, at: Frames | None = None
) -> dict[str, Any]:
    """Return a block of a segment."""
    return {
        "address": 0,
        "size": size,
        "requested_size": size if requested is None else requested,
        "state": state,
        "frames": at or [],
    }


def segment(*blocks: dict[str, Any], device: int = 0, rest: int = 0) -> dict[str, Any]:
    """Return a segment of blocks, with ``rest`` bytes that belong to none of them."""
    total = sum(one["size"] for one in blocks) + rest
    return {
        "device": device, "address": 0, "total_size": total, "stream": 0, "segment_type": "large",
        "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": list(blocks),
    }  # fmt: skip


def event(action: str, size: int) -> dict[str, Any]:
    """Return an entry of the history."""
    return {"action": action, "addr": 0, "size": size, "stream": 0, "time_us": 1, "frames": []}


def snapshot(*segments: dict[str, Any], traces: list[list[dict[str, Any]]] | None = None) -> dict[str, Any]:
    """Return a whole snapshot."""
    return {
        "segments": list(segments),
        "device_traces": [[]] if traces is None else traces,
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1},
        "external_annotations": [],
    }


def dumped(found: object, file: Path) -> Path:
    """Write a snapshot as torch does."""
    file.write_bytes(pickle.dumps(found))
    return file
