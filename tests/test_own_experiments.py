"""perfkit's own experiments and tricks are told as the committed ledger has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfkit.jobs.experiment import recorded_experiment, write_document

ROOT = Path(__file__).parent.parent
LEDGER = ROOT / "benchmarks" / "ledger"
DOCUMENTS = sorted((ROOT / "docs" / "experiments").glob("*.md"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.stem)
def test_a_report_is_what_the_ledger_says(document: Path, tmp_path: Path) -> None:
    """Rendered anew from the rows of its run, text and picture are the same to the letter."""
    named = re.search(r"run `([0-9a-f-]{36})`", document.read_text())
    assert named is not None

    write_document(recorded_experiment(named[1], ledger=LEDGER), tmp_path / document.name)

    assert document.read_text() == (tmp_path / document.name).read_text()
    picture = document.with_suffix(".svg")
    assert picture.read_text() == (tmp_path / picture.name).read_text()


def test_there_are_reports() -> None:
    """The check above cannot pass by finding nothing."""
    assert DOCUMENTS
