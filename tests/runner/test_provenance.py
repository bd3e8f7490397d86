"""The proof of which code was measured finds every module that came from elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from modules import load_module

from perfkit.agent.provenance import foreign_modules


def test_a_module_that_the_code_wrote_while_it_ran_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, temporary = tmp_path / "root", tmp_path / "temporary"
    for folder in (root / "writes", temporary):
        folder.mkdir(parents=True)
    package = load_module(root / "writes", "", "__init__")
    package.__path__ = [str(root / "writes")]
    package.__name__ = "writes"
    monkeypatch.setitem(sys.modules, "writes", package)
    written = load_module(temporary, "x = 1", "layer_a1b2")
    written.__name__ = "writes.layer"
    monkeypatch.setitem(sys.modules, "writes.layer", written)
    file = temporary / "layer_a1b2.py"

    made = file.stat().st_mtime
    assert {"writes.layer": str(file)} == foreign_modules(root)
    assert {} == foreign_modules(root, made_since=made)
    assert {"writes.layer": str(file)} == foreign_modules(root, made_since=made + 1)
    # What the tree holds has to come from there, whenever the other file was written.
    (root / "writes" / "layer.py").write_text("")
    monkeypatch.setitem(sys.modules, "writes", load_module(temporary, "", "writes"))
    assert "writes" in foreign_modules(root, made_since=made)
