"""Identity of a benchmark's own source, and proof of which code was measured."""

from __future__ import annotations

import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

_DIGITS = 16


def source_version(function: Callable[..., object]) -> str:
    """Return 16 hex digits of the SHA-256 of a function's own source, indentation and line ends aside.

    Decorators belong to the source; what they refer to does not, so a new parameter value begins a new
    benchmark and leaves the others their history.
    """
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    except (OSError, TypeError):
        source = f"{function.__module__}.{function.__qualname__}"
    lines = "\n".join(line.rstrip() for line in source.splitlines())
    return hashlib.sha256(lines.encode()).hexdigest()[:_DIGITS]


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
