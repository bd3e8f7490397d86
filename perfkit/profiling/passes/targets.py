"""Targets: what a person may ask to have profiled."""

from __future__ import annotations

import difflib
import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from perfkit.bounded import TEXT_BYTES
from perfkit.config import Project
from perfkit.errors import UsageError
from perfkit.runner.notebooks import is_notebook, read_notebook

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A training loop by its ``name`` (as typed) and its ``place``.

    ``place`` is "package.module:function" or the absolute path of a script or a notebook.
    """

    name: str
    place: str

    @property
    def is_script(self) -> bool:
        """Whether the target is a file that is run from its top, a script or a notebook, and no function."""
        return self.place.endswith(".py") or self.is_notebook

    @property
    def is_notebook(self) -> bool:
        """Whether the target is a notebook."""
        return is_notebook(self.place)

    @property
    def started_in(self) -> Path | None:
        """The folder that the target expects to be started in; None for the one that the person is in.

        Jupyter starts a notebook in the notebook's own folder.
        """
        return Path(self.place).parent if self.is_notebook else None


def resolve_target(name: str, project: Project, *, folder: Path, notebooks: bool = False) -> Target:
    """Return the target that ``name`` means: a configured one, a function, or a script seen from ``folder``.

    Whether a function exists is found out later, in the process that imports it. Notebooks are targets only
    where ``notebooks`` says so; each of their cells is then known to be plain Python.

    Raises:
        UsageError: the name has none of these forms, the file does not exist, or the notebook cannot be run.
    """
    configured = project.config.targets.get(name)
    if configured is not None:
        return _place(name, configured, folder=project.root, project=project, notebooks=notebooks)
    return _place(name, name, folder=folder, project=project, notebooks=notebooks)


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


def _place(name: str, place: str, *, folder: Path, project: Project, notebooks: bool) -> Target:
    if place.endswith(".py"):
        return Target(name=name, place=str(_file(folder / place, "script", ".py")))
    if _FUNCTION.fullmatch(place) and not _function_of_script(place):
        return Target(name=name, place=place)
    if is_notebook(place) and notebooks:
        path = _file(folder / place, "notebook", ".ipynb")
        read_notebook(path)
        return Target(name=name, place=str(path))
    if is_notebook(place):
        raise UsageError(_notebook(name))
    raise UsageError(_unknown(name, place, project))


def _file(path: Path, kind: str, suffix: str) -> Path:
    if not path.is_file():
        raise UsageError(f"there is no {kind} {path}; give the path of an existing {suffix} file")
    if path.stat().st_size > TEXT_BYTES:
        raise UsageError(f"the {kind} {path} is larger than {TEXT_BYTES >> 20} MiB; is it damaged?")
    return path.resolve()


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
