"""What a fresh checkout lacks: generated files, and what a build or another command makes there."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import posixpath
import shlex
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath
from typing import Literal

from perfkit.bounded import read_text
from perfkit.errors import ConfigError, RepositoryError, SideNotMeasuredError
from perfkit.identity import fingerprint
from perfkit.model import Side
from perfkit.repo.files import caches, hash_files, place_inside
from perfkit.repo.git import list_with_git, outside_repository, try_git
from perfkit.runner.commands import run_command
from perfkit.temporary import temporary_folder

Key = Literal["copy", "link"]
# Where known tools that write a version into a file as they build name that file, below [tool].
_VERSION_KEYS = (
    ("setuptools_scm", "write_to"),
    ("setuptools_scm", "version_file"),
    ("hatch", "build", "hooks", "vcs", "version-file"),
    ("pdm", "version", "write_to"),
    ("versioneer", "versionfile_source"),
)

_STAND_IN = """# Written by perfkit, since the build that writes this file was not run.
__version__ = version = "0.0.0"
__version_tuple__ = version_tuple = (0, 0, 0)
"""
# Only this build backend can compile in place; all others build for an installation.
_IN_PLACE = "setuptools"
SIDE_VARIABLE = "PERFKIT_SIDE"
# This many builds are kept, the newest, and none that is larger.
_MOST_KEPT, _MOST_BYTES = 8, 1 << 30
# Variables that compilers and builds obey have such words in their names.
_WORDS_OF_BUILDS = ("CC", "CXX", "FLAGS", "CUDA", "TORCH", "CMAKE", "BUILD", "ARCH", "LIBRARY", "INCLUDE")
_COMPILERS = ("cc", "gcc", "g++", "clang", "nvcc", "rustc", "gfortran")
# Each is written whenever the system's packages change.
_PACKAGES = ("/var/lib/dpkg/status", "/var/lib/rpm", "/var/lib/pacman/local", "/lib/apk/db/installed")
_COMPILED = (b"\x7fELF", b"!<arch>")
_NOT_KEPT = {".git", "__pycache__"}
# A file was written where one of these differs: its time, its size and its kind.
State = Mapping[str, tuple[int, int, int]]


def bring_generated(patterns: Sequence[str], *, key: Key, source: Path, root: Path, folder: PurePath) -> None:
    """Copy or link what the patterns match in ``source`` into a root, whose own files stay as they are."""
    make = _copy if key == "copy" else _link
    for pattern in patterns:
        for match in _matches(pattern, key, source, folder):
            name = match.relative_to(source).as_posix()
            try:
                _bring(match, place_inside(root, name), make)
            except OSError as error:
                raise RepositoryError(f"tool.perfkit.{key}: cannot {key} {match}: {error}") from error


def bring_versions(source: Path, root: Path) -> None:
    """Copy the version files that a build writes, where pyproject.toml names one that git does not keep."""
    for path in version_files(source):
        if (source / path).is_file():
            try:
                _bring(source / path, place_inside(root, path), _copy)
            except OSError as error:
                raise RepositoryError(f"cannot copy {source / path}: {error}") from error


def write_missing_versions(root: Path) -> Iterator[str]:
    """Write the version files that only a build would write, and yield the path of each."""
    for path in _written_versions(root):
        target = place_inside(root, path)
        if target.suffix == ".py" and target.parent.is_dir() and not os.path.lexists(target):
            target.write_text(_STAND_IN, encoding="utf-8")
            yield path


def version_files(root: Path) -> tuple[str, ...]:
    """Return the version files that a build writes below ``root`` and that git does not keep."""
    paths = _written_versions(root)
    return tuple(one for one in paths if not list_with_git(root, "ls-files", "-z", "--", f":(literal){one}"))


def _written_versions(root: Path) -> Iterator[str]:
    for described in list_with_git(root, "ls-files", "-z", "--", ":(glob)**/pyproject.toml"):
        try:
            document = tomllib.loads(read_text(root / described))
        except (OSError, ValueError, RecursionError):
            continue
        for *tables, key in _VERSION_KEYS:
            table = _table(document, "tool")
            for name in tables:
                table = _table(table, name)
            if isinstance(written := table.get(key), str):
                # This path starts from the root that setuptools_scm is configured with.
                start = str(table.get("root", "")) if key == "write_to" else ""
                yield os.path.normpath(Path(described).parent / start / written)


def _matches(pattern: str, key: Key, source: Path, folder: PurePath) -> list[Path]:
    from_top = posixpath.normpath(posixpath.join(folder.as_posix(), pattern))
    parts = PurePosixPath(from_top).parts
    if not PurePosixPath(pattern).parts or not parts or parts[0] in {"/", ".."}:
        raise ConfigError(f'tool.perfkit.{key}: "{pattern}" must be a path below the root of the repository')
    try:
        found = _found(from_top, parts, source)
    except ValueError as error:
        raise ConfigError(f'tool.perfkit.{key}: "{pattern}" is not a glob pattern: {error}') from error
    if not found:
        raise ConfigError(
            f'tool.perfkit.{key}: "{pattern}" matches nothing in {source / folder};'
            " build it or drop the pattern"
        )
    # A folder is brought whole, so what lies below it needs no turn of its own.
    return sorted(match for match in found if found.isdisjoint(match.parents))


def _found(pattern: str, parts: Sequence[str], source: Path) -> set[Path]:
    if any("**" in part and part != "**" for part in parts):
        # Since Python 3.13 it would be taken for "*".
        raise ValueError('"**" can only be an entire path component')
    return {match for match in source.glob(pattern) if ".git" not in match.relative_to(source).parts}


def _bring(source: Path, target: Path, make: Callable[[Path, Path], None]) -> None:
    if not os.path.lexists(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        make(source, target)
    elif source.is_dir() and target.is_dir() and not target.is_symlink():
        for child in sorted(source.iterdir()):
            _bring(child, target / child.name, make)


def _copy(source: Path, target: Path) -> None:
    if source.is_symlink():
        _link(source, target)
    elif source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


def _link(source: Path, target: Path) -> None:
    target.symlink_to(source.resolve())


def build_backend(folder: Path) -> str | None:
    """Return the build backend of a project, None where it has none: then there is nothing to build."""
    backend = _table(_described(folder), "build-system").get("build-backend")
    has_setup = (folder / "setup.py").is_file()
    if isinstance(backend, str):
        # So projects of CMake were built before they had a backend of their own.
        uses_cmake = has_setup and "skbuild" in read_text(folder / "setup.py", errors="replace")
        return "skbuild" if uses_cmake and backend.startswith(_IN_PLACE) else backend
    return _IN_PLACE if has_setup or _table(_described(folder), "build-system") else None


def build_command(folder: Path) -> str | None:
    """Return the command that builds the compiled modules of a project in place, None where nothing does."""
    backend = build_backend(folder)
    if backend is None:
        return None
    if not backend.startswith(_IN_PLACE):
        target = shlex.quote(_source_folder(folder))
        return f"python -m pip install --no-deps --no-build-isolation --upgrade --target {target} ."
    if (folder / "setup.py").is_file():
        return "python setup.py build_ext --inplace"
    return "python -c 'import setuptools; setuptools.setup()' build_ext --inplace"


def _source_folder(folder: Path) -> str:
    maturin = _table(_table(_described(folder), "tool"), "maturin")
    source = maturin.get("python-source")
    return str(source) if isinstance(source, str) else "src" if (folder / "src").is_dir() else "."


def _described(folder: Path) -> dict[str, object]:
    try:
        return tomllib.loads(read_text(folder / "pyproject.toml"))
    except (OSError, ValueError, RecursionError):
        return {}


def _table(document: dict[str, object], name: str) -> dict[str, object]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def prepare_root(
    command: str,
    *,
    side: Side,
    root: Path,
    folder: PurePath,
    commit: str | None = None,
    python: str = sys.executable,
    called: str | None = None,
) -> str | None:
    """Run a shell command in a folder of a root, ``PERFKIT_SIDE`` naming its side.

    ``called`` is the root's name in an error, by default its side. No process outlives the call. In it,
    ``python`` is the interpreter that the benchmarks will run under. Where the root holds a ``commit`` of
    which the command has made the same before, that is put in place, and a sentence is returned.
    """
    kept = None if commit is None else _kept_at(command, side, root, folder, commit, python)
    if kept is not None and _put_back(kept, root):
        return f"what prepare made of this commit before was used again; remove {kept} to have it anew"
    before = _state(root)
    _run(command, side, root / folder, python, called or side)
    if kept is not None:
        with contextlib.suppress(OSError):
            _keep(kept, root, before)
    return None


def _run(command: str, side: Side, place: Path, python: str, called: str) -> None:
    with temporary_folder() as folder:
        ending = run_command(
            ["/bin/sh", "-c", command],
            output=folder / "output.log",
            limit_s=None,
            environment={**outside_repository(os.environ), "PATH": _first_of(python), SIDE_VARIABLE: side},
            folder=place,
        )
    if ending.status:
        how = f"with exit code {ending.status}" if ending.status > 0 else f"and {ending.words}"
        reason = ending.tail[-1].strip() if ending.tail else "it printed nothing"
        raise SideNotMeasuredError(
            f"tool.perfkit.prepare: `{command}` failed on {called} {how}: {reason}", side=side
        )


def _first_of(python: str) -> str:
    own = [Path(one).parent for one in (python, sys.executable)]
    return os.pathsep.join((*dict.fromkeys(map(str, own)), os.environ.get("PATH", os.defpath)))


def _kept_at(command: str, side: Side, root: Path, folder: PurePath, commit: str, python: str) -> Path:
    brought = list_with_git(root, "ls-files", "--others", "-z")
    knows_side = SIDE_VARIABLE in command or try_git(root, "grep", "-l", SIDE_VARIABLE) is not None
    depends = {
        "command": command,
        "commit": commit,
        "side": side if knows_side else "",
        "brought": hash_files(root, brought),
        **({} if folder == PurePath() else {"folder": folder.as_posix()}),
        **({} if python == sys.executable else {"interpreter": python}),
        **_surroundings(),
    }
    return caches() / "prepared" / fingerprint(depends)


def _surroundings() -> dict[str, str]:
    installed = sorted(f"{one.name} {one.version}" for one in importlib.metadata.distributions())
    obeyed = sorted(
        f"{name}={value}"
        for name, value in os.environ.items()
        if any(word in name.upper() for word in _WORDS_OF_BUILDS)
    )
    compilers = {name: shutil.which(name) for name in _COMPILERS}
    times = [*filter(None, compilers.values()), *_PACKAGES]
    return {
        "python": f"{sys.version} {sys.prefix} {platform.platform()}",
        "installed": "\n".join(installed),
        "variables": "\n".join(obeyed),
        "compilers": repr(compilers),
        "times": repr([_written(Path(place)) for place in times]),
    }


def _written(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _state(root: Path) -> State:
    return {name: _stamp(root / name) for name in _files(root)}


def _stamp(file: Path) -> tuple[int, int, int]:
    found = file.lstat()
    return found.st_mtime_ns, found.st_size, found.st_mode


def _files(root: Path) -> Iterator[str]:
    for place, folders, files in os.walk(root):
        links = [name for name in folders if Path(place, name).is_symlink()]
        folders[:] = [name for name in folders if name not in _NOT_KEPT and name not in links]
        for name in (*files, *links):
            if name not in _NOT_KEPT:
                yield Path(place, name).relative_to(root).as_posix()


def _keep(kept: Path, root: Path, before: State) -> None:
    """Keep the files that a command made, where the same can be had by putting them into another root."""
    after = _state(root)
    made = [name for name, stamp in after.items() if before.get(name) != stamp]
    if not made or before.keys() - after.keys() or sum(after[name][1] for name in made) > _MOST_BYTES:
        return
    if any(_names(root, root / name) for name in made):
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=kept.parent, prefix="new-"))
    try:
        _copy_files(made, root, folder)
        folder.rename(kept)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    newest_first = sorted(kept.parent.iterdir(), key=_written, reverse=True)
    for old in newest_first[_MOST_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def _names(root: Path, file: Path) -> bool:
    if file.is_symlink():
        return str(root) in str(file.readlink())
    content = file.read_bytes()
    return os.fsencode(root) in content and not content.startswith(_COMPILED)


def _put_back(kept: Path, root: Path) -> bool:
    try:
        made = list(_files(kept))
        _copy_files(made, kept, root)
        if made:
            os.utime(kept)
    except OSError:
        return False
    return bool(made)


def _copy_files(names: list[str], source: Path, target: Path) -> None:
    for name in names:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        shutil.copy2(source / name, place, follow_symlinks=False)
