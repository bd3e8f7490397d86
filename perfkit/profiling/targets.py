"""Targets: what a person may ask to have profiled."""

from __future__ import annotations

import difflib
import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from perfkit.config import Project
from perfkit.errors import UsageError

_NOTEBOOK = ".ipynb"
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A training loop by its ``name`` (as typed) and its ``place``.

    ``place`` is "package.module:function" or the absolute path of a script.
    """

    name: str
    place: str

    @property
    def is_script(self) -> bool:
        """Whether the target is a script rather than a function."""
        return self.place.endswith(".py")


def resolve_target(name: str, project: Project, *, folder: Path) -> Target:
    """Return the target that ``name`` means: a configured one, a function, or a script seen from ``folder``.

    Whether a function exists is found out later, in the process that imports it.

    Raises:
        UsageError: the name has none of the three forms, or the script does not exist.
    """
    configured = project.config.targets.get(name)
    if configured is not None:
        return _place(name, configured, folder=project.root, project=project)
    return _place(name, name, folder=folder, project=project)


def target_on(target: Target, root: Path, *, project: Path) -> Target:
    """Return a target of a project as it is in another checkout, at ``root``, to which a script's path moves.

    Raises:
        UsageError: the script lies outside of the project, so that no checkout has it.
    """
    if not target.is_script:
        return target
    script = Path(target.place)
    if not script.is_relative_to(project):
        raise UsageError(f"{script} lies outside of {project}: no commit has it")
    return replace(target, place=str(root / script.relative_to(project)))


def _place(name: str, place: str, *, folder: Path, project: Project) -> Target:
    if place.endswith(".py"):
        return Target(name=name, place=_script(folder / place))
    if _FUNCTION.fullmatch(place) and not _function_of_script(place):
        return Target(name=name, place=place)
    if place.endswith(_NOTEBOOK):
        raise UsageError(_notebook(name))
    raise UsageError(_unknown(name, place, project))


def _script(path: Path) -> str:
    if not path.is_file():
        raise UsageError(f"there is no script {path}; give the path of an existing .py file")
    return str(path.resolve())


def _notebook(name: str) -> str:
    script = Path(name).with_suffix(".py").name
    return (
        f'"{name}" is a notebook, and a target is a script or a function; convert it with'
        f" `jupyter nbconvert --to script {shlex.quote(name)}` and profile {script}"
    )


def _unknown(name: str, place: str, project: Project) -> str:
    known = sorted(project.config.targets)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    nearest = _function_of_script(place) or (close[0] if close else None)
    told = f'did you mean "{nearest}"?' if nearest else _known(known)
    return (
        f'unknown target "{name}"; {told} A target is "package.module:function", a script such as'
        " train.py, or a name configured in pyproject.toml under [tool.perfkit.targets]"
    )


def _function_of_script(place: str) -> str | None:
    """Return how a function is named that was asked for by its file: "train:main" for "train.py:main"."""
    file, _, function = place.partition(":")
    if not file.endswith(".py") or not function:
        return None
    module = file.removesuffix(".py").removeprefix("./").removeprefix("src/").replace("/", ".")
    named = f"{module}:{function.lstrip(':')}"
    return named if _FUNCTION.fullmatch(named) else None


def _known(names: list[str]) -> str:
    return f"known names: {', '.join(names)}." if names else "no names are configured."
