"""Identity of a benchmark's source, and proof of which code was measured."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from perfkit.measure.source import foreign_modules, source_version


def _load(folder: Path, body: str, name: str) -> ModuleType:
    file = folder / f"{name}.py"
    file.write_text(body)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_version_is_that_of_the_functions_own_source(tmp_path: Path) -> None:
    """A change elsewhere in the file keeps the version; one in the function does not."""
    body = "{}\ndef test_a(benchmark):\n    benchmark(sum, {})\n"
    one = _load(tmp_path, body.format("SIZES = 1", "[1]"), "one")
    other_size = _load(tmp_path, body.format("SIZES = 2", "[1]"), "other_size")
    other_body = _load(tmp_path, body.format("SIZES = 1", "[1, 2]"), "other_body")

    versions = [source_version(module.test_a) for module in (one, other_size, other_body)]

    assert versions[0] == versions[1]
    assert versions[0] != versions[2]
    assert 16 == len(versions[0])


def test_a_module_of_another_checkout_is_foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that exists in the root must have come from there, in src as well."""
    elsewhere = tmp_path / "elsewhere"
    root = tmp_path / "root"
    for folder in (elsewhere, root / "src" / "shadowed", root):
        folder.mkdir(parents=True, exist_ok=True)
    (root / "src" / "shadowed" / "__init__.py").write_text("")
    module = _load(elsewhere, "x = 1", "shadowed")
    monkeypatch.setitem(sys.modules, "shadowed", module)

    assert {"shadowed": str(elsewhere / "shadowed.py")} == foreign_modules(root)
    assert {} == foreign_modules(elsewhere)
