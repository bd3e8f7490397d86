"""The documents of perfkit's own experiments and tricks state what the committed ledger states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfkit.features.experiments import command as experiment
from perfkit.features.tricks import command as tricks

ROOT = Path(__file__).parent.parent
LEDGER = ROOT / "benchmarks" / "ledger"
MEASURED = ROOT / "docs" / "measured"
DOCUMENTS = sorted((MEASURED / "experiments").glob("*.md"))
TRICKS = sorted((MEASURED / "tricks").glob("*.md"))
SECTIONS = [
    pytest.param(run, section, id=run)
    for section in (MEASURED / "experiments.md").read_text().split("\n## ")[1:]
    for run in re.findall(r"[Rr]un\s`([0-9a-f-]+)`", section)
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.stem)
def test_a_report_is_what_the_ledger_holds(document: Path, tmp_path: Path) -> None:
    named = re.search(r"run `([0-9a-f-]{36})`", document.read_text())
    assert named is not None

    experiment.write_document(
        experiment.recorded_experiment(named[1], ledger=LEDGER), tmp_path / document.name
    )

    assert document.read_text() == (tmp_path / document.name).read_text()
    picture = document.with_suffix(".svg")
    assert picture.read_text() == (tmp_path / picture.name).read_text()


@pytest.mark.parametrize("document", TRICKS, ids=lambda document: document.stem)
def test_tricks_are_reported_as_the_ledger_has_them(document: Path, tmp_path: Path) -> None:
    named = re.search(r"run `([0-9a-f]{12})`", document.read_text())
    assert named is not None

    tricks.write_document(tricks.recorded_tricks(named[1], ledger=LEDGER), tmp_path / document.name)

    assert document.read_text() == (tmp_path / document.name).read_text()
    for picture in tmp_path.glob("*.svg"):
        assert document.with_suffix(".svg").read_text() == picture.read_text()


@pytest.mark.parametrize(("run", "section"), SECTIONS)
def test_the_summary_has_the_figures_of_the_reports(run: str, section: str, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    if "-" in run:
        experiment.write_document(experiment.recorded_experiment(run, ledger=LEDGER), report)
    else:
        tricks.write_document(tricks.recorded_tricks(run, ledger=LEDGER), report)
    lines = report.read_text().splitlines()

    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 2
    assert [] == [row for row in rows if not any(line.startswith(row) for line in lines)]


def test_there_are_reports() -> None:
    assert DOCUMENTS
    assert TRICKS
    assert 6 == len(SECTIONS)
