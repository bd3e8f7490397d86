"""The process of a trial, seen from the parent: fresh, and ended with all its tree when its time is over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from perfkit.features.experiments.exchange import (
    RESULT_FILE,
    TrialResult,
    TrialSpec,
    read_record,
    write_record,
)
from perfkit.profiling.passes.exchange import OUTPUT_FILE, Problem
from perfkit.runner.commands import Ending, python_command, run_command
from perfkit.runner.environment import fixed_environment
from perfkit.temporary import temporary_folder

# What a parser of options does after its message, for one.
_ENDED_ITSELF = re.compile(r" exited with code \d+$")


def run_trial(spec: TrialSpec, *, environment: Mapping[str, str], limit_s: float, seed: int) -> TrialResult:
    """Do what ``spec`` asks in a fresh interpreter and return the result, or the problem that ended it.

    The spec's folder is set here: a temporary one. ``seed`` fixes the hashes of the process. No process of
    the trial outlives the call.
    """
    with temporary_folder() as folder:
        spec = replace(spec, folder=str(folder))
        file = folder / "spec.json"
        write_record(spec, file)
        ending = run_command(
            python_command("perfkit.features.experiments.child", str(file)),
            output=folder / OUTPUT_FILE,
            limit_s=limit_s,
            environment=fixed_environment(environment, hash_seed=seed % 2**32),
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
    said = f"{problem.message}, saying: {ending.tail[-1].strip()}"
    return replace(found, problem=replace(problem, message=said))


def _died(ending: Ending) -> Problem:
    """Return the message on a process that left no result."""
    return Problem(
        kind="failed",
        message=f"its process {ending.words}",
        status="oom" if ending.out_of_memory else "error",
        details="\n".join(ending.tail),
    )
