"""Proof of which code was measured."""

from __future__ import annotations

import sys
from pathlib import Path


def foreign_modules(root: Path) -> dict[str, str]:
    """Return the loaded modules whose top-level name exists in ``root`` but that came from elsewhere.

    Names are looked for in ``root`` and ``root/src``. An empty result proves that what was measured is the
    code of ``root``.
    """
    root = root.resolve()
    loaded = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return {
        name: file
        for name, file in loaded.items()
        if file is not None
        and _exists_in(root, name.partition(".")[0])
        and not Path(file).resolve().is_relative_to(root)
    }


def _exists_in(root: Path, name: str) -> bool:
    candidates = (root / name, root / "src" / name)
    return any(path.with_suffix(".py").is_file() or _holds_python(path) for path in candidates)


def _holds_python(folder: Path) -> bool:
    return folder.is_dir() and next(folder.glob("*.py"), None) is not None
