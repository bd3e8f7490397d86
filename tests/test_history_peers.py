"""What is reported of perfkit beside other tools on equal histories is what was measured."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT / "benchmarks/ledger_scale"


@pytest.fixture
def beside() -> Iterator[ModuleType]:
    """Return the script that times the tools."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        yield importlib.import_module("beside")
    for name in ("beside", "generate"):
        sys.modules.pop(name, None)


def test_the_document_has_the_table_of_the_outcomes(beside: ModuleType) -> None:
    kept = json.loads((SCRIPTS / "beside.json").read_text())

    assert beside.table(kept) in (ROOT / "docs/measured/speed.md").read_text()
    assert {"asv publish", "perfkit report", "perfkit log"} < kept["seconds"].keys()
