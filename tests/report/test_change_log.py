"""The change log shows the right run in each cell, and rewrites only the marked part of a file."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from synthetic import ENVIRONMENT, MACHINE, build_row

from perfkit.commands.text_files import replace_between_markers
from perfkit.errors import ConfigError, UsageError
from perfkit.gating.rows import comparison_of, gate_ratio
from perfkit.ledger.history.change_log import build_change_log, most_measured
from perfkit.ledger.store import Ledger
from perfkit.model import TYPICAL_TIME, Environment, Machine, Row, Side, Source
from perfkit.model.comparisons import Policy, Verdict
from perfkit.model.history import Cell, ChangeLog, Column, History
from perfkit.model.policies import JudgedPolicy, judged_policy
from perfkit.report.change_log import render_change_log

A, B, C = "a" * 40, "b" * 40, "c" * 40
RULES = Policy(alpha=0.05, family=1, looks=(8, 12))
COLUMN = Column(title="`loss`", benchmark="test_a")
HISTORY = History(order={A: 0, B: 1, C: 2}, notes={})


def _log(rows: list[Row], history: History = HISTORY, columns: tuple[Column, ...] = (COLUMN,)) -> ChangeLog:
    """Return the log of a ledger that holds these rows."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder))
        if rows:
            ledger.append(rows)
        shown = columns or most_measured(ledger.timed_benchmarks())
        found = ledger.measurements([column.benchmark for column in shown])
        ratio_of = functools.partial(gate_ratio, ledger.times_of)
        return build_change_log(found, shown, history, gate_ratio_of=ratio_of)


def _cells(log: ChangeLog) -> list[Cell]:
    return [cell for entry in log.tables[0].entries for cell in entry.cells if cell is not None]


def _cell(rows: list[Row], entry: int = 0) -> Cell:
    return _cells(_log(rows))[entry]


def _interleaved(sha: str, *means: float, run: str = "run-1", minute: int = 0) -> list[Row]:
    return [
        build_row(mean, sha=sha, run=run, launch=block, block=block, minute=minute)
        for block, mean in enumerate(means)
    ]


def _gated(base: str, head: str, *ratios: float, launches: int = 8, run: str = "gate") -> list[Row]:
    """Return the rows of a gate in which launches take the ratios in turn."""
    policy = JudgedPolicy(rules=RULES, margin=0.02, gating=True)
    rows = []
    for launch in range(launches):
        for side, sha, factor in (("base", base, 1.0), ("head", head, ratios[launch % len(ratios)])):
            times = [factor * (1 + 0.001 * number) for number in range(5)]
            row = build_row(
                *times, sha=sha, run=run, launch=launch, block=launch, source="gate", policy=policy
            )
            place = replace(row.placement, side=cast("Side", side), preloader=launch // 8)
            rows.append(replace(row, placement=place))
    return rows


def test_rows_stand_in_history_order() -> None:
    rows = [build_row(1.0, sha=sha, run=sha) for sha in ("f" * 40, C, A, B)]

    assert [A, B, C, "f" * 40] == [entry.commit for entry in _log(rows).tables[0].entries]


def test_a_gate_on_a_busy_machine_gives_the_ratio_and_not_the_time() -> None:
    quiet = [build_row(0.25, sha=sha, run=f"quiet-{sha}") for sha in (A, B)]

    first, second = _cells(_log([*quiet, *_gated(A, B, 1.2)]))

    assert (0.25, 0.25) == (first.mean, second.mean)
    assert second.gate is not None
    assert 1.2 == pytest.approx(second.gate.ratio)


def test_a_ratio_needs_alternation_with_the_row_before() -> None:
    together = _interleaved(A, 1.0, 2.0) + _interleaved(B, 2.0, 4.0)
    apart = [build_row(1.0, sha=A, run="r1"), build_row(2.0, sha=B, run="r2", minute=5)]

    first, second = _cells(_log(together))
    assert second.ratio is not None
    assert pytest.approx(2.0) == second.ratio.value
    assert None is first.ratio
    assert None is _cell(apart, 1).ratio


def test_versions_of_a_benchmark_never_share_a_ratio() -> None:
    rows = [
        build_row(1.0, sha=A, block=0, version="v1"),
        build_row(2.0, sha=B, block=0, version="v2", minute=1),
    ]

    log = _log(rows)

    assert [(True, None), (False, None)] == [(cell.other_version, cell.ratio) for cell in _cells(log)]
    assert "‡ measured by an older version" in render_change_log(log)


def test_a_gate_shows_the_ratio_that_its_verdict_rests_on() -> None:
    rows = _gated(A, B, 1.10, 1.12)
    typical = [
        replace(
            row,
            outcome=replace(row.outcome, metric=TYPICAL_TIME, values=tuple(n / 1000 + 1 for n in range(5))),
        )
        for row in rows
    ]
    gate = _cell([*rows, *typical], 1).gate
    alone = _cell(rows, 1).gate
    found = comparison_of([*rows, *typical]).estimate

    assert found is not None
    assert gate is not None
    assert (found.ratio, found.low, found.high) == (gate.ratio, gate.low, gate.high)
    assert gate != alone


def test_a_gate_that_went_on_shows_the_ratio_of_all_its_launches() -> None:
    first = _gated(A, B, 1.00, 1.04, run="first")
    second = [
        replace(
            row,
            recorded_at=row.recorded_at + timedelta(minutes=1),
            policy=replace(judged_policy(row), continues=("first",)),
        )
        for row in _gated(A, B, 1.01, 1.03, run="second")
    ]
    gate = _cell([*first, *second], 1).gate
    found = comparison_of(second, [first]).estimate

    assert found is not None
    assert gate is not None
    assert (found.ratio, found.low, found.high) == (gate.ratio, gate.low, gate.high)


def test_a_gate_that_could_not_compare_a_benchmark_hides_no_measurement() -> None:
    measured = [build_row(3.0, sha=A, run="r1"), build_row(2.0, sha=B, run="r1")]
    policy = JudgedPolicy(rules=RULES, margin=0.02, gating=True)
    finding = build_row(
        sha=B, run="gate", minute=9, source="gate", side="head", status="skipped", message="x"
    )
    verdicts: tuple[Verdict, ...] = ("NEW", "MISSING", "CHANGED", "FAILED")
    new, *others, failed = (replace(finding, policy=replace(policy, verdict=verdict)) for verdict in verdicts)

    for one in (new, *others):
        assert 2.0 == _cell([*measured, one], 1).mean
    assert None is _log([measured[0], new]).tables[0].entries[1].cells[0]
    assert "skipped: x" == _cell([*measured, failed], 1).failure


def test_code_that_was_changed_on_purpose_is_no_commits() -> None:
    sources: tuple[Source, ...] = ("calibrate", "tricks")
    rows = [build_row(1.0, sha=A, run="r1"), build_row(1.1, sha=B, run="r1")]
    changed = [
        build_row(9.0, sha=B, run=source, minute=launch, launch=launch, source=source, dirty=launch == 3)
        for source in sources
        for launch in range(4)
    ]

    assert _log(rows) == _log([*rows, *changed])
    assert _log(rows, columns=()) == _log([*rows, *changed], columns=())


@pytest.mark.parametrize(("base", "head"), [(A, C), (C, B)])
def test_a_gate_shows_no_ratio_unless_its_base_is_the_row_before(base: str, head: str) -> None:
    rows = [*_gated(base, head, 1.5), *(build_row(1.0, sha=sha, run=sha) for sha in (A, B, C))]

    assert [(None, None)] * 3 == [(cell.gate, cell.ratio) for cell in _cells(_log(rows))]


def test_a_gate_of_uncommitted_changes_omits_its_base() -> None:
    gated = _gated(A, B, 1.5)
    dirty = [replace(row, commit=replace(row.commit, dirty=row.commit.sha == B)) for row in gated]

    log = _log([*dirty, build_row(7.0, sha=A, run="r2")])
    assert [A] == [entry.commit for entry in log.tables[0].entries]
    assert ([7.0], 1) == ([cell.mean for cell in _cells(log)], log.dirty_runs)


def test_an_interleaved_run_outranks_a_later_single_launch() -> None:
    rows = [
        *_interleaved(A, 1.0, 1.0),
        *_interleaved(B, 2.0, 2.0),
        build_row(9.0, sha=B, run="later", minute=9),
    ]

    cell = _cell(rows, 1)
    assert (2.0, 2) == (cell.mean, cell.launches)


def test_the_newest_run_decides_about_failure() -> None:
    good = build_row(1.0, run="r1")
    bad = build_row(run="r2", minute=1, status="error", message="ValueError: no | such thing")
    healed = build_row(2.0, run="r3", minute=2)

    log = _log([good, bad])

    assert ["failed: ValueError: no | such thing"] == [cell.failure for cell in _cells(log)]
    assert "failed: ValueError: no \\| such thing" in render_change_log(log)
    assert 2.0 == _cell([good, bad, healed]).mean


def test_a_commit_that_runs_the_same_code_names_a_measured_one() -> None:
    rows = [build_row(1.0, sha=A, run="1"), build_row(sha=B, run="2"), build_row(sha=C, run="3")]
    rows[1:] = [
        replace(row, outcome=replace(row.outcome, same_as=other, ran="0" * 16))
        for row, other in zip(rows[1:], (A, B), strict=True)
    ]

    log = _log(rows)

    cells = [entry.cells[0] for entry in log.tables[0].entries]
    assert [None, A, A] == [cell and cell.same_as for cell in cells]
    assert 2 == render_change_log(log).count(f"| same code as `{A[:10]}` |")
    # One that the same code was found of later is measured all the same.
    rows.append(build_row(2.0, sha=B, run="4"))
    measured = _cell(rows, 1)
    assert (2.0, None) == (measured.mean, measured.same_as)


def test_dirty_runs_are_left_out_and_counted() -> None:
    rows = [build_row(1.0), build_row(2.0, run="dirty", dirty=True, sha=B)]

    log = _log(rows)
    assert [A] == [entry.commit for entry in log.tables[0].entries]
    assert "Left out: 1 run on uncommitted changes." in render_change_log(log)


def test_each_machine_has_its_table() -> None:
    other = Machine(
        machine_id="m2", facts={"cpu": "Other", "logical_cpus": "8", "ram_gib": "64", "gpus": "H200"}
    )

    text = render_change_log(_log([build_row(1.0), build_row(1.0, machine=other, run="r2")]))

    assert "### Test CPU, 2 cores, 16 GiB (machine m1)" in text
    assert "### Other, 8 cores, 64 GiB, H200 (machine m2)" in text


def test_cells_of_another_environment_are_marked() -> None:
    other = Environment(env_id="e2", facts={"python": "CPython 3.12.0"})
    rows = [build_row(float(place + 1), sha=sha, run=sha) for place, sha in enumerate((A, B))]

    text = render_change_log(_log([*rows, build_row(3.0, sha=C, run="r3", environment=other)]))

    assert "\\\nEnvironment: python CPython 3.11.7, torch 2.13.0\\\n" in text
    assert "<sup>a</sup> Environment: as above, but python CPython 3.12.0, torch not set" in text
    assert "| 1.000, - † |" in text
    assert "| 3.000, - † <sup>a</sup> |" in text


def test_an_ambiguous_column_is_refused() -> None:
    rows = [build_row(1.0, name=f"{file}.py::test_a") for file in ("x", "y")]

    with pytest.raises(ConfigError, match=r"could mean x\.py::test_a or y\.py::test_a"):
        _log(rows)


def test_the_whole_log_is_as_it_was() -> None:
    rows = [
        *_interleaved(A, 0.5, 0.7),
        *_interleaved(B, 0.25, 0.35),
        build_row(
            sha=C,
            run="r2",
            minute=3,
            status="error",
            message="MemoryError: <none left>",
            subject="Use | pipes",
        ),
        build_row(2.0, 2.5, name="t.py::test_train", sha=C, run="r2", minute=3, subject="Use | pipes"),
    ]
    columns = (COLUMN, Column(title="Training loop", benchmark="t.py::test_train"))
    golden = Path(__file__).parent / "golden_change_log.md"

    assert golden.read_text() == render_change_log(_log(rows, columns=columns)) + "\n"
    assert (MACHINE, ENVIRONMENT) == (rows[0].machine, rows[0].environment)


BEGIN = "<!-- perfkit:log begin (written by perfkit; notes outside the markers are kept) -->"
END = "<!-- perfkit:log end -->"


def test_notes_around_the_markers_stay() -> None:
    before = replace_between_markers("# Title\n\nmy note\n", "old", name="log") + "\nafter\n"
    assert before.replace("old", "new") == replace_between_markers(before, "new", name="log")


def test_begin_marker_without_its_note_is_known() -> None:
    text = f"<!-- perfkit:log begin -->\nold\n{END}\n"
    assert f"{BEGIN}\n\nnew\n\n{END}\n" == replace_between_markers(text, "new", name="log")


def test_backslashes_in_the_block_are_text() -> None:
    once = replace_between_markers("", r"a\1b\g<0>", name="log")
    assert r"a\1b\g<0>" in replace_between_markers(once, r"a\1b\g<0>", name="log")


@pytest.mark.parametrize(
    "text",
    [
        f"{BEGIN}\nrows\n",
        f"rows\n{END}\n",
        f"{BEGIN}\n{BEGIN}\nrows\n{END}\n",
        f"{BEGIN}\nrows\n{END}\n{END}\n",
        f"{END}\nrows\n{BEGIN}\n",
    ],
)
def test_damaged_markers_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="perfkit:log begin"):
        replace_between_markers(text, "new", name="log")
