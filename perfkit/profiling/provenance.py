"""Proof of code: what a checkout has, a pass must have imported from there."""

from __future__ import annotations

import sys
from pathlib import Path


def modules_from_elsewhere(root: Path) -> dict[str, str]:
    """Return the loaded modules, by name with their files, that ``root`` has but that came from elsewhere."""
    own = {name for place in (root, root / "src") if place.is_dir() for name in _top_level(place)}
    return {
        name: file
        for name, module in sorted(sys.modules.items())
        if name.partition(".")[0] in own
        and (file := getattr(module, "__file__", None)) is not None
        and not Path(file).resolve().is_relative_to(root.resolve())
    }


def _top_level(folder: Path) -> set[str]:
    """Return the names that can be imported from a folder."""
    packages = {path.name for path in folder.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    modules = {path.stem for path in folder.glob("*.py")}
    # A module of the standard library is loaded long before the project's folder is searched.
    return (packages | modules) - sys.stdlib_module_names
