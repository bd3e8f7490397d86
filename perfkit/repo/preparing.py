"""``tool.perfkit.prepare``: the command that makes a checkout ready, a build for example."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from perfkit.errors import NotMeasuredError
from perfkit.processes.commands import run_command
from perfkit.records import Side
from perfkit.repo.commands import outside_repository
from perfkit.temporary import temporary_folder

# What build backends of compiled packages are called by; they build no other way than by an installation.
_INSTALLED_BY = ("mesonpy", "scikit_build_core", "maturin")
SIDE_VARIABLE = "PERFKIT_SIDE"


def build_command(folder: Path) -> str:
    """Return the command that builds the compiled modules of a project in place, as far as one can tell."""
    try:
        described = (folder / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        described = ""
    if any(backend in described for backend in _INSTALLED_BY):
        target = "src" if (folder / "src").is_dir() else "."
        return f"pip install --no-deps --no-build-isolation --upgrade --target {target} ."
    if (folder / "setup.py").is_file():
        return "python setup.py build_ext --inplace"
    return "python -c 'import setuptools; setuptools.setup()' build_ext --inplace"


def prepare_root(command: str, *, side: Side, root: Path) -> None:
    """Run a shell command in a root, ``PERFKIT_SIDE`` naming its side; no process of it outlives the call.

    ``python`` is the interpreter that the benchmarks will run under.

    Raises:
        NotMeasuredError: it failed.
    """
    with temporary_folder() as folder:
        ending = run_command(
            ["/bin/sh", "-c", command],
            output=folder / "output.log",
            limit_s=None,
            environment={**outside_repository(os.environ), "PATH": _own_first(), SIDE_VARIABLE: side},
            folder=root,
        )
    if ending.status:
        how = f"with exit code {ending.status}" if ending.status > 0 else f"and {ending.words}"
        said = ending.tail[-1].strip() if ending.tail else "it printed nothing"
        raise NotMeasuredError(f"tool.perfkit.prepare: `{command}` failed on {side} {how}: {said}")


def _own_first() -> str:
    """Return the folders of commands, that of this environment first: it may not be an active one."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
