"""Git's own commands, run so that neither hooks nor a caller's variables change what they do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from perfkit.errors import RepositoryError
from perfkit.temporary import with_mark

# Git sets these variables for a hook; every command would then work on the repository of that hook.
_REPOSITORY_VARIABLES = (
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_WORK_TREE",
)
_READING = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    # Lines about signatures would come among those that are asked for.
    "log.showSignature": "false",
}
# A checkout holds the commit's files as they were committed, and all of them.
_WRITING = {
    **_READING,
    "core.autocrlf": "false",
    "core.sparseCheckout": "false",
    "core.splitIndex": "false",
    "submodule.recurse": "false",
}


def outside_repository(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables by which git tells a hook its repository."""
    return {name: value for name, value in environment.items() if name not in _REPOSITORY_VARIABLES}


def run_git(place: Path, *arguments: str) -> str:
    """Return what a git command printed in ``place``.

    Raises:
        RepositoryError: it failed.
    """
    return _checked(place, arguments, _run(place, arguments, _READING))


def run_git_checkout(place: Path, *arguments: str, index: Path | None = None) -> str:
    """Run a git command that writes files of a commit, with the user's filters off.

    ``index`` takes the place of the repository's own index.

    Raises:
        RepositoryError: it failed.
    """
    variables = {} if index is None else {"GIT_INDEX_FILE": str(index)}
    settings = {**_WRITING, **_filters_off(place)}
    return _checked(place, arguments, _run(place, arguments, settings, variables))


def try_git(place: Path, *arguments: str) -> str | None:
    """Return what a git command printed in ``place``, white space around it removed; None where it failed."""
    done = _run(place, arguments, _READING)
    return None if done.returncode else os.fsdecode(done.stdout).strip()


def list_with_git(place: Path, *arguments: str) -> list[str]:
    """Return the entries that a git command printed, each ended by a NUL.

    Raises:
        RepositoryError: it failed.
    """
    return run_git(place, *arguments).split("\0")[:-1]


def _run(
    place: Path,
    arguments: tuple[str, ...],
    settings: Mapping[str, str],
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
    environment = {
        **outside_repository(os.environ),
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        **(variables or {}),
    }
    return subprocess.run(
        ["git", "-C", str(place), *options, *arguments],
        env=with_mark(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )


def _checked(place: Path, arguments: tuple[str, ...], done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
        raise RepositoryError(f"`git {' '.join(arguments[:2])}` failed in {place}: {said[-1]}")
    return os.fsdecode(done.stdout)


def _filters_off(place: Path) -> dict[str, str]:
    """Return the settings that switch off each filter, which would run code that is not the commit's."""
    configured = try_git(place, "config", "--name-only", "-z", "--get-regexp", r"^filter\..*\.")
    drivers = {key.rpartition(".")[0] for key in (configured or "").split("\0") if key}
    off = {"clean": "", "smudge": "", "process": "", "required": "false"}
    return {f"{driver}.{key}": value for driver in sorted(drivers) for key, value in off.items()}
