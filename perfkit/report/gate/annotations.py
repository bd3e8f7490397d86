"""A gate's findings as annotations of GitHub's: each at the line of code that is named for it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfkit.errors import EXIT_PASS
from perfkit.model.comparisons import Comparison, ExactComparison, Explanation, GateReport, exit_code
from perfkit.model.counters import TITLES
from perfkit.report.counts import amount_text, signed_amount
from perfkit.report.gate.wording import decides, details, slower_text, slowest_part
from perfkit.report.names import short_names

_PLACE = re.compile(r"(?P<file>[^:()<>]+\.py):(?P<line>\d+)$")
# The line at which an error was raised, at the end of its message.
_RAISED = re.compile(r"\((?P<place>[^:()<>]+\.py:\d+)\)$")
# GitHub shows so many of a step.
_MOST = 10


def annotation_lines(report: GateReport) -> tuple[str, ...]:
    """Return workflow commands: an error for what fails, a warning for what could not be decided."""
    names = short_names(found.benchmark.name for found in report.comparisons)
    explained = {one.benchmark: one for one in report.explanations}
    times = [
        _of_time(found, names[found.benchmark.name], explained.get(found.benchmark.name))
        for found in report.comparisons
        if decides(found) and _fails(found)
    ]
    counts = [line for one in report.exact if decides(one) and _fails(one) for line in _of_count(one)]
    other = () if report.against is None else annotation_lines(report.against)
    return (*times, *counts, *other)[:_MOST]


def _fails(found: Comparison | ExactComparison) -> bool:
    return found.verdict not in {"NEW", "SKIPPED"} and exit_code((found,)) != EXIT_PASS


def _level(found: Comparison | ExactComparison) -> str:
    return "warning" if found.verdict in {"INCONCLUSIVE", "NOT REACHED"} else "error"


def _of_time(found: Comparison, name: str, explanation: Explanation | None) -> str:
    if found.verdict == "REGRESSED" and found.estimate is not None:
        said = f"{name} is {slower_text(found.estimate)}"
    else:
        said = f"{name}: {found.verdict}{''.join(f'; {one}' for one in details(found))}"
    part = slowest_part(explanation)
    if part is not None:
        said += f"; most of it in {part.name}"
    return _command(_level(found), said, part.place if part else _own_place(found))


def _own_place(found: Comparison) -> str:
    """Return the line of head's code that raised, or else the file of the benchmark."""
    message = found.message or ""
    raised = _RAISED.search(message)
    if raised is not None and not message.startswith("on base"):
        return raised["place"]
    return f"{found.benchmark.name.partition('::')[0]}:1"


def _of_count(count: ExactComparison) -> Iterator[str]:
    name = count.benchmark.name.rpartition("::")[2]
    said = f"{name}: {TITLES.get(count.metric.name, count.metric.name)} {count.verdict}"
    if count.base is not None and count.head is not None:
        said += f", {_move(count.base, count.head, count.metric.unit)}"
    places = [cause for cause in count.causes if cause.head > cause.base and _PLACE.search(cause.place)]
    if not places:
        yield _command(_level(count), said, None)
    for cause in places[:3]:
        yield _command(_level(count), f"{said}; {cause.what}", cause.place)


def _move(base: float, head: float, unit: str) -> str:
    """Return both amounts, or by how much they differ where they look alike when they are rounded."""
    before, after = amount_text(base, unit), amount_text(head, unit)
    return (
        f"from {before} to {after}" if before != after else f"{signed_amount(head - base, unit)} of {before}"
    )


def _command(level: str, text: str, place: str | None) -> str:
    """Return a workflow command; signs that would end its parts are written as GitHub has them."""
    match = _PLACE.search(place or "")
    told = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    if match is None:
        return f"::{level} title=perfkit::{told}"
    file = match["file"].strip()
    for sign, code in (("%", "%25"), (":", "%3A"), (",", "%2C"), ("\r", "%0D"), ("\n", "%0A")):
        file = file.replace(sign, code)
    return f"::{level} file={file},line={match['line']},title=perfkit::{told}"
