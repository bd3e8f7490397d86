"""Each acceptance is one immutable file on disk, and those that apply to a gate are found."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from synthetic import START

from perfkit.errors import LedgerError
from perfkit.ledger.annotations import KeptAcceptance, acceptances_for, keep_acceptance

HEAD, BASE = "a" * 40, "b" * 40
ACCEPTANCE = KeptAcceptance(
    benchmark="bench_a.py::test_a[µ: 1]",
    reason="Größer, but right",
    commit=HEAD,
    author="A. Tester",
    verdict="REGRESSED",
    ratio=1.08,
    counts={"operators": 200.0},
    run_id="run-1",
    recorded_at=START,
)


def test_what_is_kept_is_what_is_read(tmp_path: Path) -> None:
    file = keep_acceptance(tmp_path, ACCEPTANCE)

    assert (ACCEPTANCE,) == acceptances_for(tmp_path, {HEAD}, None)
    assert [file] == list((tmp_path / "acceptances").iterdir())
    assert {
        "benchmark": "bench_a.py::test_a[µ: 1]",
        "reason": "Größer, but right",
        "commit": HEAD,
        "author": "A. Tester",
        "verdict": "REGRESSED",
        "ratio": 1.08,
        "counts": {"operators": 200.0},
        "uncounted": [],
        "run_id": "run-1",
        "recorded_at": "2026-01-02T03:04:05Z",
        "diff_hash": None,
        "code": None,
        "change": None,
        "parts": [],
        "version": None,
    } == json.loads(file.read_text(encoding="utf-8"))


def test_each_is_a_new_file(tmp_path: Path) -> None:
    first = keep_acceptance(tmp_path, ACCEPTANCE)
    content = first.read_bytes()
    later = replace(ACCEPTANCE, reason="Later", recorded_at=START + timedelta(minutes=1))
    keep_acceptance(tmp_path, later)

    assert content == first.read_bytes()
    assert (later, ACCEPTANCE) == acceptances_for(tmp_path, {HEAD}, None)


def test_a_commit_outside_the_range_does_not_count(tmp_path: Path) -> None:
    keep_acceptance(tmp_path, ACCEPTANCE)

    assert () == acceptances_for(tmp_path, {BASE}, None)
    assert () == acceptances_for(tmp_path / "nowhere", {HEAD}, None)


@pytest.mark.parametrize(
    ("accepted", "gated", "applies"),
    [(None, None, True), (None, "d1", True), ("d1", "d1", True), ("d1", "d2", False), ("d1", None, False)],
)
def test_uncommitted_changes_are_accepted_only_as_they_were(
    tmp_path: Path, accepted: str | None, gated: str | None, *, applies: bool
) -> None:
    keep_acceptance(tmp_path, replace(ACCEPTANCE, diff_hash=accepted))

    assert int(applies) == len(acceptances_for(tmp_path, {HEAD}, gated))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = keep_acceptance(tmp_path, ACCEPTANCE)
    fields = json.loads(file.read_text(encoding="utf-8"))
    unjudged = ({**fields, "verdict": None}, {key: one for key, one in fields.items() if key != "verdict"})

    for damage in ("{", "[]", "{}", '{"verdict": "PARDONED"}', "\xff", *map(json.dumps, unjudged)):
        file.write_bytes(damage.encode("latin-1"))
        with pytest.raises(LedgerError, match=f"{file} is not a readable acceptance; bring it back or del"):
            acceptances_for(tmp_path, {HEAD}, None)


def test_what_cannot_be_kept_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"cannot keep the acceptance in .*surrogates not allowed"):
        keep_acceptance(tmp_path, replace(ACCEPTANCE, reason="\udcff"))
    assert [] == list((tmp_path / "acceptances").glob("*"))

    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LedgerError, match="cannot keep the acceptance in"):
        keep_acceptance(tmp_path / "file", ACCEPTANCE)
