"""Saved summaries can be read again, and damaged ones are named."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perfkit.errors import UsageError
from perfkit.model import Commit, Environment, Machine, PassSummary, ProfileEntry, ProfileSummary
from perfkit.profiling.read.summary_file import encode_summary, load_summary, may_be_summary

SUMMARY = ProfileSummary(
    schema_version=1,
    name="first_profile",
    target="train",
    arguments=("--epochs", "1"),
    recorded_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    commit=Commit(sha="a" * 40, time=datetime(2026, 1, 2, tzinfo=UTC), subject="Start", branch="main"),
    machine=Machine(machine_id="m1", facts={"cpu": "Test CPU"}),
    environment=Environment(env_id="e1", facts={"torch": "2.13.0"}),
    configuration={"steps": "all"},
    passes=(PassSummary(name="clean", total_s=1.5, step_s=(1.0, 0.25), samples=None),),
    entries=(
        ProfileEntry(file="a.py", line=1, function="f", calls=2, own_s=0.1, cumulative_s=0.2, kind="own"),
    ),
    artifacts=("first_profile.json",),
)


def test_summary_round_trips(tmp_path: Path) -> None:
    """What was saved is read back, unknowns as None."""
    (tmp_path / "x.json").write_bytes(encode_summary(SUMMARY))
    assert SUMMARY == load_summary(tmp_path / "x.json")


def test_half_a_file_is_told(tmp_path: Path) -> None:
    """A file cut in half ends in one line that names it."""
    data = encode_summary(SUMMARY)
    (tmp_path / "x.json").write_bytes(data[: len(data) // 2])
    with pytest.raises(UsageError, match=r"x\.json is damaged or no saved profile"):
        load_summary(tmp_path / "x.json")


def test_newer_schema_is_told(tmp_path: Path) -> None:
    """A summary of a later perfkit is refused with both versions."""
    (tmp_path / "x.json").write_bytes(encode_summary(replace(SUMMARY, schema_version=99)))
    with pytest.raises(UsageError, match=r"schema version 99.*up to 1"):
        load_summary(tmp_path / "x.json")


def test_missing_file_is_told(tmp_path: Path) -> None:
    """A file that is not there cannot be read."""
    with pytest.raises(UsageError, match="cannot read"):
        load_summary(tmp_path / "x.json")


def test_other_documents_are_no_profiles(tmp_path: Path) -> None:
    """A flame graph, a list and what another command wrote are not damaged; half a file may be."""
    whole = encode_summary(SUMMARY)
    documents = {
        "profile": (whole, True),
        "half": (whole[:100], True),
        "half a number": (b"1.", True),
        "speedscope": (b'{"$schema": "x", "profiles": []}', False),
        "bisect": (b'{"schema": {}, "schema_version": 1}', False),
        "list": (b"[1]", False),
    }
    for name, (data, _) in documents.items():
        (tmp_path / name).write_bytes(data)

    assert {name: told for name, (_, told) in documents.items()} == {
        name: may_be_summary(tmp_path / name) for name in documents
    }
    assert may_be_summary(tmp_path / "missing")
