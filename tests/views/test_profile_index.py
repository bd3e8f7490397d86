"""The index of profiles is a table made of the saved summaries."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from perfkit.model import Commit, Environment, Machine, PassSummary, ProfileSummary
from perfkit.report.profiles_index import render_index

SUMMARY = ProfileSummary(
    schema_version=1,
    name="first_profile",
    target="train",
    arguments=("--epochs", "1"),
    recorded_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    commit=Commit(sha="a" * 40),
    machine=Machine(machine_id="m1", facts={}),
    environment=Environment(env_id="e1", facts={}),
    configuration={},
    passes=(
        PassSummary(
            name="clean", total_s=4.0, step_s=(1.0, 0.5, 0.5), samples=30, data_wait_s=1.0, data_workers=0
        ),
    ),
    entries=(),
    artifacts=("first_profile.stat", "first_profile_filtered.txt"),
)


def test_a_profile_is_a_row() -> None:
    """Name, date, commit, target, steps, times, wait and files."""
    assert (
        "| first_profile | 2026-01-02 03:04 | aaaaaaaaaa | `train --epochs 1` | 3 | 4.00 s | 500 ms | 50.0 ms"
        " | 25.0 % | [stat](first_profile.stat), [filtered.txt](first_profile_filtered.txt) |"
    ) == render_index([SUMMARY]).splitlines()[2]


def test_a_trace_is_named_without_a_link() -> None:
    """A trace is not kept with the other files, so nothing leads to it."""
    text = render_index([replace(SUMMARY, artifacts=("first_profile.trace.json.gz",))])
    assert text.endswith("| trace.json.gz |")


def test_rows_are_in_order_of_time() -> None:
    """The oldest profile comes first, in whatever order they were found."""
    later = replace(SUMMARY, name="second", recorded_at=datetime(2026, 2, 1, tzinfo=UTC))
    text = render_index([later, SUMMARY])
    assert text.index("| first_profile") < text.index("| second")
    assert text == render_index([SUMMARY, later])


def test_unknown_is_a_dash() -> None:
    """A profile without commit, steps or loader has dashes and no zeros."""
    bare = PassSummary(name="clean", total_s=4.0, step_s=(), samples=None)
    row = render_index([replace(SUMMARY, commit=None, passes=(bare,))]).splitlines()[2]
    assert " | - | `train --epochs 1` | 0 | 4.00 s | - | - | - | " in row


def test_damaged_files_are_named() -> None:
    """A summary that cannot be read is told below the table."""
    assert (
        "- `old.json` cannot be read: cut" == render_index([], damaged={"old.json": "cut"}).splitlines()[-1]
    )


def test_names_and_reasons_of_damaged_files_are_no_markup() -> None:
    """Whatever a file is called, and whatever is in it."""
    (line,) = render_index([], damaged={"a`b.json": "no <b>"}).splitlines()[2:][-1:]

    assert "- `` a`b.json `` cannot be read: no \\<b>" == line


def test_a_pipe_does_not_break_the_table() -> None:
    """A vertical bar in an argument is escaped."""
    assert r"a\|b" in render_index([replace(SUMMARY, arguments=("a|b",))])
