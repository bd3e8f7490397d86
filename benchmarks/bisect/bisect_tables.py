"""The study's tables in ``docs/measured/bisect.md``, from its outcomes."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from recorded import BOTH, Hours

from perfkit.report.markdown_table import table_head, table_row
from perfkit.stats.interval import lower_bound, upper_bound

Outcome = Mapping[str, Any]
_HOURS = get_args(Hours)
_WEIGHTS = {"wrong": "weights favour eight other commits 10 to 1"}
_NOISES = {
    "heavy tails": "+20 % in each tenth launch",
    "layout": "each commit is off by 0.5 % for good",
}
_ADDED: dict[str, str] = {
    "+10 %": "about 10 % of a step",
    "+5 %": "about 5 % of a step",
    "operators": "an operator",
    "syncs": "an `.item()`",
    "allocated": "an allocation",
}
_USUAL = {"study": BOTH, "commits": 64, "noise": "as recorded", "weights": "equal"}


def read_real(folder: Path) -> list[Outcome]:
    """Return the searches of real ranges that are kept in a folder."""
    return [json.loads(line) for line in (folder / "real.jsonl").read_text().splitlines()]


def render(document: str, outcomes: Outcome, real: Sequence[Outcome]) -> str:
    """Return the document with its tables in place of what stands between the marks of each.

    ``outcomes`` are those of the study, ``real`` the searches of real ranges.

    Raises:
        ValueError: the document has no place for a table.
    """
    scenarios = outcomes["scenarios"]
    tables = {
        "searches": _searches(scenarios, lambda one: one["sizes"] == [0.05]),
        "nothing": _nothing(scenarios),
        "others": _others(scenarios),
        "real": _real(real),
    }
    for name, lines in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        if begin not in document or end not in document:
            raise ValueError(f"there is no place for the table {name} between {begin.strip()} and {end}")
        before, _, rest = document.partition(begin)
        table = "\n".join(lines)
        document = f"{before}{begin}{table}\n{end}{rest.partition(end)[2]}"
    return document


def _real(searches: Sequence[Outcome]) -> Iterator[str]:
    added = ["what one of 64 commits added", "sought by", "exact", "seconds: middle (longest)"]
    yield from table_head([*added, "commits measured"])
    for kind, metric in dict.fromkeys((one["kind"], one["metric"]) for one in searches):
        own = [one for one in searches if one["kind"] == kind]
        exact = f"{sum(one['exact'] for one in own)}/{len(own)}"
        seconds = [one["seconds"] for one in own]
        timed = f"{statistics.median(seconds):.0f} ({max(seconds):.0f})"
        measured = f"{statistics.median(one['measured'] for one in own):g}"
        yield table_row([_ADDED[kind], metric, exact, timed, measured])


def _by_hours(ones: Iterable[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Yield a row for each name, whose cells have its values in quiet hours, then in noisy ones."""
    rows: dict[str, list[Sequence[str]]] = {}
    for name, cells in ones:
        rows.setdefault(name, []).append(cells)
    for name, both in rows.items():
        yield table_row([name, *(", ".join(cells) for cells in zip(*both, strict=True))])


def _usual(one: Outcome) -> bool:
    return all(one[key] == value for key, value in _USUAL.items()) and one["costs"]["opening_s"] == 0


def _share(found: int, of: int) -> str:
    """Return how many of how many, and how many per cent of all at least are at 95 %."""
    return f"{found}/{of} ({100 * lower_bound(found, of):.1f})"


def _launches(one: Outcome) -> str:
    return f"{one['launches']:.1f} ({one['launches_median']:.0f}; {one['launches_95']:.0f})"


def _searches(scenarios: Sequence[Outcome], chosen: Callable[[Outcome], bool]) -> Iterator[str]:
    yield from table_head(["search", "exact (at least, %)", "launches"])
    yield from _by_hours(
        (one["search"], [_share(one["exact"], one["ranges"]), _launches(one)])
        for one in _in_hours(scenarios)
        if _usual(one) and chosen(one)
    )


def _in_hours(scenarios: Sequence[Outcome]) -> list[Outcome]:
    """Return what was searched in quiet hours before what was searched in noisy ones."""
    return sorted(scenarios, key=lambda one: _HOURS.index(one["hours"]))


def _nothing(scenarios: Sequence[Outcome]) -> Iterator[str]:
    yield from table_head(["search", "commit named (at most, %)", "undecided", "launches"])
    yield from _by_hours(
        (
            one["search"],
            [
                f"{one['named']}/{one['ranges']} ({100 * upper_bound(one['named'], one['ranges']):.1f})",
                str(one["undecided"]),
                _launches(one),
            ],
        )
        for one in _in_hours(scenarios)
        if _usual(one) and not one["sizes"]
    )


def _others(scenarios: Sequence[Outcome]) -> Iterator[str]:
    yield from table_head(["range", "all exact", "launches", "interval holds"])
    yield from _by_hours(
        (
            _kind(one),
            [
                f"{one['exact']}/{one['ranges']}",
                _launches(one),
                f"{one['intervals_hold']}/{one['intervals']}",
            ],
        )
        for one in _in_hours(scenarios)
        if (one["search"], one["study"], one["costs"]["opening_s"]) == ("perfkit", BOTH, 0)
        and one["weights"] != "right"
        and min(one["sizes"], default=0) > 0
    )


def _kind(one: Outcome) -> str:
    words = " and ".join(f"{100 * size:+.0f} %" for size in one["sizes"])
    if one["commits"] != 64:
        words += f" among {one['commits']:,}"
    words += "".join(
        f", {text}" for text in (_WEIGHTS.get(one["weights"]), _NOISES.get(one["noise"])) if text
    )
    return words
