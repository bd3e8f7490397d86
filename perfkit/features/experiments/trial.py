"""A trial: what its process is asked for and returns, and that process as its parent starts and ends it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from perfkit.features.experiments.records import Experiment, Fingerprint, Level
from perfkit.model import Environment
from perfkit.profiling.passes.exchange import OUTPUT_FILE, Problem
from perfkit.profiling.passes.targets import Target
from perfkit.runner.commands import Ending, fixed_environment, python_command, run_command
from perfkit.temporary import temporary_folder

Task = Literal["look", "time"]
RESULT_FILE = "result.json"
_Record = TypeVar("_Record")
# What a parser of options does after its message, for one.
_ENDED_ITSELF = re.compile(r" exited with code \d+$")


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """What one process does with the variant of a ``number``: check its first steps, or time it."""

    task: Task
    target: Target
    experiment: Experiment
    number: int
    seed: int
    root: str
    own: tuple[str, ...] = ()
    folder: str = ""

    @property
    def arguments(self) -> list[dict[str, Level]]:
        """The arguments of every variant, which are all checked before anything runs."""
        experiment = self.experiment
        seeded = {experiment.seed_argument: self.seed} if experiment.seed_argument else {}
        return [{**experiment.fixed, **seeded, **one.levels} for one in experiment.variants]


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """What a process gave: the problem that kept it from its task, or what its task is for.

    ``settings`` are torch's flags at the end of the target, ``autocast`` the types of automatic casting in
    the first steps. ``version`` hashes the target's source. ``notes`` name responses that were left out.
    """

    problem: Problem | None = None
    version: str = ""
    fingerprint: Fingerprint | None = None
    responses: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    autocast: tuple[str, ...] = ()
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


def run_trial(spec: TrialSpec, *, environment: Mapping[str, str]) -> TrialResult:
    """Do what ``spec`` asks in a fresh interpreter and return the result, or the problem that ended it.

    The spec's folder is set here: a temporary one. Its seed fixes the hashes of the process. No process of
    the trial outlives the call.
    """
    limit_s = spec.experiment.limit_s
    with temporary_folder() as folder:
        spec = replace(spec, folder=str(folder))
        file = folder / "spec.json"
        write_record(spec, file)
        ending = run_command(
            python_command("perfkit.features.experiments.child", str(file)),
            output=folder / OUTPUT_FILE,
            limit_s=limit_s,
            environment=fixed_environment(environment, hash_seed=spec.seed % 2**32),
            folder=Path(spec.root),
        )
        if ending.status is None:
            message = f"it took longer than {limit_s:g} s, the experiment's limit"
            return TrialResult(problem=Problem(kind="failed", message=message, status="timeout"))
        found = read_record(folder / RESULT_FILE, TrialResult)
        return _with_last_words(found, ending) if found else TrialResult(problem=_died(ending))


def _with_last_words(found: TrialResult, ending: Ending) -> TrialResult:
    """Return a result with the last line of a target that ended itself by a number alone."""
    problem = found.problem
    if problem is None or not _ENDED_ITSELF.search(problem.message) or not ending.tail:
        return found
    message = f"{problem.message}, saying: {ending.tail[-1].strip()}"
    return replace(found, problem=replace(problem, message=message))


def _died(ending: Ending) -> Problem:
    """Return the message on a process that left no result."""
    return Problem(
        kind="failed",
        message=f"its process {ending.words}",
        status="oom" if ending.out_of_memory else "error",
        details="\n".join(ending.tail),
    )
