"""How code reaches workers: as a git bundle of the commits that tasks name, or from an address to clone."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from perfkit.errors import NotMeasuredError, RepositoryError
from perfkit.identity import fingerprint
from perfkit.ledger.files import only_one
from perfkit.model.tasks import Code
from perfkit.repo.git import run_git, run_git_checkout, try_git

_REFS = "refs/perfkit"
# Clones that nobody has used for so long make room.
_MOST_KEPT = 8


def bundle_name(commits: Collection[str], address: str) -> str:
    """Return the name of a bundle: it follows from what is in it, and from what it is laid upon."""
    return fingerprint({"commits": "\n".join(sorted(commits)), "address": address})


def make_bundle(top: Path, commits: Sequence[str]) -> bytes:
    """Return a bundle of commits with all that they descend from; nothing is written into the repository.

    A bundle of no commits is empty.

    Raises:
        RepositoryError: git cannot make it.
    """
    if not commits:
        return b""
    objects = run_git(top, "rev-parse", "--path-format=absolute", "--git-path", "objects").strip()
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "refs.git"
        run_git(top, "init", "--quiet", "--bare", str(bare))
        # Its own refs name objects that stay where they are.
        (bare / "objects/info/alternates").write_text(f"{objects}\n")
        (bare / "packed-refs").write_text(
            "".join(f"{sha} {_REFS}/{number}\n" for number, sha in enumerate(sorted(set(commits))))
        )
        file = Path(folder) / "code.bundle"
        run_git(bare, "bundle", "create", "--quiet", str(file), "--all")
        return file.read_bytes()


def clones_folder() -> Path:
    """Return the folder of this machine's clones for tasks."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "perfkit" / "clones"


def clone_of(code: Code) -> Path | None:
    """Return the clone that holds a task's code, None where this machine has none yet."""
    clone = clones_folder() / code.bundle
    if not (clone / ".git").is_dir():
        return None
    os.utime(clone)
    return clone


def make_clone(code: Code, bundle: bytes) -> Path:
    """Make the clone of a task's code, from its address where it has one and from a bundle.

    Raises:
        RepositoryError: the address cannot be cloned, or lacks the commit.
        NotMeasuredError: the disk takes no more.
    """
    place = clones_folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        with only_one(place):
            known = clone_of(code)
            if known is None:
                known = _cloned(code, bundle, place)
                _make_room(place)
            return known
    except OSError as error:
        raise NotMeasuredError(f"cannot keep a clone in {place}: {error.strerror or error}") from error


def _cloned(code: Code, bundle: bytes, place: Path) -> Path:
    folder = Path(tempfile.mkdtemp(dir=place, prefix=".new-"))
    try:
        run_git(folder, "init", "--quiet")
        if code.address:
            run_git(folder, "fetch", "--quiet", "--tags", code.address, "+refs/heads/*:refs/remotes/origin/*")
        if bundle:
            file = folder / ".git" / "code.bundle"
            file.write_bytes(bundle)
            run_git(folder, "fetch", "--quiet", str(file), f"+{_REFS}/*:{_REFS}/*")
            file.unlink()
        if try_git(folder, "cat-file", "-e", f"{code.head}^{{commit}}") is None:
            raise RepositoryError(f"{code.address} has no commit {code.head[:10]}; push it there first")
        run_git_checkout(folder, "checkout", "--quiet", "--detach", code.head)
        clone = place / code.bundle
        folder.rename(clone)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return clone


def _make_room(place: Path) -> None:
    """Remove the clones that were used least lately; a task that uses one has just touched it."""
    clones = [entry for entry in place.iterdir() if not entry.name.startswith(".")]
    for old in sorted(clones, key=lambda entry: entry.stat().st_mtime, reverse=True)[_MOST_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
