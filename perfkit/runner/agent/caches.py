"""Caches of built code: each side has its own, and native libraries from elsewhere are named."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .provenance import is_installed, own_part

# Tools that build code as it runs keep it in these folders, some under its name alone.
_ALWAYS_APART = ("TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR")
# Where these are not set, a folder of the process or of the checkout is used.
_APART_IF_SET = ("TORCHINDUCTOR_CACHE_DIR", "NUMBA_CACHE_DIR", "CUPY_CACHE_DIR")
_SHARED_PLACES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 (these are only compared with)


def part_caches(folder: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make tools keep what they build below a folder."""
    names = (*_ALWAYS_APART, *(name for name in _APART_IF_SET if environment.get(name)))
    return {name: os.path.join(folder, name.lower()) for name in names}  # noqa: PTH118


def built_elsewhere(own: Sequence[Path], *, began: float, oldest: float) -> dict[str, str]:
    """Return the native libraries of this process that the code under test may have built elsewhere, by name.

    Both sides may share such a library, so that one of them runs what the other one built. It lies neither
    in a folder of ``own`` nor in an environment, and was written since the comparison ``began``; or it lies
    in a cache or among temporary files, and was written since ``oldest``, when the older side was committed.
    Both are seconds since the epoch. Nothing is found where the kernel does not list what is mapped.
    """
    caches = _cache_folders()
    return {
        Path(file).name: file
        for file in _mapped_libraries()
        if _written(file) >= (oldest if _is_in_cache(file, caches) else began)
        and not is_installed(file)
        and all(own_part(Path(file), folder) is None for folder in own)
    }


def _mapped_libraries() -> Iterator[str]:
    """Yield the files that machine code of this process comes from."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    # The permissions are the second field, and a path the sixth.
    fields = (line.split(maxsplit=5) for line in lines)
    yield from sorted({one[5] for one in fields if len(one) > 5 and "x" in one[1] and one[5][0] == "/"})  # noqa: PLR2004


def _written(file: str) -> float:
    try:
        found = os.stat(file)  # noqa: PTH116 (asked of many files)
    except OSError:
        return 0.0
    return max(found.st_mtime, found.st_ctime)


def _cache_folders() -> tuple[str, ...]:
    cache = os.environ.get("XDG_CACHE_HOME")
    return tuple(map(os.path.realpath, (*_SHARED_PLACES, *([cache] if cache else []))))


def _is_in_cache(file: str, caches: Sequence[str]) -> bool:
    """Tell whether a file lies among temporary files, in a cache, or in a hidden folder of the user."""
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111
    # Programs are installed below this one.
    if file.startswith(f"{home}/.local/"):
        return False
    return file.startswith((*(f"{place}/" for place in caches), f"{home}/."))
