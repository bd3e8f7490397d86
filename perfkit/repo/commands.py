"""Git's own commands, run so that neither the repository's settings nor a caller's variables change them.

All of perfkit's calls of git get their settings here, those that GitPython makes as well.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.errors import RepositoryError
from perfkit.temporary import with_mark

if TYPE_CHECKING:
    import git

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
    "core.pager": "cat",
    # Lines about signatures would come among those that are asked for.
    "log.showSignature": "false",
}
# These commands put files through the repository's filters, which are programs, to compare or hash them.
_FILTERING = ("diff", "diff-files", "hash-object")
# A checkout holds the commit's files as they were committed, and all of them.
_WRITING = {
    **_READING,
    "core.autocrlf": "false",
    "core.sparseCheckout": "false",
    "core.splitIndex": "false",
    "submodule.recurse": "false",
}


# A diff is computed by git itself, whatever viewers and converters the repository names.
_OPTIONS = {"diff": ("--no-ext-diff", "--no-textconv")}
# Nothing is fetched that a partial clone lacks: the repository names the program that would.
_NO_TRANSPORT = {"GIT_ALLOW_PROTOCOL": "none"}
_reading_only: ContextVar[bool] = ContextVar("reading_only", default=False)


@contextlib.contextmanager
def reading_only() -> Iterator[None]:
    """Have git run no program that the repository's configuration names, filters and transports included.

    Commands that measure run the project's code anyway; others may look at anybody's repository.
    """
    token = _reading_only.set(True)
    try:
        yield
    finally:
        _reading_only.reset(token)


def protected(repository: git.Repo) -> git.Repo:
    """Have GitPython run git with the same settings as ``run_git``."""
    # GitPython takes a "$" in the path for a variable's.
    repository.git._working_dir = repository.working_dir  # noqa: SLF001
    repository.git.update_environment(**_variables())
    repository.git.set_persistent_git_options(c=[f"{key}={value}" for key, value in _READING.items()])
    return repository


def outside_repository(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables by which git tells a hook its repository."""
    return {name: value for name, value in environment.items() if name not in _REPOSITORY_VARIABLES}


def run_git(place: Path, *arguments: str, index: Path | None = None) -> str:
    """Return what a git command printed in ``place``; no filter of the repository runs.

    ``index`` takes the place of the repository's own index.

    Raises:
        RepositoryError: it failed.
    """
    return _checked(place, arguments, _run(place, arguments, _settings(place, arguments), _with_index(index)))


def run_git_checkout(
    place: Path,
    *arguments: str,
    index: Path | None = None,
    variables: Mapping[str, str] | None = None,
    given: bytes = b"",
) -> str:
    """Run a git command that writes files or objects as they are, with the user's filters off.

    ``index`` takes the place of the repository's own index; ``given`` is the command's standard input.

    Raises:
        RepositoryError: it failed.
    """
    settings = {**_WRITING, **_filters_off(place)}
    variables = {**(variables or {}), **_with_index(index)}
    return _checked(place, arguments, _run(place, arguments, settings, variables, given))


def try_git(place: Path, *arguments: str) -> str | None:
    """Return what a git command printed in ``place``, white space around it removed; None where it failed."""
    done = _run(place, arguments, _settings(place, arguments))
    return None if done.returncode else os.fsdecode(done.stdout).strip()


def list_with_git(place: Path, *arguments: str, index: Path | None = None) -> list[str]:
    """Return the entries that a git command printed, each ended by a NUL, as ``run_git`` does.

    Raises:
        RepositoryError: it failed.
    """
    return run_git(place, *arguments, index=index).split("\0")[:-1]


def _with_index(index: Path | None) -> dict[str, str]:
    return {} if index is None else {"GIT_INDEX_FILE": str(index)}


def _settings(place: Path, arguments: tuple[str, ...]) -> dict[str, str]:
    return {**_READING, **(_filters_off(place) if arguments[0] in _FILTERING else {})}


def _options(command: str) -> tuple[str, ...]:
    # In each submodule that it looks into, git obeys that one's own configuration.
    whole = ("--ignore-submodules=dirty",) if command == "diff" and _reading_only.get() else ()
    return (*_OPTIONS.get(command, ()), *whole)


def _variables() -> dict[str, str]:
    return {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        **(_NO_TRANSPORT if _reading_only.get() else {}),
    }


def _run(
    place: Path,
    arguments: tuple[str, ...],
    settings: Mapping[str, str],
    variables: Mapping[str, str] | None = None,
    given: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
    command, *rest = arguments
    return subprocess.run(
        ["git", "-C", str(place), *options, command, *_options(command), *rest],
        env=with_mark({**outside_repository(os.environ), **_variables(), **(variables or {})}),
        input=given,
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
