"""Files of a checkout: which are measured, single ones put there or taken away, and reports of perfkit."""

from __future__ import annotations

import contextlib
import filecmp
import glob
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath, PurePosixPath

from perfkit.errors import RepositoryError
from perfkit.model import Commit

_SHA_DIGITS = 40
# Folders that tools write, no part of anyone's code; pytest-benchmark keeps its runs in the first.
OUTPUTS = frozenset({
    ".benchmarks", ".hypothesis", ".mypy_cache", ".nox", ".pytest_cache", ".ruff_cache", ".tox",
    "__pycache__",
})  # fmt: skip
_LEFT_OUT = OUTPUTS | {".git", ".venv", "node_modules", "venv"}
_LEFT_OUT_SUFFIX = ".egg-info"
# What an interpreter, a compiler or a build reads.
_SOURCES = (
    *(".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".f", ".f90", ".h", ".hh", ".hpp", ".hxx", ".rs"),
    *(".py", ".pyi", ".pyx", ".pxd", ".pxi", ".cfg", ".toml"),
)
_NO_CODE = frozenset({".md", ".rst", ".stat", ".svg"})
_CODE = frozenset(
    {
        *(".py", ".pyx", ".pxd", ".pxi", ".so", ".toml", ".cfg", ".ini"),
        *(".c", ".h", ".cc", ".hh", ".cpp", ".hpp", ".cu", ".cuh", ".rs", ".f", ".f90"),
    }
)


def place_inside(root: Path, name: str) -> Path:
    """Return where a file with a name relative to a root belongs."""
    path = root / name
    if not path.parent.resolve().is_relative_to(root.resolve()):
        raise RepositoryError(
            f"{name} leads out of the checkout in {root}; replace the link on its way by a folder"
        )
    return path


def put_file(source: Path, root: Path, name: str, *, follow_links: bool = False) -> None:
    """Copy a file or link to its place in a root, over a file that is there."""
    path = place_inside(root, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # An existing link must go first: writing to it would change the file it leads to.
        path.unlink(missing_ok=True)
        shutil.copy2(source, path, follow_symlinks=follow_links)
    except OSError as error:
        raise RepositoryError(f"cannot copy {source} to {path}: {error.strerror}") from error


def remove_file(root: Path, name: str) -> None:
    """Remove a file and the folders it leaves empty: Python would import those as packages."""
    path = place_inside(root, name)
    path.unlink(missing_ok=True)
    for folder in path.relative_to(root).parents[:-1]:
        with contextlib.suppress(OSError):
            (root / folder).rmdir()


def is_code(name: str) -> bool:
    """Return whether a file may change what a benchmark measures; pages of text and profiles do not."""
    path = PurePath(name)
    return path.suffix not in _NO_CODE and OUTPUTS.isdisjoint(path.parts)


def is_code_file(name: str) -> bool:
    """Return whether a file is named like code."""
    return PurePath(name).suffix in _CODE


def describe_folder(folder: Path) -> Commit:
    """Return what stands for a folder in place of a commit: a hash of the files that are measured."""
    try:
        sha = hash_files(folder, _files(folder))[:_SHA_DIGITS]
    except OSError as error:
        raise RepositoryError(f"cannot read {error.filename}: {error.strerror}") from error
    return Commit(sha=sha, subject=f"directory {folder.name}", dirty=True)


def source_names(folder: Path) -> frozenset[str]:
    """Return the names of the files in a folder that a package is built of, generated ones included."""
    return frozenset(name for name in _files(folder) if name.lower().endswith(_SOURCES))


def copy_folder(source: Path, target: Path) -> None:
    """Copy the files of a folder that are measured, links as links."""
    if target.resolve().is_relative_to(source.resolve()):
        raise RepositoryError(f"{source} holds the temporary folder {target}; set TMPDIR to one outside it")
    try:
        shutil.copytree(source, target, symlinks=True, ignore=_left_out)
    except OSError as error:
        raise RepositoryError(f"cannot copy {source} to {target}: {error}") from error


def hash_files(root: Path, names: Iterable[str]) -> str:
    """Return 64 hex digits of the SHA-256 of files: their names relative to ``root``, kinds and contents."""
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(os.fsencode(f"{name}\0{_content(root / name)}\0"))
    return digest.hexdigest()


def _content(file: Path) -> str:
    if file.is_symlink():
        return f"link {file.readlink()}"
    with file.open("rb") as stream:
        content = hashlib.file_digest(stream, "sha256").hexdigest()
    return f"{'executable' if os.access(file, os.X_OK) else 'file'} {content}"


def _files(folder: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder, onerror=_raise):
        left_out = _left_out(place, [*folders, *files])
        folders[:] = [name for name in folders if name not in left_out]
        links = [name for name in folders if Path(place, name).is_symlink()]
        kept = [name for name in files if name not in left_out]
        yield from (Path(place, name).relative_to(folder).as_posix() for name in [*kept, *links])


def _left_out(place: str, names: Sequence[str]) -> set[str]:
    return {
        name
        for name in names
        if name in _LEFT_OUT or name.endswith(_LEFT_OUT_SUFFIX) or _is_special(Path(place, name))
    }


def differing_files(base: Path, head: Path) -> frozenset[str]:
    """Return the names, relative to two folders, of the files and links that differ between them.

    What tools write beside the code is none of it.
    """
    names = {
        PurePath(place, name).relative_to(top).as_posix()
        for top in (base, head)
        for place, folders, files in os.walk(top)
        for name in [*files, *_links(place, folders)]
    }
    return frozenset(name for name in names if _differs(base / name, head / name))


def _links(place: str, folders: list[str]) -> list[str]:
    """Return the links among folders, and leave out those with what tools write."""
    folders[:] = [one for one in folders if one not in OUTPUTS | {".git"} and not one.endswith(".aside")]
    return [name for name in folders if Path(place, name).is_symlink()]


def _differs(base: Path, head: Path) -> bool:
    if base.name == ".git":
        return False
    try:
        if base.is_symlink() or head.is_symlink():
            return base.readlink() != head.readlink()
        if base.stat().st_mode & 0o111 != head.stat().st_mode & 0o111:
            return True
        return not filecmp.cmp(base, head, shallow=False)
    except OSError:
        return True


def _is_special(path: Path) -> bool:
    mode = path.lstat().st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def _raise(error: OSError) -> None:
    raise error


def overlay(files: Sequence[PurePosixPath | str], *, source: Path, target: Path) -> tuple[str, ...]:
    """Lay files of ``source`` over ``target`` at their own relative paths."""
    return tuple(name for name in map(str, files) if _lay(name, source, target))


def has_replaced(target: Path, file: PurePosixPath | str) -> bool:
    """Return whether an overlaid file took the place of another one."""
    own = _aside(target, "own") / str(file)
    return own.is_symlink() or own.is_file()


def original(target: Path, file: PurePosixPath | str) -> Path:
    """Return where the content of a file is that was there before any overlay."""
    return _aside(target, "own") / str(file) if has_replaced(target, file) else target / str(file)


def restore(target: Path, file: PurePosixPath | str) -> None:
    """Bring back what an overlay replaced; a file that was not there before goes away."""
    name = str(file)
    path = place_inside(target, name)
    own = _aside(target, "own") / name
    if own.is_symlink() or own.is_file():
        put_file(own, target, name)
    elif (_aside(target, "absent") / name).is_file():
        remove_file(target, name)
    _forget_bytecode(path)


def _lay(name: str, source: Path, target: Path) -> bool:
    path = place_inside(target, name)
    try:
        if path.is_file() and path.read_bytes() == (source / name).read_bytes():
            return False
    except OSError as error:
        raise RepositoryError(f"cannot read {error.filename}: {error.strerror}") from error
    _keep(name, path, target)
    # A link of head's, copied as a link, would lead to base's own file.
    put_file(source / name, target, name, follow_links=True)
    _forget_bytecode(path)
    return True


def _keep(name: str, path: Path, target: Path) -> None:
    own, absent = _aside(target, "own"), _aside(target, "absent")
    if (own / name).is_symlink() or (own / name).exists() or (absent / name).exists():
        return
    if path.is_symlink() or path.exists():
        put_file(path, own, name)
    else:
        (absent / name).parent.mkdir(parents=True, exist_ok=True)
        (absent / name).touch()


def _aside(target: Path, kind: str) -> Path:
    return target.parent / f"{target.name}.aside" / kind


def _forget_bytecode(path: Path) -> None:
    for cached in (path.parent / "__pycache__").glob(f"{glob.escape(path.stem)}.*.pyc"):
        cached.unlink()


# The list begins anew beyond this size; a report that is forgotten counts as a change again.
_LARGEST = 1 << 20


def caches() -> Path:
    """Return the folder of what perfkit keeps from one command to the next, which anybody may remove."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "perfkit"


def digest_of(content: bytes) -> str:
    """Return what a report is known by."""
    return hashlib.sha256(content).hexdigest()


def keep_reports(digests: Iterable[str]) -> None:
    """Remember the contents of reports; where nothing can be kept, they count as changes."""
    # There may be no home folder.
    with contextlib.suppress(OSError, RuntimeError):
        place = caches() / "reports"
        place.parent.mkdir(parents=True, exist_ok=True)
        is_full = place.is_file() and place.stat().st_size > _LARGEST
        with place.open("w" if is_full else "a", encoding="ascii") as stream:
            stream.write("".join(f"{digest}\n" for digest in digests))


def is_report(content: bytes) -> bool:
    """Return whether perfkit wrote exactly this."""
    try:
        return digest_of(content) in (caches() / "reports").read_text(encoding="ascii").split()
    except (OSError, RuntimeError, UnicodeDecodeError):
        return False
