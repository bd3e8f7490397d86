"""Judges change points by other people's labels: ``python benchmarks/change_points/labels.py FOLDER...``.

Folders hold series and annotations as the Turing change point dataset (TCPD) has them, and what other methods
found: scores by series (``*default_f1*.json``, ``*default_cover*.json``), or places by series and method
(``SERIES/default_METHOD/*.json``), as in mozilla/REALISE-Performance. It keeps the figures in ``labels.json``
under the name of the first folder, and writes ``docs/measured/labels.md``; without a folder only this.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from detectors import perfkit

from perfkit.report.markdown_table import table_head, table_row
from perfkit.stats.change_points import FloatArray

HERE = Path(__file__).parent
OUTCOMES = HERE / "labels.json"
DOCUMENT = HERE.parents[1] / "docs" / "measured" / "labels.md"
MARGIN = 5
# The places that each annotator of a series marked.
Annotations = Mapping[str, Sequence[int]]
Scores = Mapping[str, float]


def main() -> None:
    """Judge the folders that are given, and write the document."""
    kept = json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}
    if folders := [Path(folder) for folder in sys.argv[1:]]:
        kept[folders[0].name] = judge(folders)
        keep(kept)
    DOCUMENT.write_text(filled(DOCUMENT.read_text(), kept))


def keep(outcomes: Mapping[str, Any]) -> None:
    """Write all outcomes, a line for each series."""
    parts = (
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(f"{json.dumps(key)}: {json.dumps(one)}" for key, one in part.items())
        + "\n}"
        for name, part in sorted(outcomes.items())
    )
    OUTCOMES.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def judge(folders: Iterable[Path]) -> dict[str, Any]:
    """Return what perfkit finds in each annotated series, and the scores of all methods there."""
    files = {
        file: json.loads(file.read_text())
        for file in sorted({file for folder in folders for file in folder.rglob("*.json")})
    }
    labels: dict[str, Annotations] = {}
    for file, document in files.items():
        if file.name == "annotations.json":
            labels |= document
    found: dict[str, Any] = {}
    for document in files.values():
        if "series" in document and document["name"] in labels and document["n_dim"] == 1:
            name, runs, places = document["name"], document["n_obs"], places_in(document)
            scores = {"perfkit": score(labels[name], places, runs), "nothing": score(labels[name], [], runs)}
            found[name] = {"runs": runs, "places": places, "scores": scores}
    for file, document in files.items():
        for name, method, scored in _published(file, document, labels, found):
            found[name]["scores"].setdefault(method, {}).update(scored)
    return found


def _published(
    file: Path, document: Mapping[str, Any], labels: Mapping[str, Annotations], found: Mapping[str, Any]
) -> Iterator[tuple[str, str, Scores]]:
    """Yield series, method and scores of what a file has of other methods' results."""
    kind = next((kind for kind in ("f1", "cover") if f"default_{kind}" in file.name), None)
    if kind:
        for name in found.keys() & document.keys():
            for method, value in document[name].items():
                if value is not None and method != "zero":
                    yield name, method, {kind: round(value, 4)}
    elif (
        "result" in document and file.parent.name.startswith("default_") and (name := file.parts[-3]) in found
    ):
        places = document["result"]["cplocations"] or []
        yield (
            name,
            file.parent.name.removeprefix("default_"),
            score(labels[name], places, found[name]["runs"]),
        )


def places_in(document: Mapping[str, Any]) -> list[int]:
    """Return where perfkit finds change points; values below zero count as logarithms of levels."""
    values: FloatArray = np.array(document["series"][0]["raw"], dtype=np.float64)
    known = np.flatnonzero(np.isfinite(values))
    levels = values[known] if (values[known] > 0).all() else np.exp(values[known])
    return [int(known[place]) for place in perfkit(levels)]


def score(labels: Annotations, places: Iterable[int], runs: int) -> dict[str, float]:
    """Return F1 at a margin of five, precision, recall and cover as TCPD's authors define them."""
    found = {0, *places}
    marked = [{0, *one} for one in labels.values()]
    precision = _hits(set().union(*marked), found) / len(found)
    recall = sum(_hits(one, found) / len(one) for one in marked) / len(marked)
    parts = _parts(found, runs)
    covers = [
        sum(
            (high - low) * max(_overlap((low, high), part) for part in parts)
            for low, high in _parts(one, runs)
        )
        for one in marked
    ]
    scores = {
        "f1": 2 * precision * recall / (precision + recall),
        "precision": precision,
        "recall": recall,
        "cover": sum(covers) / len(covers) / runs,
    }
    return {kind: round(value, 4) for kind, value in scores.items()}


def _hits(marked: Iterable[int], found: Iterable[int]) -> int:
    """Return how many marked places have a found one within the margin, each taken once."""
    left, hits = set(found), 0
    for place in sorted(marked):
        near = min(left, key=lambda one: (abs(place - one), one), default=None)
        if near is not None and abs(place - near) <= MARGIN:
            left.remove(near)
            hits += 1
    return hits


def _parts(places: Iterable[int], runs: int) -> list[tuple[int, int]]:
    return list(itertools.pairwise([0, *sorted({place for place in places if 0 < place < runs}), runs]))


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> float:
    shared = min(one[1], other[1]) - max(one[0], other[0])
    return max(shared, 0) / (max(one[1], other[1]) - min(one[0], other[0]))


def is_held_back(name: str) -> bool:
    """Return whether a series belongs to the half of the labels that no setting was chosen by."""
    return bool(hashlib.sha256(name.encode()).digest()[0] % 2)


def filled(text: str, outcomes: Mapping[str, Any]) -> str:
    """Return the document with its tables anew."""
    for name, part in outcomes.items():
        head, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, tail = rest.partition(f"<!-- end of {name} -->")
        lines = _charts(part.values()) if name == "charts" else _table(part)
        text = head + begin + "\n".join(lines) + "\n" + end + tail
    return text


def _charts(charts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield from table_head(["charts", "reported", "as a clear change", "called steady", "false", "may be"])
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for one in charts:
        changed = "all benchmarks" if one["shared"] else "one benchmark"
        kinds.setdefault(changed if one["of"] else "no change", []).append(one)
    flat = kinds.pop("no change")
    kinds |= {"**all**": [one for found in kinds.values() for one in found], "no change": flat}
    for kind, found in kinds.items():
        reported, sure = (sum(one[key] == one["of"] for one in found) for key in ("reported", "sure"))
        others = (sum(bool(one[key]) for one in found) for key in ("steady", "false", "possible"))
        figures = (
            (f"{reported} of {len(found)}", str(sure)) if found[0]["of"] else (f"- of {len(found)}", "-")
        )
        yield table_row([kind, *figures, *map(str, others)])


def _table(series: Mapping[str, Any]) -> Iterator[str]:
    halves = {
        "all": list(series),
        "first half": [name for name in series if not is_held_back(name)],
        "held back": [name for name in series if is_held_back(name)],
    }
    columns = [f"F1: {half} ({len(names)})" for half, names in halves.items()]
    yield from table_head(["method", *columns, "cover"])
    methods = {method for one in series.values() for method in one["scores"]}
    means = {
        method: [
            *(_mean(series, names, method, "f1") for names in halves.values()),
            _mean(series, series, method, "cover"),
        ]
        for method in methods
    }
    for method in sorted(means, key=lambda one: -means[one][0]):
        # Those that do worse than to report nothing are many.
        if method == "perfkit" or means[method][0] >= means["nothing"][0]:
            name = f"**{method}**" if method == "perfkit" else method
            yield table_row([name, *(f"{value:.3f}" for value in means[method])])


def _mean(series: Mapping[str, Any], names: Iterable[str], method: str, kind: str) -> float:
    """Return a mean score over the series that a method has one for."""
    found = [
        value for name in names if (value := series[name]["scores"].get(method, {}).get(kind)) is not None
    ]
    return sum(found) / len(found) if found else 0.0


if __name__ == "__main__":
    main()
