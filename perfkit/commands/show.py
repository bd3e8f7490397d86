"""``perfkit show`` and ``perfkit view``: profiles in the terminal and in the browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from perfkit.config import Project
from perfkit.errors import UsageError
from perfkit.extras import need
from perfkit.model.comparisons import Log
from perfkit.model.readings import MemorySnapshot, Reading
from perfkit.profiling.read.formats import is_pickle, read_memory, read_profile
from perfkit.profiling.read.names import CodeNames, printable

# Snakeviz writes names as they are between the tags of a script in its page.
_ENDS_SCRIPT = re.compile(rb"</script|<!--", re.IGNORECASE)


def read_profiles(
    files: Sequence[Path], *, project: Project, own: Sequence[str] = (), progress: Log | None = None
) -> tuple[Reading, ...]:
    """Return the reading of each file; ``own`` are packages of one's own code (default: as configured)."""
    code = code_names(project, own)
    readings = []
    for file in files:
        if progress is not None:
            progress.info(f"reading {file.name}")
        readings.append(read_profile(file, code))
    return tuple(readings)


def read_snapshots(files: Sequence[Path]) -> tuple[MemorySnapshot, ...]:
    """Return the snapshot of each file where all are snapshots of allocators; nothing where none is."""
    pickles = [file for file in files if is_pickle(file)]
    if pickles and len(pickles) < len(files):
        other = next(file for file in files if file not in pickles)
        raise UsageError(f"{pickles[0]} is a memory snapshot and {other} is none; name files of one kind")
    return tuple(map(read_memory, pickles))


def code_names(project: Project, own: Sequence[str] = ()) -> CodeNames:
    """Return how functions are named, and which are own: those in named packages or the project's folder."""
    present = (path.stem if path.suffix == ".py" else path.name for path in project.root.iterdir())
    names = (*project.config.own, *present)
    return CodeNames(own=tuple(map(printable, own)), present=frozenset(map(printable, names)))


def view_command(file: Path, *, server: bool) -> Sequence[str]:
    """Return the command that shows a cProfile in snakeviz; as a ``server`` it only prints its address."""
    reading = read_profile(file, CodeNames())
    if reading.origin != "cProfile":
        raise UsageError(
            f"{file} is a {reading.origin}, and snakeviz shows cProfiles; use `perfkit show {file}`"
            ", and a trace opens at https://ui.perfetto.dev"
        )
    if _ENDS_SCRIPT.search(file.read_bytes()):
        raise UsageError(
            f"{printable(str(file))} names functions that would run as code in snakeviz's page; "
            "use `perfkit show`"
        )
    need("snakeviz", by="perfkit view")
    options = ["--server"] if server or not has_browser() else []
    # An absolute path is never taken for an option.
    return [sys.executable, "-m", "snakeviz", "--hostname", "127.0.0.1", *options, str(file.absolute())]


def view(file: Path, *, server: bool) -> int:
    """Show a profile until the person ends it, and return snakeviz's exit code."""
    try:
        # The address is flushed, so that a reader at the end of a pipe has it at once.
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        return subprocess.run(view_command(file, server=server), env=environment, check=False).returncode
    except KeyboardInterrupt:
        return 0


def has_browser() -> bool:
    """Return whether there is a browser to open a page in."""
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True
