"""Files that git stores through a filter, that of Git LFS or another: brought without running the filter."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.errors import SideNotMeasuredError
from perfkit.model import Side
from perfkit.repo.files import put_file
from perfkit.repo.git import list_with_git, run_git, try_git
from perfkit.units import counted

_LFS = "lfs"
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:[^\n]+\n)*?oid sha256:([0-9a-f]{64})\nsize (\d+)\n"
)
# Git LFS takes no larger file for a pointer.
_MOST_POINTER_BYTES = 1024
_HASH = re.compile(r"\b[0-9a-f]{40,64}\b")
_ENTRY = re.compile(
    r"\d+ ([0-9a-f]+) \d\t([^\0]*)\0  ctime: .*\n  mtime: (\d+):(\d+)\n.*\n.*\n  size: (\d+)\t.*\n"
)
_NO_FILTER = ("unspecified", "unset", "set")
_AT_ONCE = 1000
# Such a command changes nothing; tools that only clean files are installed with it.
_NO_SMUDGE = ("", "cat")


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file of a checkout that holds what git stores, where the user's checkout holds something else."""

    name: str
    path: Path
    driver: str
    digest: str

    def is_unchanged(self) -> bool:
        """Return whether the file still holds what git stores."""
        return self.path.is_file() and _digest(self.path) == self.digest


def bring_filtered(
    source: Path, root: Path, *, git_folder: Path | None = None, index: Path | None = None
) -> tuple[list[StoredFile], list[str]]:
    """Replace the files of a checkout that git stores through a filter by what the filter writes.

    The content comes from the local store of Git LFS, or else from the user's working tree, where that has
    the same version of the file without a change. Filters are never run: their commands are not the commit's.
    """
    place = [] if git_folder is None else [f"--git-dir={git_folder}", "--work-tree=."]
    lacking: list[StoredFile] = []
    left_out = 0
    for driver in _drivers(source):
        listing = [*place, "ls-files", "--stage", "-z", "--", f":(attr:filter={driver})"]
        stored = _blobs(list_with_git(root, *listing, index=index))
        if not stored:
            continue
        excluded = _excluded(source, root) if driver == _LFS else []
        exclusions = [f":(exclude){pattern}" for pattern in excluded]
        wanted = _blobs(list_with_git(root, *listing, *exclusions, index=index)) if exclusions else stored
        originals = _Originals.of(source, list(stored))
        for name, blob in stored.items():
            path = root / name
            pointer = _pointer(path) if driver == _LFS else None
            if path.is_symlink() or not path.is_file() or (driver == _LFS and pointer is None):
                continue
            original = originals.find(name, blob, pointer)
            if original is not None:
                mode = path.stat().st_mode
                put_file(original, root, name)
                path.chmod(mode)
            elif name in wanted:
                lacking.append(StoredFile(name=name, path=path, driver=driver, digest=_digest(path)))
            else:
                left_out += 1
    sentence = f"{counted(left_out, 'file')} stay Git LFS pointers, since lfs.fetchexclude leaves them out"
    return lacking, [sentence] if left_out else []


def refuse_stored(files: Sequence[StoredFile], *, side: Side, called: str) -> None:
    """Refuse to measure a checkout in which files hold what git stores instead of their content."""
    left = [file for file in files if file.is_unchanged()]
    if not left:
        return
    first = left[0]
    more = f" (and {counted(len(left) - 1, 'more file')})" if len(left) > 1 else ""
    if first.driver == _LFS:
        reason = (
            f"{first.name}{more} is a Git LFS pointer, and the local store lacks its content;"
            " run `git lfs fetch --all`, or leave it out with `git config lfs.fetchexclude PATTERN`"
        )
    else:
        reason = (
            f'{first.name}{more} is stored through the git filter "{first.driver}", which perfkit does not'
            " run, and the working tree has no unchanged copy; set prepare under [tool.perfkit] to a command"
            " that writes it"
        )
    raise SideNotMeasuredError(f"{called}: {reason}", side=side)


def unchanged_files(top: Path, sha: str, names: Sequence[str]) -> list[str]:
    """Return those of a working tree's filtered files that are as in a commit, though git calls them changed.

    Git has to put a file through its filter where times and sizes do not suffice, and may not do so here.
    """
    filtered = sorted(_with_filter(top, names))
    entries = _entries(top, filtered) if filtered else {}
    stored = _blobs(list_with_git(top, "ls-tree", "-r", "-z", sha, "--", *filtered)) if filtered else {}
    return [name for name in stored if _is_unchanged(top, name, stored[name], entries.get(name))]


def _is_unchanged(top: Path, name: str, blob: str, entry: _Entry | None) -> bool:
    if entry is not None and entry.blob == blob and entry.describes(top / name):
        return True
    pointer = _named(os.fsencode(try_git(top, "cat-file", "blob", blob) or "") + b"\n")
    return pointer is not None and _has_content(top / name, pointer)


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A file in an index: what git stores of it, and what the file was when git last read or wrote it."""

    blob: str
    seconds: int
    nanoseconds: int
    size: int

    def describes(self, path: Path) -> bool:
        try:
            found = path.lstat()
        except OSError:
            return False
        seconds, nanoseconds = divmod(found.st_mtime_ns, 10**9)
        # Some builds of git keep whole seconds.
        return (seconds, found.st_size) == (self.seconds, self.size) and self.nanoseconds in (0, nanoseconds)


@dataclass(frozen=True, kw_only=True)
class _Originals:
    """Where contents are found: the store of Git LFS, and the unchanged files of a working tree."""

    source: Path
    store: Path
    entries: Mapping[str, _Entry]

    @classmethod
    def of(cls, source: Path, names: Sequence[str]) -> _Originals:
        common = Path(try_git(source, "rev-parse", "--path-format=absolute", "--git-common-dir") or ".")
        configured = try_git(source, "config", "--type=path", "--get", "lfs.storage")
        store = common / (configured or "lfs") / "objects"
        return cls(source=source, store=store, entries=_entries(source, names))

    def find(self, name: str, blob: str, pointer: tuple[str, int] | None) -> Path | None:
        own = self.source / name
        if pointer is not None:
            oid, size = pointer
            kept = self.store / oid[:2] / oid[2:4] / oid
            if kept.is_file() and kept.stat().st_size == size:
                return kept
            return own if _has_content(own, pointer) else None
        entry = self.entries.get(name)
        unchanged = entry is not None and entry.blob == blob and entry.describes(own)
        return own if unchanged and own.is_file() and not own.is_symlink() else None


def _with_filter(top: Path, names: Sequence[str]) -> set[str]:
    given = "".join(f"{name}\0" for name in names).encode(errors="surrogateescape")
    found = run_git(top, "check-attr", "-z", "--stdin", "filter", given=given).split("\0")[:-1]
    return {name for name, value in zip(found[::3], found[2::3], strict=True) if value not in _NO_FILTER}


def _entries(top: Path, names: Sequence[str]) -> dict[str, _Entry]:
    entries = {}
    for begin in range(0, len(names), _AT_ONCE):
        wanted = (f":(literal){name}" for name in names[begin : begin + _AT_ONCE])
        for match in _ENTRY.finditer(run_git(top, "ls-files", "--stage", "--debug", "-z", "--", *wanted)):
            blob, name, seconds, nanoseconds, size = match.groups()
            entries[name] = _Entry(
                blob=blob, seconds=int(seconds), nanoseconds=int(nanoseconds), size=int(size)
            )
    return entries


def _drivers(source: Path) -> list[str]:
    keys = ("config", "-z", "--get-regexp", r"^filter\..*\.(smudge|process)$")
    entries = (entry.partition("\n") for entry in (try_git(source, *keys) or "").split("\0") if entry)
    changing = {key for key, _, command in entries if command.strip() not in _NO_SMUDGE}
    return sorted({_LFS, *(key.removeprefix("filter.").rpartition(".")[0] for key in changing)})


def _excluded(source: Path, root: Path) -> list[str]:
    get = ("--get", "lfs.fetchexclude")
    patterns = try_git(source, "config", *get) or try_git(root, "config", "--file", ".lfsconfig", *get) or ""
    return [pattern.strip() for pattern in patterns.split(",") if pattern.strip()]


def _blobs(entries: Sequence[str]) -> dict[str, str]:
    return {name: _HASH.findall(about)[0] for about, _, name in (entry.partition("\t") for entry in entries)}


def _pointer(path: Path) -> tuple[str, int] | None:
    if not path.is_file() or path.stat().st_size > _MOST_POINTER_BYTES:
        return None
    return _named(path.read_bytes())


def _named(text: bytes) -> tuple[str, int] | None:
    match = _POINTER.fullmatch(text)
    return None if match is None else (match[1].decode(), int(match[2]))


def _has_content(path: Path, pointer: tuple[str, int]) -> bool:
    oid, size = pointer
    return path.is_file() and path.stat().st_size == size and _digest(path) == oid


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
