"""Where a project lies in each side that is laid out: a repository may hold several."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from perfkit.config import Project
from perfkit.model import Side
from perfkit.repo.checkout import Roots
from perfkit.repo.sides import SidePair, folder_in


def project_roots(project: Project, pair: SidePair, laid: Roots) -> Roots:
    """Return the project's own root in each side."""
    base, head = (laid.root(side) / subfolder(project, pair, side) for side in ("base", "head"))
    return dataclasses.replace(laid, base=base, head=head)


def subfolder(project: Project, pair: SidePair, side: Side) -> Path:
    """Return where the project lies in a side, relative to the side's top."""
    return folder_in(pair.side(side), project.root)
