"""Renders ``docs/peers.md`` from what the tools said: ``python benchmarks/peers/table.py``."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contest import LEDGER, read_outcomes
from pairs import TOOLS, plan_pairs
from plan import SIX
from readme import README, fill

from perfkit.ledger.store import Ledger
from perfkit.records import Row
from perfkit.views.markdown_table import table_head, table_row

DOCUMENT = Path(__file__).parents[2] / "docs" / "peers.md"
PLACE = "make peers"
_TRUE_CHANGE = 0.05
_COLUMNS = (
    "tool",
    "identical pairs that it accuses or praises",
    "benchmarks in them",
    "plants found, no other accused",
    "error of the planted size",
    "wall time per benchmark",
)
Outcome = Mapping[str, Any]


def main() -> None:
    """Write the document, and its table into the README."""
    outcomes = read_outcomes()
    DOCUMENT.write_text(render(outcomes, name_machines(Ledger(LEDGER).rows())), encoding="utf-8")
    fill(PLACE, lines_for_readme(outcomes))
    print(f"wrote {DOCUMENT}, and its table into {README}")


def lines_for_readme(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the table, or nothing until all pairs have run."""
    return _table(outcomes) if _pairs_done(outcomes) == len(plan_pairs()) else []


def render(outcomes: Sequence[Outcome], machines: str) -> str:
    """Return the document as markdown; a tool that broke is counted as neither right nor wrong, and named."""
    broken = [one for one in outcomes if "error" in one]
    notes = [f"- pair {one['pair']}, {one['tool']}: {one['error']}" for one in broken]
    head = _INTRODUCTION.format(done=_pairs_done(outcomes), of=len(plan_pairs()), machines=machines)
    return "\n".join([head, *_table(outcomes), *(["", "Not measured:", "", *notes] if notes else []), _RULES])


def _pairs_done(outcomes: Sequence[Outcome]) -> int:
    """Return how many pairs every tool has had its turn with."""
    turns = Counter(one["pair"] for one in outcomes)
    return sum(count == len(TOOLS) for count in turns.values())


def name_machines(rows: Iterable[Row]) -> str:
    """Return the processors, and how many of perfkit's gates ran on each."""
    processors = {row.run_id: str(row.machine.facts.get("cpu")) for row in rows}
    return ", ".join(f"{count} on {cpu}" for cpu, count in Counter(processors.values()).items())


def _table(outcomes: Sequence[Outcome]) -> list[str]:
    of_tools = ([one for one in outcomes if one["tool"] == tool] for tool in TOOLS)
    lines = (_line(tool, found) for tool, found in zip(TOOLS, of_tools, strict=True))
    return [*table_head(_COLUMNS), *map(table_row, lines)]


_INTRODUCTION = """# Side by side with other tools

<!-- written by `make peers` from benchmarks/peers/outcomes.jsonl -->

The same six benchmarks and the same pairs of commits (identical ones, and +5 % of its own work planted in
one benchmark) through four tools, one pair after the other, the tools in turns; environments were built
beforehand.
{done} of {of} pairs have run.
All tools of a pair ran on one machine: {machines}.
"""
_RULES = """
Each tool decides by its own rule: perfkit at margin 2 % and its defaults; asv by `asv continuous -f 1.02 -a
rounds=4 --interleave-rounds`; pytest-benchmark by `--benchmark-compare-fail=mean:2%`; pyperf, run with
`--fast`, by the t-test of `pyperf compare_to`. The error is the median absolute difference between the ratio
that a tool gives the planted benchmark and 1.05. Known of the others: pyperf's test has no margin and calls
samples of unequal size significant; none of the three corrects for many benchmarks. The wall time of perfkit
is that of the whole gate, checkouts included.
"""


def _line(tool: str, outcomes: Sequence[Outcome]) -> list[str]:
    found = [one for one in outcomes if "error" not in one]
    alike = [one for one in found if one["benchmark"] is None]
    planted = [one for one in found if one["benchmark"] is not None]
    if not found:
        return [tool, *["-"] * (len(_COLUMNS) - 1)]
    named = [len(one["slower"]) + len(one["faster"]) for one in alike]
    hits = sum(list(one["slower"]) == [one["benchmark"]] and not one["faster"] for one in planted)
    walls = [one["wall_s"] / len(SIX) for one in found]
    return [
        tool,
        f"{sum(map(bool, named))} of {len(alike)}",
        f"{sum(named)} of {len(SIX) * len(alike)}",
        f"{hits} of {len(planted)}",
        _error(planted),
        f"{statistics.median(walls):.1f} s",
    ]


def _error(planted: Sequence[Outcome]) -> str:
    errors = [
        abs(one["ratios"][one["benchmark"]] - 1 - _TRUE_CHANGE)
        for one in planted
        if one["benchmark"] in one["ratios"]
    ]
    return f"{100 * statistics.median(errors):.1f} %" if errors else "-"


if __name__ == "__main__":
    main()
