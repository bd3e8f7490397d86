"""These helpers make small profiles, by hand, as other tools write them."""

from __future__ import annotations

import json
import marshal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfkit.model.readings import Reading
from perfkit.profiling.read.formats import read_bytes
from perfkit.profiling.read.names import CodeNames

Function = tuple[str, int, str]
SHARED_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

SITE = "/usr/lib/python3.9/site-packages"
MAIN = ("/home/me/project/train.py", 5, "main")
ADAM = (f"{SITE}/torch/optim/adam.py", 106, "step")
WRAPPER = (f"{SITE}/torch/optim/optimizer.py", 380, "wrapper")
SCHEDULER = (f"{SITE}/torch/optim/lr_scheduler.py", 130, "step")
ENGINE = ("~", 0, "<method 'run_backward' of 'torch._C._EngineBase' objects>")


def row(calls: int = 1, own_s: float = 0.5, callers: Mapping[Function, Any] | None = None) -> tuple[Any, ...]:
    """Return what pstats keeps of one function."""
    return (calls, calls, own_s, own_s, dict(callers or {}))


def pstats_bytes(table: Any) -> bytes:  # noqa: ANN401 (anything that marshal takes)
    """Return a table, or what stands in for one, as cProfile dumps it."""
    return marshal.dumps(table)


def event(name: str, ts: float, dur: float, **more: object) -> dict[str, object]:
    """Return a timed event of the processor, in microseconds."""
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 9, "tid": 9, "ts": ts, "dur": dur} | more


def trace_bytes(*events: Mapping[str, object], **more: object) -> bytes:
    """Return a trace as torch.profiler exports it."""
    return json.dumps({"schemaVersion": 1, **more, "traceEvents": events}).encode()


def reading_of(data: bytes, *own: str) -> Reading:
    """Return what the bytes of a profile hold."""
    return read_bytes(data, "x.prof", CodeNames(own=own))
