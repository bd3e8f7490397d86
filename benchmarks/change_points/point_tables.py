"""Renders ``docs/measured/change-points.md`` from the study's outcomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from detectors import DETECTORS
from series import HELD_OUT, RUNS, STRIDE, TUNED_ON

from perfkit.report.markdown_table import table_head, table_row
from perfkit.stats.interval import upper_bound

Outcome = Mapping[str, Any]
TEMPLATE = Path(__file__).with_name("document.md")
NAMES = tuple(DETECTORS)
_HOURS = {TUNED_ON: "first", HELD_OUT: "second"}
_LEVELS = {False: "as measured", True: "adjusted"}
# The others of ``NOISES`` are alike.
_SHOWN = (
    "normal",
    "heavy tails: t of 3 degrees",
    "skewed: lognormal",
    "... by 0.3",
    "... by the whole sd",
    "bursts of one to three runs",
    "every fifth run slow, at random",
    "a steady rise by two sds",
)
_WORDS = {
    "... by 0.1": "wandering by 0.1 of the sd",
    "... by 0.3": "wandering by 0.3 of the sd",
    "... by the whole sd": "sessions that differ by the sd",
}


def render(outcomes: Outcome) -> str:
    """Return the document: ``document.md`` with a table in each place for one.

    Raises:
        ValueError: a table has no place, or a place has no table.
    """
    tables: dict[str, Iterator[str]] = {
        "null": _real(outcomes["null"]),
        "simulated": _simulated(outcomes["simulated"]),
        "stepped": _stepped(outcomes["stepped"]),
        "sizes": _sizes(outcomes["sizes"]),
        "series": _known(outcomes["series"]),
    }
    text = TEMPLATE.read_text()
    places = re.findall(r"^<!-- (\w+) -->$", text, re.MULTILINE)
    if sorted(places) != sorted(tables):
        raise ValueError(f"{TEMPLATE.name} has places for {places}, there are tables {list(tables)}")
    for name, lines in tables.items():
        text = text.replace(f"<!-- {name} -->", "\n".join(lines))
    return text


def _by_detector(outcomes: Sequence[Outcome], cell: Callable[[Outcome], str]) -> list[str]:
    """Return the cells of a row, in the order of the detectors."""
    found = {outcome["detector"]: outcome for outcome in outcomes}
    return [cell(found[name]) for name in NAMES]


def _real(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield from table_head(["ledger, levels", *NAMES])
    for study, hours in _HOURS.items():
        for without_factor, words in _LEVELS.items():
            rows = [
                one
                for one in outcomes
                if (one["study"], one["level"], one["without_factor"], one["stride"])
                == (study, "quickest", without_factor, STRIDE)
            ]
            cells = _by_detector(rows, lambda outcome: f"{outcome['found']}/{outcome['of']}")
            yield table_row([f"{hours}: {words}", *cells])
    own = [one for one in outcomes if one["detector"] == "perfkit" and one["without_factor"]]
    apart, near = ([one for one in own if one["stride"] == stride] for stride in (RUNS, STRIDE))
    found, of = (sum(one[key] for one in apart) for key in ("found", "of"))
    overlapping = "/".join(str(sum(one[key] for one in near)) for key in ("found", "of"))
    yield ""
    yield f"With levels of single launches as well, perfkit reports one in {found} of {of} adjusted windows"
    most = f"at most {100 * upper_bound(found, of):.2g} %"
    yield f"without overlap ({most}), and in {overlapping} with overlap."


def _simulated(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield from table_head(["noise", *NAMES])

    def cell(outcome: Outcome) -> str:
        share = f"{100 * outcome['found'] / outcome['of']:.3g}"
        most = 100 * upper_bound(outcome["found"], outcome["of"])
        return f"{share} ({most:.2g})" if outcome["detector"] == "perfkit" else share

    for noise in _SHOWN:
        words = _WORDS.get(noise, noise)
        yield table_row([words, *_by_detector([one for one in outcomes if one["noise"] == noise], cell)])


def _stepped(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield from table_head(["ledger", *NAMES])
    for study, hours in _HOURS.items():
        rows = [one for one in outcomes if one["study"] == study and one["without_factor"]]
        by_size = [
            _by_detector([one for one in rows if one["size"] == size], _stepped_cell)
            for size in sorted({one["size"] for one in rows})
        ]
        yield table_row([hours, *(", ".join(cells) for cells in zip(*by_size, strict=True))])


def _stepped_cell(outcome: Outcome) -> str:
    recall = _percent(outcome["right"], outcome["of"])
    precision = _percent(outcome["right"], outcome["points"])
    return f"{recall}/{precision}/{_percent(outcome['exact'], outcome['right'])}"


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of:.0f}" if of else "-"


def _sizes(outcomes: Sequence[Outcome]) -> Iterator[str]:
    sizes = sorted({one["deviations"] for one in outcomes})[1:-1]
    yield from table_head(["noise", *(f"{size:g}" for size in sizes)])
    for noise in ("normal", "heavy tails: t of 3 degrees", "... by 0.1"):
        cells = [
            ", ".join(
                f"{_percent(one['right'], one['of'])}/{_percent(one['held'], one['right'])}"
                for one in outcomes
                if (one["noise"], one["deviations"]) == (noise, size)
            )
            for size in sizes
        ]
        yield table_row([_WORDS.get(noise, noise), *cells])


def _known(series: Outcome) -> Iterator[str]:
    places = ", ".join(map(str, series["perfkit"]))
    others = ", ".join(f"{name} {len(series[name])}" for name in NAMES[1:])
    yield f"perfkit finds {places}; the others find so many: {others}."
