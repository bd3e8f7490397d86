"""Identities are stable."""

from __future__ import annotations

import uuid
from pathlib import Path

from modules import load_module

from perfkit.identity import fingerprint, new_run_id
from perfkit.runner.targets import function_version


def test_a_version_is_that_of_the_functions_own_source(tmp_path: Path) -> None:
    body = "{}\ndef test_a(benchmark):\n    benchmark(sum, {})\n"
    one = load_module(tmp_path, body.format("SIZES = 1", "[1]"), "one")
    other_size = load_module(tmp_path, body.format("SIZES = 2", "[1]"), "other_size")
    other_body = load_module(tmp_path, body.format("SIZES = 1", "[1, 2]"), "other_body")

    versions = [function_version(module.test_a) for module in (one, other_size, other_body)]

    assert versions[0] == versions[1]
    assert versions[0] != versions[2]
    assert 16 == len(versions[0])


def test_the_order_of_facts_does_not_matter() -> None:
    assert fingerprint({"a": "1", "b": "2"}) == fingerprint({"b": "2", "a": "1"})
    assert fingerprint({"a": "1"}) != fingerprint({"a": "2"})


def test_run_ids_are_uuids_that_sort_by_time() -> None:
    ids = [uuid.UUID(new_run_id()) for _ in range(50)]

    assert {7} == {found.version for found in ids}
    stamps = [found.int >> 80 for found in ids]
    assert sorted(stamps) == stamps
