"""Puts into words where something was measured, and how two such places differ."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from perfkit.identity import shown_run_id
from perfkit.model import ABSENT, PACKAGE, SIDES, Side
from perfkit.model.comparisons import GateReport
from perfkit.model.surroundings import (
    FactChange,
    Surroundings,
    SurroundingsReport,
    Weight,
    environment_changes,
    package_changes,
)
from perfkit.units import counted, listed

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
    "python_loop_ms": "fixed Python loop in ms",
    "matrix_product_ms": "fixed matrix product in ms",
    "python": "Python",
    "cuda": "CUDA of torch",
    "threads": "threads of torch",
    "matmul_precision": "precision of matrix products",
    "deterministic": "deterministic algorithms",
    "cudnn_benchmark": "cuDNN's choice by trial",
    "cudnn": "cuDNN",
    "gpu_driver": "driver of the GPUs",
    "gpu_driver_cuda": "CUDA of the driver",
    "mig": "MIG",
}
_OF_DEVICE = re.compile(r"gpu(\d+)_(\w+?)(?:_(before|after))?")
_DEVICE_TITLES: Mapping[str, str] = {
    "temperature_c": "temperature in °C",
    "sm_mhz": "clock in MHz",
    "memory_mhz": "clock of its memory in MHz",
    "most_sm_mhz": "highest clock in MHz",
    "power_w": "power in W",
    "power_cap_w": "power cap in W",
    "mig": "MIG",
    "ecc": "ECC",
}
_MEANINGS: Mapping[Weight, str] = {
    "forbids": "perfkit compares no times of these two, since",
    "may matter": "Times may also differ because",
    "means little": "What else differs means little:",
}
_SHA_DIGITS = 10
_MOST_LISTED, _MOST_NAMED, _SEVERAL = 6, 3, 2


def fact_title(fact: str) -> str:
    """Return the title of a fact: "gpu0_sm_mhz_before" is "GPU 0: clock in MHz, before"."""
    found = _OF_DEVICE.fullmatch(fact)
    if fact in _TITLES or found is None:
        return _TITLES.get(fact, fact.removeprefix(f"{PACKAGE} "))
    index, name, moment = found.groups()
    title = _DEVICE_TITLES.get(name, name.replace("_", " "))
    return f"GPU {index}: {title}" + (f", {moment}" if moment else "")


def change_words(change: FactChange) -> str:
    """Return how a fact differs, as a sentence: "torch 2.12.1 became 2.13.0"."""
    title, before, after = fact_title(change.fact), change.before, change.after
    if before is None or after is None:
        return f"{title} is {before or after or 'none'} in one and not known in the other"
    if after == ABSENT:
        return f"{title} {before} is not there any more"
    if before == ABSENT:
        return f"{title} {after} came in"
    return f"{title} {before or 'none'} became {after or 'none'}"


def difference_of_sides(report: GateReport) -> str | None:
    """Return in what the environments of a gate's sides differ; None where they are the present one."""
    if report.base_environment is None:
        return None
    changes = environment_changes(report.base_environment, report.environment)
    return f"environments  {'; '.join(_listed_changes(changes)) or 'alike on both sides'}"


def _listed_changes(changes: Sequence[FactChange]) -> Iterator[str]:
    """Yield the versions that differ, and then what only one side has: an environment may have much more."""
    gone = [fact_title(one.fact) for one in changes if one.after == ABSENT]
    new = [fact_title(one.fact) for one in changes if one.before == ABSENT]
    changed = [change_words(one) for one in changes if ABSENT not in (one.before, one.after)]
    if changed:
        yield listed(changed, _MOST_LISTED)
    for side, names in (("base", gone), ("head", new)):
        if names:
            yield f"only {side} has {listed(names, _MOST_NAMED)}"


def surroundings_view(report: SurroundingsReport) -> Group:
    """Return the facts of one machine and environment as a table, or what differs between two in words."""
    heads = [Text(_heading(one), style="bold") for one in report.found]
    if len(report.found) == 1:
        return Group(*heads, _facts_table(report.found[0]))
    lines = []
    for weight, meaning in _MEANINGS.items():
        if found := [one for one in report.changes if one.weight == weight]:
            lines += [meaning, *(f"  {change_words(one)}" for one in found)]
    alike = "The machines and environments are alike in all that is recorded of them."
    return Group(*heads, Text("\n".join(lines) or alike))


def surroundings_sentence(report: SurroundingsReport) -> str:
    """Return which run was found, or how many facts differ between two, in a sentence."""
    headings = [_heading(one) for one in report.found]
    if len(headings) == 1:
        return headings[0]
    return f"what differs between {' and '.join(headings)}: {counted(len(report.changes), 'fact')}"


def _heading(one: Surroundings) -> str:
    side = f" {one.side}" if one.side else ""
    commits = ", ".join(sha[:_SHA_DIGITS] for sha in one.commits)
    return f"{one.source} {shown_run_id(one.run_id)}{side}  {one.recorded_at:%Y-%m-%d %H:%M} UTC  {commits}"


def _facts_table(one: Surroundings) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(overflow="fold")
    for title, known in (("machine", one.machine.facts), ("environment", one.environment.facts)):
        table.add_row(Text(title, style="bold"), "")
        for fact, value in known.items():
            table.add_row(f"  {fact_title(fact)}", value or "none")
    return table


def package_search(report: GateReport) -> str:
    """Return the command that finds which of several packages slowed a benchmark, "" where there is none."""
    slowed = [one.benchmark.name for one in report.comparisons if one.verdict == "REGRESSED"]
    if not slowed or report.base_environment is None or not report.wanted:
        return ""
    changes = environment_changes(report.base_environment, report.environment)
    if len(package_changes(changes)) < _SEVERAL:
        return ""
    return shlex.join(["perfkit", "bisect", *options_of(report.wanted), "--benchmark", slowed[0]])


def options_of(wanted: Mapping[Side, Sequence[str]]) -> list[str]:
    """Return the options of a gate that ask for the environments of its sides."""
    return [word for side in SIDES for one in wanted.get(side, ()) for word in (f"--{side}-with", one)]
