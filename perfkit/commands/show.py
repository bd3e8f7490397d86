"""``perfkit show``: what files of profiles say, whoever wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfkit.config import Project
from perfkit.errors import UsageError
from perfkit.model.memory import MemorySnapshot
from perfkit.model.progress import Log
from perfkit.model.readings import Reading
from perfkit.profiling.read.files import is_pickle, read_memory, read_profile
from perfkit.profiling.read.names import CodeNames, printable


def read_profiles(
    files: Sequence[Path], *, project: Project, own: Sequence[str] = (), progress: Log | None = None
) -> tuple[Reading, ...]:
    """Return what each file says; ``own`` are the packages to take for one's own code, else the configured.

    ``progress`` hears which file is read: a large trace takes seconds.

    Raises:
        UsageError: a file is missing, damaged or no profile.
    """
    code = code_names(project, own)
    return tuple(read_told(file, code, progress) for file in files)


def read_told(file: Path, code: CodeNames, progress: Log | None) -> Reading:
    """Return what a file says, once ``progress`` has heard that it is being read.

    Raises:
        UsageError: the file is missing, damaged or no profile.
    """
    if progress is not None:
        progress.info(f"reading {file.name}")
    return read_profile(file, code)


def read_snapshots(files: Sequence[Path]) -> tuple[MemorySnapshot, ...]:
    """Return what each file says where all are snapshots of allocators; nothing where none is.

    Raises:
        UsageError: some are snapshots and others are not, or one is damaged.
    """
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
