"""Reasons why code is hardly covered, and why changes of code are not seen, are about today's code."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from covered import ROOT, reasons, tables_of, units

EXPLAINED = tomllib.loads((ROOT / "tests/faults/equivalent.toml").read_text())
ENTRIES = [(name, entry) for name, entries in EXPLAINED.items() for entry in entries]


def _module(lines: int, run: int, branches: int, taken: int) -> dict[str, int]:
    return {
        "num_statements": lines,
        "covered_lines": run,
        "num_branches": branches,
        "covered_branches": taken,
    }


def test_the_reasons_for_little_coverage_are_about_modules_that_exist() -> None:
    """A module that was renamed or removed takes its reason along."""
    for module, why in reasons().items():
        assert module.startswith("perfkit/")
        assert (ROOT / module).is_file()
        assert why.endswith(".")


def test_each_folder_and_file_of_tests_is_run() -> None:
    """None is forgotten: together they have every file of tests."""
    known = [ROOT / unit for unit in units()]

    for file in (ROOT / "tests").rglob("test_*.py"):
        assert any(one in (file, *file.parents) for one in known)


def test_the_tables_have_the_packages_and_what_is_below_nine_tenths() -> None:
    """Shares are those of all lines of a package; a module is told by lines and branches together."""
    found = {
        "perfkit/a.py": _module(10, 10, 0, 0),
        "perfkit/b/c.py": _module(90, 81, 10, 9),
        "perfkit/b/d/e.py": _module(10, 9, 10, 8),
    }

    lines = tables_of(found, {"perfkit/b/d/e.py": "It is young."}).splitlines()

    assert "| `perfkit` | 1 | 100.0 % | none |" in lines
    assert "| `perfkit/b` | 2 | 90.0 % | 85.0 % |" in lines
    assert "| `all` | 3 | 90.9 % | 85.0 % |" in lines
    assert ["| `perfkit/b/d/e.py` | 90.0 % | 80.0 % | It is young. |"] == lines[-1:]
    assert not any("c.py" in line for line in lines)


@pytest.mark.parametrize(("name", "entry"), ENTRIES)
def test_an_explained_change_is_one_of_todays_code(name: str, entry: dict[str, object]) -> None:
    """Its line is still there, so that an explanation does not outlive what it explains."""
    assert str(entry["why"]).endswith(".")
    if name == "everywhere":
        assert entry["part"]
        assert entry["changes"]
        return
    lines = {" ".join(line.split()) for line in Path(ROOT / name).read_text().splitlines()}
    assert entry["line"] in lines
    assert entry["becomes"]
    assert entry["line"] not in list(entry["becomes"])  # type: ignore[call-overload]
