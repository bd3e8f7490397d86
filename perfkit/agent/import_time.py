"""Times what files of benchmarks import from the project, in a process that has imported none of it."""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from .channel import Message


def time_imports(root: Path, files: Sequence[str], own: Collection[str]) -> Message:
    """Return the seconds that the files' imports of ``own`` top-level names take, or the problem."""
    folders = dict.fromkeys(str((root / file).parent) for file in files)
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    try:
        statements = [one for file in files for one in _imports((root / file).read_bytes(), own)]
        code = compile(ast.Module(body=statements, type_ignores=[]), "<imports>", "exec")
        begun = time.perf_counter()
        exec(code, {"__name__": "<imports>"})  # noqa: S102 (the benchmarks run the same)
        return {"seconds": time.perf_counter() - begun}
    except (Exception, SystemExit) as error:  # noqa: BLE001 (any error of the user's code)
        return {"problem": f"{type(error).__name__}: {error}"}


def _imports(source: bytes, own: Collection[str]) -> Iterator[ast.stmt]:
    for one in ast.parse(source).body:
        names = [alias.name for alias in one.names] if isinstance(one, ast.Import) else []
        if isinstance(one, ast.ImportFrom) and not one.level and one.module != "__future__":
            names = [one.module or ""]
        if any(name.partition(".")[0] in own for name in names):
            yield one
