"""Run git, so that neither the repository's settings nor a caller's variables change what it does.

Every call of git that perfkit makes goes through this module.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
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
    "core.pager": "cat",
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
# These commands put files through the repository's filters, which are programs, to compare or hash them.
_FILTERING = ("diff", "diff-files", "hash-object")
_VARIABLES = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
# Nothing is fetched that a partial clone lacks: the repository names the program that would.
_NO_TRANSPORT = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
_reading_only: ContextVar[bool] = ContextVar("reading_only", default=False)


@contextlib.contextmanager
def reading_only() -> Iterator[None]:
    """Have git run no program that the repository's configuration names, filters and transports included."""
    token = _reading_only.set(True)
    try:
        yield
    finally:
        _reading_only.reset(token)


def outside_repository(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables by which git passes a hook its repository."""
    return {name: value for name, value in environment.items() if name not in _REPOSITORY_VARIABLES}


def run_git(place: Path, *arguments: str, index: Path | None = None, given: bytes = b"") -> str:
    """Return the output of a git command in ``place``; no filter of the repository runs."""
    done = _run(place, arguments, _settings(place, arguments), _with_index(index), given)
    return os.fsdecode(_checked(place, arguments, done))


def run_git_checkout(
    place: Path,
    *arguments: str,
    index: Path | None = None,
    variables: Mapping[str, str] | None = None,
    given: bytes = b"",
) -> str:
    """Run a git command that writes files or objects as they are, with the user's filters off."""
    settings = {**_WRITING, **_filters_off(place)}
    done = _run(place, arguments, settings, {**(variables or {}), **_with_index(index)}, given)
    return os.fsdecode(_checked(place, arguments, done))


def try_git(place: Path, *arguments: str) -> str | None:
    """Return the stripped output of a git command in ``place``, None where it failed."""
    done = _run(place, arguments, _settings(place, arguments))
    return None if done.returncode else os.fsdecode(done.stdout).strip()


def git_error(place: Path, *arguments: str) -> str:
    """Return what a git command printed to its standard error."""
    return os.fsdecode(_run(place, arguments, _settings(place, arguments)).stderr)


def list_with_git(place: Path, *arguments: str, index: Path | None = None) -> list[str]:
    """Return the entries of a git command's output, each ended by a NUL."""
    return run_git(place, *arguments, index=index).split("\0")[:-1]


def read_blobs(place: Path, blobs: Collection[str]) -> dict[str, bytes]:
    """Return the contents of blobs by their hashes."""
    if not blobs:
        return {}
    arguments = ("cat-file", "--batch")
    done = _run(place, arguments, _READING, given="".join(f"{blob}\n" for blob in blobs).encode())
    output, begin, found = _checked(place, arguments, done), 0, {}
    for blob in blobs:
        end = output.index(b"\n", begin)
        _, kind, *size = output[begin:end].decode().split(" ")
        if kind != "blob":
            raise RepositoryError(f"git has no file {blob} in {place}; see `git fsck`")
        begin = end + 1 + int(size[0]) + 1
        found[blob] = output[end + 1 : begin - 1]
    return found


def author_name(place: Path) -> str | None:
    """Return git's ``user.name`` as it holds in a repository, None where it is not set."""
    return try_git(place, "config", "--get", "user.name") or None


def is_shallow(place: Path) -> bool:
    """Return whether a clone lacks older commits."""
    return try_git(place, "rev-parse", "--is-shallow-repository") == "true"


def _with_index(index: Path | None) -> dict[str, str]:
    return {} if index is None else {"GIT_INDEX_FILE": str(index)}


def _settings(place: Path, arguments: tuple[str, ...]) -> dict[str, str]:
    return {**_READING, **(_filters_off(place) if arguments[0] in _FILTERING else {})}


def _options(command: str) -> tuple[str, ...]:
    if command != "diff":
        return ()
    # In each submodule that it looks into, git obeys that one's own configuration.
    return (
        "--no-ext-diff",
        "--no-textconv",
        *(("--ignore-submodules=dirty",) if _reading_only.get() else ()),
    )


def _run(
    place: Path,
    arguments: tuple[str, ...],
    settings: Mapping[str, str],
    variables: Mapping[str, str] | None = None,
    given: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
    command, *rest = arguments
    safe = {**_VARIABLES, **(_NO_TRANSPORT if _reading_only.get() else {}), **(variables or {})}
    return subprocess.run(
        ["git", "-C", str(place), *options, command, *_options(command), *rest],
        env=with_mark({**outside_repository(os.environ), **safe}),
        input=given,
        capture_output=True,
        check=False,
    )


def _checked(place: Path, arguments: tuple[str, ...], done: subprocess.CompletedProcess[bytes]) -> bytes:
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it printed nothing"]
        # Advice may follow the reason.
        reason = next((line for line in lines if line.startswith(("fatal: ", "error: "))), lines[-1])
        raise RepositoryError(f"`git {' '.join(arguments[:2])}` failed in {place}: {reason}")
    return done.stdout


def _filters_off(place: Path) -> dict[str, str]:
    configured = try_git(place, "config", "--name-only", "-z", "--get-regexp", r"^filter\..*\.")
    drivers = {key.rpartition(".")[0] for key in (configured or "").split("\0") if key}
    off = {"clean": "", "smudge": "", "process": "", "required": "false"}
    return {f"{driver}.{key}": value for driver in sorted(drivers) for key, value in off.items()}


def printable(text: str) -> str:
    """Replace what is not UTF-8 in an output of git, since printing or storing it would raise."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
