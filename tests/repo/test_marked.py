"""Markers are found in source alone: nothing is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.repo.source import marked_benchmarks

MARK = "@pytest.mark.perfkit(sentinel=True)"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (f"{MARK}\ndef test_a(benchmark): ...\ndef test_b(benchmark): ...", {"b.py::test_a"}),
        (f"{MARK}\nasync def test_a(benchmark): ...", {"b.py::test_a"}),
        (f"@other\n{MARK}\ndef test_a(benchmark): ...", {"b.py::test_a"}),
        (f"{MARK}\nclass TestA:\n def test_a(self): ...", {"b.py::TestA::test_a"}),
        (f"class TestA:\n {MARK}\n def test_a(self): ...\n def test_b(self): ...", {"b.py::TestA::test_a"}),
        ("pytestmark = pytest.mark.perfkit(sentinel=True)\ndef test_a(): ...", {"b.py::test_a"}),
        ("pytestmark = [x, pytest.mark.perfkit(sentinel=True)]\ndef test_a(): ...", {"b.py::test_a"}),
        ("@pytest.mark.perfkit(sentinel=False)\ndef test_a(): ...", set()),
        ("@pytest.mark.perfkit(margin='5%')\ndef test_a(): ...", set()),
        ("@pytest.mark.other(sentinel=True)\ndef test_a(): ...", set()),
        ("def test_a(:", set()),
        ("\0", set()),
    ],
)
def test_the_marker_may_stand_wherever_pytest_takes_one(
    tmp_path: Path, source: str, expected: set[str]
) -> None:
    """At a function, at its class and in the module; a file that is no Python has none."""
    file = tmp_path / "b.py"
    file.write_text(source)

    assert expected == marked_benchmarks([file], tmp_path, "sentinel")


def test_a_file_that_is_gone_has_no_marker(tmp_path: Path) -> None:
    """It may have been removed since it was listed."""
    assert frozenset() == marked_benchmarks([tmp_path / "b.py"], tmp_path, "sentinel")
