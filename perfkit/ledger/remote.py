"""Ledgers elsewhere: mirrored from a URL by a feature, or kept on a branch of their own.

The feature's module has ``open_url(url)`` and ``mirror_in(folder)``, which return such a mirror.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from perfkit.config import check_expanded, is_url
from perfkit.errors import RepositoryError, UsageError
from perfkit.extensions import features
from perfkit.repo.git import run_git, run_git_checkout, try_git
from perfkit.temporary import temporary_folder
from perfkit.units import counted

# Called with the numbers of files that are copied and that are to be copied.
OnCopied = Callable[[int, int], None]

HIDDEN_FOLDER = ".remote"
# The file in a mirror's hidden folder that names its store.
STORE_FILE = "store.json"


@dataclass(frozen=True, kw_only=True)
class Put:
    """Which pending files are uploaded now, and which are left because of a problem."""

    url: str
    folder: Path
    put: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    problem: str = ""

    @property
    def text(self) -> str:
        """One line for people, empty where nothing was pending."""
        if self.left:
            return (
                f"{_files_are(self.left)} not yet in {self.url} ({self.problem}), "
                f"but safe in {self.folder}: the next perfkit command on that ledger tries again"
            )
        return f"{_files_are(self.put, ' of earlier commands')} in {self.url} now" if self.put else ""


def _files_are(names: tuple[str, ...], which: str = "") -> str:
    return f"{counted(len(names), 'file')}{which} {'is' if len(names) == 1 else 'are'}"


class Mirror(Protocol):
    """A local folder that has what a store has."""

    folder: Path
    url: str

    def refresh(self, on_copied: OnCopied) -> None:
        """Copy what the store has more, and drop what it has no longer."""

    def place_of(self, file: Path) -> str:
        """Return where a published file is, for people."""

    def check_writable(self) -> None:
        """Refuse a store that takes no new object, or that would replace an existing one."""

    def put_pending(self) -> Put:
        """Upload what earlier commands could not upload."""

    def put(self, file: Path) -> None:
        """Upload a file that has just been published."""

    def put_once(self, file: Path) -> bool:
        """Upload a file unless one of its name is there, which then replaces the local file."""

    def put_compacted(self) -> None:
        """Upload compacted files, and only then remove from the store what they replace."""


def _mirrors() -> Any:  # noqa: ANN401 (a module)
    module = next((feature.mirrors for feature in features() if feature.mirrors), None)
    return None if module is None else importlib.import_module(module)


def _mirror_in(folder: Path) -> Mirror | None:
    if not (folder / HIDDEN_FOLDER / STORE_FILE).exists() or _mirrors() is None:
        return None
    mirror: Mirror | None = _mirrors().mirror_in(folder)
    return mirror


def _mirror_of(file: Path) -> Mirror | None:
    return _mirror_in(file.parent if file.suffix == ".parquet" else file.parent.parent)


def mirror_at(place: str | Path) -> Mirror | None:
    """Return the mirror of a ledger at a URL as it is, None for a folder; the store is not asked."""
    if not is_url(place):
        check_expanded(place)
        return None
    if isinstance(place, Path):
        raise UsageError(f"{place} is a URL that was made a path; give it as text")
    if _mirrors() is None:
        raise UsageError(f"{place} is a URL, and nothing installed opens ledgers at URLs; name a folder")
    mirror: Mirror = _mirrors().open_url(str(place))
    return mirror


def ledger_folder(place: str | Path, *, on_copied: OnCopied = lambda *_: None) -> Path:
    """Return the folder of a ledger; that of a URL is its mirror, which then has all that the store has."""
    mirror = mirror_at(place)
    if mirror is None:
        return Path(place)
    mirror.refresh(on_copied)
    return mirror.folder


def existing_folder(place: str | Path, *, on_copied: OnCopied = lambda *_: None) -> Path:
    """Return the folder of a ledger that has something already, as ``ledger_folder`` does."""
    folder = ledger_folder(place, on_copied=on_copied)
    if not folder.is_dir() or (is_url(place) and all(one.name == HIDDEN_FOLDER for one in folder.iterdir())):
        raise UsageError(f"there is no ledger at {place}; `pytest --benchmark-autosave` begins one")
    return folder


def mirrored_url(ledger: Path) -> str | None:
    """Return the URL of the store that a folder mirrors, None for a plain folder."""
    mirror = _mirror_in(ledger)
    return None if mirror is None else mirror.url


def shown_place(file: Path) -> str:
    """Return where a published file is, for people: its URL where it is in a store."""
    mirror = _mirror_of(file)
    return str(file) if mirror is None else mirror.place_of(file)


def check_store(ledger: Path) -> None:
    """Refuse a store that takes no new object, or that would replace an existing one."""
    if (mirror := _mirror_in(ledger)) is not None:
        mirror.check_writable()


def put_pending(ledger: Path) -> Put | None:
    """Upload what earlier commands could not upload; None for a plain folder."""
    mirror = _mirror_in(ledger)
    return None if mirror is None else mirror.put_pending()


def put_published(file: Path) -> None:
    """Upload a file that has just been published."""
    if (mirror := _mirror_of(file)) is not None:
        mirror.put(file)


def put_once(file: Path) -> bool:
    """Upload a file that another machine may have uploaded, too; return False if that one stays."""
    mirror = _mirror_of(file)
    return True if mirror is None else mirror.put_once(file)


def upload_compacted(ledger: Path) -> None:
    """Upload compacted files, and only then remove from the store what they replace."""
    if (mirror := _mirror_in(ledger)) is not None:
        mirror.put_compacted()


_ATTEMPTS = 5
_MESSAGE = "Add measurements"
_SIGNATURE = {
    "GIT_AUTHOR_NAME": "perfkit",
    "GIT_AUTHOR_EMAIL": "perfkit@localhost",
    "GIT_COMMITTER_NAME": "perfkit",
    "GIT_COMMITTER_EMAIL": "perfkit@localhost",
}


def pull_branch(top: Path, branch: str, folder: Path, *, remote: str) -> int | None:
    """Bring the files of a remote's branch into a folder, whose own files stay; return how many came."""
    tip = _fetch(top, branch, remote)
    if tip is None:
        return None
    names = _names(top, tip)
    missing = [name for name in names if not _is_hidden(name) and not (folder / name).exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary_folder() as aside:
            index = {"GIT_INDEX_FILE": str(aside / "index")}
            _git(top, ("read-tree", tip), index)
            # Only what is missing is written: a file of a ledger never changes.
            given = "\0".join(missing).encode(errors="surrogateescape")
            prefix = f"--prefix={folder.resolve()}/"
            _git(top, ("checkout-index", "-q", "-z", "--stdin", prefix), index, given=given)
    return len(missing)


def push_branch(top: Path, branch: str, folder: Path, *, remote: str) -> bool:
    """Add the files of a folder to a remote's branch; return whether there was anything to add."""
    for attempt in range(_ATTEMPTS):
        tip = _fetch(top, branch, remote)
        commit = _commit(top, folder, tip)
        if commit is None:
            return False
        try:
            run_git(top, "push", "--quiet", remote, f"{commit}:refs/heads/{branch}")
        except RepositoryError:
            if attempt + 1 == _ATTEMPTS or _fetch(top, branch, remote) == tip:
                raise
        else:
            return True
    return False


def _fetch(top: Path, branch: str, remote: str) -> str | None:
    listed = run_git(top, "ls-remote", remote, f"refs/heads/{branch}")
    if not listed.strip():
        return None
    run_git(top, "fetch", "--quiet", "--no-tags", remote, f"+refs/heads/{branch}:refs/perfkit/{branch}")
    return try_git(top, "rev-parse", "--verify", f"refs/perfkit/{branch}")


def _commit(top: Path, folder: Path, tip: str | None) -> str | None:
    with temporary_folder() as aside:
        index = {"GIT_INDEX_FILE": str(aside / "index"), **_SIGNATURE}
        if tip is not None:
            _git(top, ("read-tree", tip), index)
        work_tree = {"GIT_WORK_TREE": str(folder.resolve()), "GIT_LITERAL_PATHSPECS": "1"}
        paths = "\0".join(_to_add(top, folder, tip)).encode(errors="surrogateescape")
        if paths:
            command = ("add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul")
            _git(top, command, {**index, **work_tree}, given=paths)
        tree = _git(top, ("write-tree",), index)
        if tip is not None and tree == try_git(top, "rev-parse", f"{tip}^{{tree}}"):
            return None
        parent = () if tip is None else ("-p", tip)
        return _git(top, ("commit-tree", tree, *parent, "-m", _MESSAGE), index)


def _to_add(top: Path, folder: Path, tip: str | None) -> Iterator[str]:
    """Yield the files of a folder that a branch lacks, hidden ones and those in hidden folders left out.

    No file of the branch is replaced: files of a ledger never change, and of two with one name the one here
    may be the part of a run that was recovered while the run went on elsewhere.
    """
    there = set(_names(top, tip)) if tip else set()
    yield from (name for name in files_to_keep(folder) if name not in there)


def files_to_keep(folder: Path) -> Iterator[str]:
    """Yield the names of the files that a branch keeps: all but hidden ones and those in hidden folders."""
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.is_file() and not _is_hidden(name):
            yield name


def _names(top: Path, tip: str) -> list[str]:
    return run_git(top, "ls-tree", "-r", "-z", "--name-only", tip).split("\0")[:-1]


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(name).parts)


def _git(top: Path, arguments: tuple[str, ...], variables: Mapping[str, str], *, given: bytes = b"") -> str:
    directory = run_git(top, "rev-parse", "--absolute-git-dir").strip()
    variables = {"GIT_DIR": directory, **variables}
    return run_git_checkout(top, *arguments, variables=variables, given=given).strip()
