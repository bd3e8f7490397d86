"""What can be imported here, so that advice never names a package that a person already has."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys


def is_of_another_system(module: str) -> bool:
    """Tell whether a module is one of Python's own that this system lacks, as ``winreg`` is of Windows."""
    name = module.partition(".")[0]
    return name in sys.stdlib_module_names and not _can_be_found(name)


def why_not_found(module: str) -> str | None:
    """Return why a module that is here, or Python's own, is not imported; None where it is neither."""
    name = module.partition(".")[0]
    if is_of_another_system(name):
        return f"{name} is a module of Python's own that this system lacks"
    packages = importlib.metadata.packages_distributions().get(name)
    if packages:
        return f"{packages[0]} is installed here, but {module} is not found in it"
    if _can_be_found(name):
        return f"{name} can be imported here, but {module} is not found from this code"
    return None


def _can_be_found(name: str) -> bool:
    try:
        return name in sys.builtin_module_names or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
