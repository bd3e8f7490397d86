"""These helpers make modules for a test."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def load_module(folder: Path, body: str, name: str) -> ModuleType:
    """Write a module into a folder and return it, loaded but not in ``sys.modules``."""
    file = folder / f"{name}.py"
    file.write_text(body)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
