"""These helpers make modules for a test, and load the scripts of a study."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


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


@contextmanager
def study_scripts(folders: tuple[str, ...], names: tuple[str, ...]) -> Iterator[dict[str, ModuleType]]:
    """Load scripts of some folders of ``benchmarks`` as they load one another, and forget them afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        for folder in folders:
            patch.syspath_prepend(str(BENCHMARKS / folder))
        yield {name: importlib.import_module(name) for name in names}
    for name in names:
        sys.modules.pop(name, None)
