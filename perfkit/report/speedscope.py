"""Profiles as a file for speedscope, which shows flame graphs in any browser."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from perfkit.model.readings import FunctionTime, Reading
from perfkit.profiling.diff.stacks import known_stacks

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def speedscope_file(readings: Sequence[Reading]) -> str:
    """Return the text of a file with a flame graph of each profile, in seconds (speedscope's file format).

    Raises:
        UsageError: a profile does not know who called whom.
    """
    frames: dict[tuple[str, str, int], int] = {}
    return json.dumps(
        {
            "$schema": _SCHEMA,
            "exporter": "perfkit",
            "profiles": [_profile(reading, frames) for reading in readings],
            "shared": {"frames": [_frame(*key) for key in frames]},
        }
    )


def _profile(reading: Reading, frames: dict[tuple[str, str, int], int]) -> Mapping[str, object]:
    stacks = known_stacks(reading)
    numbers = [frames.setdefault(_key(one), len(frames)) for one in reading.functions]
    return {
        "type": "sampled",
        "name": reading.name,
        "unit": "seconds",
        "startValue": 0,
        "endValue": sum(stack.seconds for stack in stacks),
        "samples": [[numbers[function] for function in stack.functions] for stack in stacks],
        "weights": [stack.seconds for stack in stacks],
    }


def _key(one: FunctionTime) -> tuple[str, str, int]:
    return one.function, one.file, one.line


def _frame(function: str, file: str, line: int) -> Mapping[str, object]:
    return {"name": function, **({"file": file, "line": line} if file else {})}
