"""``perfkit show``: what files of profiles say, whoever wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfkit.config import Project
from perfkit.reading.files import read_profile
from perfkit.reading.names import CodeNames, printable
from perfkit.records.readings import Reading


def read_profiles(files: Sequence[Path], *, project: Project, own: Sequence[str] = ()) -> tuple[Reading, ...]:
    """Return what each file says; ``own`` are the packages to take for one's own code, else the configured.

    Raises:
        UsageError: a file is missing, damaged or no profile.
    """
    code = code_names(project, own)
    return tuple(read_profile(file, code) for file in files)


def code_names(project: Project, own: Sequence[str] = ()) -> CodeNames:
    """Return how functions are named, and which are own: those in named packages or the project's folder."""
    present = (path.stem if path.suffix == ".py" else path.name for path in project.root.iterdir())
    names = (*project.config.own, *present)
    return CodeNames(own=tuple(map(printable, own)), present=frozenset(map(printable, names)))
