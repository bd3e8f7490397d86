"""A mistake of perfkit's own: reported in a few lines, and kept with its traceback."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

DEBUG_VARIABLE = "PERFKIT_DEBUG"
_PACKAGE = Path(__file__).parent
_MOST_LETTERS = 300


def notes_of(error: BaseException) -> list[str]:
    """Return what was noted on an exception on its way: where kept rows are, for example."""
    return list(getattr(error, "__notes__", ()))


def is_debugging() -> bool:
    """Return whether the user wants to see tracebacks."""
    return os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")


def internal_error_lines(error: BaseException) -> Iterator[str]:
    """Keep the traceback in a file, and yield what a person has to know, a line each."""
    yield f"internal error: {_summary(error)}{_place(error)}; it is perfkit's mistake, and no verdict"
    yield from notes_of(error)
    facts = {
        "perfkit": importlib.metadata.version("perfkit"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "time": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
        "folder": os.getcwd() if _has_folder() else "(removed)",  # noqa: PTH109 (as the process sees it)
        "command": shlex.join(sys.argv),
    }
    head = "".join(f"{name}: {value}\n" for name, value in facts.items())
    text = f"{head}\n{''.join(traceback.format_exception(error))}"
    file = _keep(text)
    if file is None or is_debugging():
        yield text
    if file is not None:
        hint = "" if is_debugging() else f"; {DEBUG_VARIABLE}=1 prints it"
        yield f"the full traceback is in {file}{hint}"
        yield "please report it with that file, which also holds the command line, to perfkit's maintainers"


def _summary(error: BaseException) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"[:_MOST_LETTERS].removesuffix(": ")


def _place(error: BaseException) -> str:
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(_PACKAGE):
            return f" (perfkit/{Path(frame.filename).relative_to(_PACKAGE).as_posix()}:{frame.lineno})"
    return ""


def _has_folder() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _keep(text: str) -> Path | None:
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{os.getpid()}.txt"
    for folder in _folders():
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid != os.geteuid():
                continue
            file = folder / name
            # Made anew: a link that lies there is not followed.
            with file.open("x", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(text)
            return file
    return None


def _folders() -> Iterator[Path]:
    with contextlib.suppress(RuntimeError):
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        yield Path(cache) / "perfkit" / "errors"
    with contextlib.suppress(OSError):
        yield Path(tempfile.gettempdir()) / "perfkit-errors"
