"""The history in the terminal shows first what asks for attention, and why, in plain words."""

from __future__ import annotations

from dataclasses import replace

from rendered import rendered
from synthetic_history import step_of, trend

from perfkit.model.history import CommitFacts, HistoryReport
from perfkit.report.history import history_view

WIDTH = 80


def _text(report: HistoryReport) -> str:
    return rendered(history_view(report), WIDTH)


def _lines(report: HistoryReport) -> str:
    return " ".join(_text(report).split())


def _report(**changes: object) -> HistoryReport:
    measured = trend(steps={30: 1.1}, runs=60)
    return replace(HistoryReport(trends=(measured,)), **changes)  # type: ignore[arg-type]


def test_texts_of_others_cannot_steer_the_terminal() -> None:
    report = _report()
    bad = "x\x1b[31m\x07\nred"
    named = replace(report.trends[0], benchmark=f"b.py::{bad}")
    point = replace(step_of(named, 30), benchmark=named.benchmark, commits=1)
    ignored = replace(point, state="ignored", reason=bad, point_id="ffffffff")
    facts = {point.first_after: CommitFacts(sha=point.first_after, subject=bad)}

    text = _text(HistoryReport(trends=(named,), points=(point, ignored), commits=facts))

    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.count("\\x1b[31m") >= 3
    assert all(len(line) <= WIDTH for line in text.splitlines())


def test_a_name_in_a_command_is_quoted() -> None:
    one = trend(steps={}, runs=12)
    many = tuple(replace(one, benchmark=f"b.py::test_x[{number}]") for number in range(41))

    text = _lines(_report(trends=many))

    assert "and 1 more: name a benchmark, as in `perfkit history 'test_x[9]'`" in text
