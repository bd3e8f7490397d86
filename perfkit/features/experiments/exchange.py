"""What the process of a trial is told and what it returns, as JSON files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from perfkit.features.experiments.records import Fingerprint, Level
from perfkit.model import Environment
from perfkit.profiling.passes.exchange import Problem
from perfkit.profiling.passes.targets import Target

Task = Literal["look", "time"]
RESULT_FILE = "result.json"
_Record = TypeVar("_Record")


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """What one process does with one variant: check its first steps, or time it.

    ``arguments`` are those of every variant, all checked before anything runs; ``number`` says which is run.
    ``template`` spells an argument of a command line; None leaves that to the program's source.
    ``environment_reader`` names, as "module:function", what tells the settings at the end.
    """

    task: Task
    target: Target
    arguments: tuple[Mapping[str, Level], ...]
    number: int
    root: str
    folder: str
    own: tuple[str, ...] = ()
    returned: Mapping[str, str] = field(default_factory=dict)
    warmup_steps: int = 0
    warmup_s: float = 0.0
    threads: int | None = None
    environment_reader: str = ""
    template: str | None = None


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """What a process gave: the problem that kept it from its task, or what its task is for.

    ``settings`` are torch's flags at the end of the target; ``half`` says under which half-precision types
    automatic casting was on in the first steps. ``version`` hashes the target's source. ``notes`` say which
    responses were left out.
    """

    problem: Problem | None = None
    version: str = ""
    fingerprint: Fingerprint | None = None
    responses: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    casts: tuple[str, ...] = ()
    environment: Environment | None = None
    notes: tuple[str, ...] = ()


def write_record(record: object, file: Path) -> None:
    """Write a record."""
    file.write_bytes(msgspec.json.encode(record))


def read_record(file: Path, kind: type[_Record]) -> _Record | None:
    """Read a record; None where its writer died before it was complete."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
