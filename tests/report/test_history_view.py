"""The history in the terminal shows first what asks for attention, and why, in plain words."""

from __future__ import annotations

from dataclasses import replace

from rendered import check_golden, rendered
from synthetic_history import step_of, trend

from perfkit.model.history import CommitFacts, Creep, GateRatio, HistoryReport, Shift, Silence
from perfkit.report.history import gate_sentence, history_view

WIDTH = 80


def _text(report: HistoryReport) -> str:
    return rendered(history_view(report), WIDTH)


def _lines(report: HistoryReport) -> str:
    return " ".join(_text(report).split())


def _report(**changes: object) -> HistoryReport:
    measured = trend(steps={30: 1.1}, runs=60)
    return replace(HistoryReport(trends=(measured,)), **changes)  # type: ignore[arg-type]


def test_alarms_are_reported_each_in_its_words() -> None:
    report = _report()
    one = report.trends[0]
    shift = Shift(
        machine_id=one.machine_id,
        last_before=one.commits[3],
        first_after=one.commits[4],
        at=one.recorded_at[4],
        benchmarks=11,
        measured=12,
        ratio=1.1,
        low=1.08,
        high=1.12,
    )
    drift = Creep(
        benchmark=one.benchmark,
        machine_id=one.machine_id,
        since=one.commits[0],
        until=one.commits[-1],
        ratio=1.08,
        low=1.06,
        high=1.1,
        margin=0.02,
    )
    silence = Silence(
        benchmark=one.benchmark,
        machine_id=one.machine_id,
        last_commit=one.commits[-1],
        last_at=one.recorded_at[-1],
        days=20,
        commits=0,
    )

    point = step_of(one, 30)
    gate = GateRatio(ratio=1.05, low=1.04, high=1.06, alpha=0.01)
    points = (
        replace(point, gate=gate),
        replace(point, state="accepted", reason="Wanted"),
        replace(point, cause="environment", detail="torch 2.12 -> 2.13"),
    )
    check_golden(
        "alarms",
        _text(replace(report, shifts=(shift,), creeps=(drift,), silences=(silence,))),
        *(_text(replace(report, points=(found,))) for found in points),
    )


def test_a_gate_that_excludes_nothing_is_not_mentioned() -> None:
    point = step_of(trend(steps={30: 1.12}), 30)
    gates = [GateRatio(ratio=1.3, low=low, high=49.2, alpha=0.01) for low in (0.035, 1.02)]

    assert [False, True] == [bool(gate_sentence(replace(point, gate=gate))) for gate in gates]


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


def test_findings_have_their_machine_where_there_are_several() -> None:
    one = trend(steps={30: 1.1}, runs=60)
    other = replace(one, machine_id="beefbeefbeef")
    points = (
        replace(step_of(one, 30), point_id="aaaaaaaa"),
        replace(step_of(one, 30), machine_id="beefbeefbeef", point_id="bbbbbbbb", state="accepted"),
    )

    lines = _text(HistoryReport(trends=(one, other), points=points)).splitlines()
    (opened,) = [line for line in lines if line.startswith("aaaaaaaa")]
    (accepted,) = [line for line in lines if line.startswith("bbbbbbbb")]

    assert f"(machine {one.machine_id[:4]}): " in opened
    assert "(machine beef): " in accepted
    alone = _text(HistoryReport(trends=(one,), points=points[:1]))
    assert "machine" not in alone
