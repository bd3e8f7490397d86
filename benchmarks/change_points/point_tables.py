"""Renders ``docs/measured/change-points.md`` from the study's outcomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from detectors import DETECTORS, PACKAGES
from series import HELD_OUT, NOISES, RUNS, STRIDE, TUNED_ON

from perfkit.report.markdown_table import table_head, table_row
from perfkit.stats.distributions import upper_bound

Outcome = Mapping[str, Any]
TEMPLATE = Path(__file__).with_name("document.md")
NAMES = tuple(DETECTORS)
_HOURS = {TUNED_ON: "first", HELD_OUT: "second"}
_LEVELS = {
    ("quickest", False): "as measured",
    ("quickest", True): "adjusted",
    ("launch", False): "one launch, as measured",
    ("launch", True): "one launch, adjusted",
}


def render(outcomes: Outcome) -> str:
    """Return the document: ``document.md`` with a table in each place for one.

    Raises:
        ValueError: a table has no place, or a place has no table.
    """
    tables: dict[str, Iterator[str]] = {
        "null": _real(outcomes["null"]),
        "machine": _machine(outcomes["machine"]),
        "simulated": _simulated(outcomes["simulated"]),
        "stepped": _stepped(outcomes["stepped"]),
        "sizes": _sizes(outcomes["sizes"]),
        "series": _known(outcomes["series"]),
        "levels": _levels(outcomes["levels"]),
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
        for (level, without_factor), words in _LEVELS.items():
            rows = [
                one
                for one in outcomes
                if (one["study"], one["level"], one["without_factor"]) == (study, level, without_factor)
            ]
            apart = {one["detector"]: one for one in rows if one["stride"] == RUNS}

            def cell(outcome: Outcome, apart: Mapping[str, Outcome] = apart) -> str:
                own = apart[outcome["detector"]]
                most = 100 * upper_bound(own["found"], own["of"])
                return f"{outcome['found']}/{outcome['of']} ({own['found']}/{own['of']}: {most:.0f})"

            near = [one for one in rows if one["stride"] == STRIDE]
            yield table_row([f"{hours}: {words}", *_by_detector(near, cell)])


def _machine(outcomes: Sequence[Outcome]) -> Iterator[str]:
    named = " and ".join(
        f"{one['found']} of {one['of']} windows of the {_HOURS[one['study']]} ledger" for one in outcomes
    )
    yield f"perfkit reports a change point of the machine (the common factor) in {named}."


def _simulated(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield from table_head(["noise", *NAMES])

    def cell(outcome: Outcome) -> str:
        share = f"{100 * outcome['found'] / outcome['of']:.3g}"
        most = 100 * upper_bound(outcome["found"], outcome["of"])
        return f"{share} ({most:.2g})" if outcome["detector"] == "perfkit" else share

    for noise in NOISES:
        words = noise.replace("occasions", "sessions")
        yield table_row([words, *_by_detector([one for one in outcomes if one["noise"] == noise], cell)])


def _stepped(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield from table_head(["ledger, levels", *NAMES])
    for study, hours in _HOURS.items():
        for without_factor in (True, False):
            rows = [
                one for one in outcomes if (one["study"], one["without_factor"]) == (study, without_factor)
            ]
            by_size = [
                _by_detector([one for one in rows if one["size"] == size], _stepped_cell)
                for size in sorted({one["size"] for one in rows})
            ]
            cells = (", ".join(cells) for cells in zip(*by_size, strict=True))
            yield table_row([f"{hours}: {_LEVELS['quickest', without_factor]}", *cells])


def _stepped_cell(outcome: Outcome) -> str:
    recall = _percent(outcome["right"], outcome["of"])
    precision = _percent(outcome["right"], outcome["points"])
    return f"{recall}/{precision}/{_percent(outcome['exact'], outcome['right'])}"


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of:.0f}" if of else "-"


def _sizes(outcomes: Sequence[Outcome]) -> Iterator[str]:
    sizes = sorted({one["deviations"] for one in outcomes})
    yield from table_head(["noise", *(f"{size:g}" for size in sizes)])
    for noise in dict.fromkeys(one["noise"] for one in outcomes):
        cells = [
            ", ".join(
                f"{_percent(one['right'], one['of'])}/{_percent(one['held'], one['right'])}"
                for one in outcomes
                if (one["noise"], one["deviations"]) == (noise, size)
            )
            for size in sizes
        ]
        words = {"... by 0.5": "neighbours correlate by 0.5", "... by 0.1": "wandering by 0.1"}
        yield table_row([words.get(noise, noise), *cells])


def _known(series: Outcome) -> Iterator[str]:
    yield from table_head(["detector", "change points at"])
    for name in NAMES:
        places = series[name]
        few = ", ".join(map(str, places[:12]))
        yield table_row([name, f"{few} and {len(places) - 12} more" if len(places) > 12 else few])
    yield ""
    packages = ", ".join(f"`{package}`" for package in PACKAGES.values())
    yield f"Versions: {packages}; settings in `benchmarks/change_points/detectors.py`."


def _levels(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield from table_head(["ledger, rounds", "as measured", "adjusted", "found, %"])
    for one in outcomes:
        for level, spreads in one["spreads"].items():
            cells = [_spread(kind) for kind in spreads]
            yield table_row([f"{_HOURS[one['study']]}: {level}", *cells, _percent(*one["found"][level])])


def _spread(values: Sequence[float]) -> str:
    ordered = sorted(values)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return f"{middle:.1f} ({ordered[0]:.1f} to {ordered[-1]:.1f})"
