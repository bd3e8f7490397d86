"""The proof of which code was measured finds every module that came from elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from modules import load_module

from perfkit.agent.provenance import foreign_modules


def test_a_module_of_another_checkout_is_foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that exists in the root must have come from there, in src as well."""
    elsewhere = tmp_path / "elsewhere"
    root = tmp_path / "root"
    for folder in (elsewhere, root / "src" / "shadowed", root):
        folder.mkdir(parents=True, exist_ok=True)
    (root / "src" / "shadowed" / "__init__.py").write_text("")
    module = load_module(elsewhere, "x = 1", "shadowed")
    monkeypatch.setitem(sys.modules, "shadowed", module)

    assert {"shadowed": str(elsewhere / "shadowed.py")} == foreign_modules(root)
    assert {} == foreign_modules(elsewhere)
