"""The change log as markdown."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import re
import string
from collections import Counter
from collections.abc import Mapping

from perfkit.model import Environment, Machine
from perfkit.model.history import Cell, ChangeLog, GateRatio, Ratio, Table
from perfkit.report.markdown_table import escape, table_head, table_row
from perfkit.units import counted

_DIGITS = 4
_SHA_DIGITS = 10
_FAILURE_LIMIT = 80
_SLUG_LETTERS, _SLUG_DIGITS = 60, 8
_ONE_LAUNCH = "†"
_OTHER_VERSION = "‡"
_EXPLANATIONS = {
    _ONE_LAUNCH: "one launch only: mean and sd over its rounds, of one process, which understate the noise.",
    _OTHER_VERSION: "measured by an older version of the benchmark's source: not comparable with the rest.",
}


def render_change_log(log: ChangeLog) -> str:
    """Return the log as markdown, one section per machine."""
    parts = [_reading_guide(log)] + [_section(table) for table in log.tables]
    return "\n\n".join(parts)


def _reading_guide(log: ChangeLog) -> str:
    guide = (
        "Each cell is `mean, sd` in seconds per call over launches (fresh processes). "
        "`×r ± e` is the ratio to the row before and its standard error, shown only where one run measured "
        "both in alternation; rows without it were measured at different times: do not compare them closely."
    )
    cells = (cell for table in log.tables for entry in table.entries for cell in entry.cells)
    if alphas := sorted({cell.gate.alpha for cell in cells if cell is not None and cell.gate is not None}):
        confidences = " or ".join(f"{100 * (1 - alpha):g} %" for alpha in alphas)
        guide += (
            " `×r, a to b` is that ratio as a gate measured it, with its interval: the intervals of one gate "
            f"hold together, at every look it took, with {confidences} confidence."
        )
    if log.dirty_runs:
        guide += f" Left out: {counted(log.dirty_runs, 'run')} on uncommitted changes."
    return guide


def _section(table: Table) -> str:
    marks = _environment_marks(table)
    titles = [one.title if one.picture is None else f"[{one.title}]({one.picture})" for one in table.columns]
    header = [*titles, "Change Description", "Git commit"]
    lines = [
        f"### {escape(machine_title(table.machine))}",
        "",
        *table_head(header),
        *(
            table_row(
                [*(_cell(cell, marks) for cell in one.cells), escape(one.description), f"`{one.commit}`"]
            )
            for one in table.entries
        ),
        "",
        _footnotes(table, marks),
    ]
    return "\n".join(lines)


def machine_title(machine: Machine) -> str:
    """Return what people call a machine, with the identity that perfkit gives it."""
    facts = machine.facts
    gpus = f", {facts['gpus']}" if facts.get("gpus") else ""
    number = facts.get("logical_cpus", "?")
    cpus = f"{facts.get('cpu', 'unknown CPU')}, {number} {'core' if number == '1' else 'cores'}"
    return f"{cpus}, {facts.get('ram_gib', '?')} GiB{gpus} (machine {machine.machine_id})"


def _environments(table: Table) -> list[Environment]:
    """Return the environments, the one most cells were measured in first."""
    cells = [cell for entry in table.entries for cell in entry.cells if cell is not None]
    uses = Counter(cell.env_id for cell in cells)
    return sorted(table.environments, key=lambda environment: -uses[environment.env_id])


def _environment_marks(table: Table) -> dict[str, str]:
    """Return a mark for each environment but the usual one."""
    others = _environments(table)[1:]
    letters = itertools.cycle(string.ascii_lowercase)
    return {other.env_id: f"<sup>{letter}</sup>" for other, letter in zip(others, letters, strict=False)}


def _cell(cell: Cell | None, marks: dict[str, str]) -> str:
    if cell is None:
        return "not measured"
    if cell.same_as is not None:
        return f"same code as `{cell.same_as[:_SHA_DIGITS]}`"
    if cell.failure is not None:
        is_short = len(cell.failure) <= _FAILURE_LIMIT
        return escape(cell.failure if is_short else f"{cell.failure[: _FAILURE_LIMIT - 1]}…")
    text = format_mean_sd(cell.mean, cell.sd)
    if cell.gate is not None:
        text += f" ({format_gate_ratio(cell.gate)})"
    elif cell.ratio is not None:
        text += f" ({format_ratio(cell.ratio)})"
    environment = [marks[cell.env_id]] if cell.env_id in marks else []
    return " ".join([text, *_marks(cell.launches == 1, cell.other_version), *environment])


@functools.cache
def _marks(one_launch: bool, other_version: bool) -> tuple[str, ...]:  # noqa: FBT001 (a key of the cache)
    marks = {_ONE_LAUNCH: one_launch, _OTHER_VERSION: other_version}
    return tuple(mark for mark, holds in marks.items() if holds)


def format_mean_sd(mean: float | None, sd: float | None) -> str:
    """Return "mean, sd" in seconds, the mean with four significant digits and sd to the same place."""
    if mean is None:
        return "-"
    decimals = max(0, _DIGITS - 1 - math.floor(math.log10(mean))) if mean > 0 else _DIGITS
    return f"{mean:.{decimals}f}, " + ("-" if sd is None else f"{sd:.{decimals}f}")


def format_ratio(ratio: Ratio) -> str:
    """Return "×0.417 ± 0.021": two significant digits below a tenth, three decimals above."""
    decimals = _ratio_decimals(ratio.value)
    text = f"×{ratio.value:.{decimals}f}"
    return text if ratio.standard_error is None else f"{text} ± {ratio.standard_error:.{decimals}f}"


def format_gate_ratio(gate: GateRatio) -> str:
    """Return "×1.031, 1.026 to 1.036", to as many places as any other ratio."""
    decimals = _ratio_decimals(gate.ratio)
    return f"×{gate.ratio:.{decimals}f}, {gate.low:.{decimals}f} to {gate.high:.{decimals}f}"


def _ratio_decimals(ratio: float) -> int:
    return 3 if ratio >= 0.1 else 1 - math.floor(math.log10(ratio))  # noqa: PLR2004


def _footnotes(table: Table, marks: dict[str, str]) -> str:
    cells = [cell for entry in table.entries for cell in entry.cells if cell is not None]
    kinds = {(cell.launches == 1, cell.other_version) for cell in cells if cell.mean is not None}
    used = {mark for kind in kinds for mark in _marks(*kind)}
    notes = [f"{mark} {text}" for mark, text in _EXPLANATIONS.items() if mark in used]
    environments = _environments(table)
    for usual in environments[:1]:
        notes.append("Environment: " + _facts(usual.facts))
        notes += [
            f"{marks[other.env_id]} Environment: {_difference(other, usual)}" for other in environments[1:]
        ]
    return "\\\n".join(notes)


def _facts(facts: Mapping[str, str]) -> str:
    return ", ".join(escape(f"{name} {value}") for name, value in facts.items())


def _difference(other: Environment, usual: Environment) -> str:
    changed = {name: value for name, value in other.facts.items() if usual.facts.get(name) != value}
    unset = dict.fromkeys(usual.facts.keys() - other.facts.keys(), "not set")
    return f"as above, but {_facts({**changed, **dict(sorted(unset.items()))})}"


def trend_name(benchmark: str, machine_id: str) -> str:
    """Return the file name of the picture of a benchmark's trend on a machine, to which the log links."""
    machine = _plain(machine_id)
    return f"{slug_of(benchmark)}-{machine if len(machine) <= _SLUG_LETTERS else slug_of(machine_id)}.svg"


def slug_of(name: str) -> str:
    """Return a file name that is unique to a benchmark, even where case does not count."""
    digits = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_SLUG_DIGITS]
    end = _plain(name.rpartition("/")[2])[-_SLUG_LETTERS:].strip("-.")
    return f"{end}-{digits}" if end else digits


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-")
