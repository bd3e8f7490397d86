"""Puts into words where something was measured, and how two such places differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfkit.records import ABSENT, PACKAGE, SIDES, Side
from perfkit.records.comparisons import GateReport
from perfkit.records.surroundings import FactChange
from perfkit.units import listed
from perfkit.verdict.surroundings import environment_changes

_TITLES: Mapping[str, str] = {
    "cpu": "CPU",
    "logical_cpus": "logical CPUs",
    "physical_cpus": "physical cores",
    "ram_gib": "memory in GiB",
    "gpus": "GPUs",
    "node": "host name",
    "system": "system",
    "architecture": "architecture",
    "governor": "CPU governor",
    "load_1min": "load of the last minute",
    "python": "Python",
    "cuda": "CUDA of torch",
    "threads": "threads of torch",
    "matmul_precision": "precision of matrix products",
    "deterministic": "deterministic algorithms",
    "cudnn_benchmark": "cuDNN's choice by trial",
}
_MOST_LISTED, _MOST_NAMED = 6, 3


def fact_title(fact: str) -> str:
    """Return what a person calls a fact of an environment or machine."""
    return _TITLES.get(fact, fact.removeprefix(f"{PACKAGE} "))


def change_words(change: FactChange) -> str:
    """Return how a fact differs, as a sentence: "torch 2.12.1 became 2.13.0"."""
    title, before, after = fact_title(change.fact), change.before, change.after
    if after == ABSENT:
        return f"{title} {before} is not there any more"
    if before == ABSENT:
        return f"{title} {after} came in"
    if before is None or after is None:
        return f"{title} is {before or after} in one and not known in the other"
    return f"{title} {before or 'none'} became {after or 'none'}"


def difference_of_sides(report: GateReport) -> str | None:
    """Return in what the environments of a gate's sides differ; None where they are the present one."""
    if report.base_environment is None:
        return None
    changes = environment_changes(report.base_environment, report.environment)
    return f"environments  {'; '.join(_told(changes)) or 'alike on both sides'}"


def _told(changes: Sequence[FactChange]) -> Iterator[str]:
    """Yield the versions that differ, and then what only one side has: an environment may have much more."""
    gone = [fact_title(one.fact) for one in changes if one.after == ABSENT]
    new = [fact_title(one.fact) for one in changes if one.before == ABSENT]
    changed = [change_words(one) for one in changes if ABSENT not in (one.before, one.after)]
    if changed:
        yield listed(changed, _MOST_LISTED)
    for side, names in (("base", gone), ("head", new)):
        if names:
            yield f"only {side} has {listed(names, _MOST_NAMED)}"


def options_of(wanted: Mapping[Side, Sequence[str]]) -> list[str]:
    """Return the options of a gate that ask for the environments of its sides."""
    return [word for side in SIDES for one in wanted.get(side, ()) for word in (f"--{side}-with", one)]
