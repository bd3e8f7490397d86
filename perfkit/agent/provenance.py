"""Which code is a tree's own, and proof of where loaded code came from."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import math
import os
import sys
import sysconfig
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

# This is imported before any measured code, which may write modules as it runs and import them.
STARTED = time.time()
_INSTALLED = ("site-packages", "dist-packages")
_PREFIXES = frozenset(
    place
    for prefix in (sys.prefix, sys.exec_prefix, sys.base_prefix)
    for place in (prefix, os.path.realpath(prefix))
)
_STANDARD_LIBRARY = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
# The search of a folder for modules ends after this many files, since it may hold data.
_FILES_LOOKED_AT = 1000


def own_part(path: Path, tree: Path) -> Path | None:
    """Return ``path`` relative to ``tree``; None where it lies elsewhere or in an environment inside."""
    absolute = os.path.abspath(path)  # noqa: PTH100 (a link must not be followed here)
    if os.path.isdir(absolute):  # noqa: PTH112 (this is asked of thousands of modules)
        return _own_folder(absolute, tree)
    return _own_file(absolute, tree)


def counterpart(path: Path, root: Path, origins: Sequence[Path]) -> Path | None:
    """Return the place that corresponds to ``path`` of an origin, existing or not; else None."""
    deepest_first = sorted(origins, key=lambda origin: len(origin.parts), reverse=True)
    for tree in (root, *deepest_first):
        part = own_part(path, tree)
        if part is not None:
            return checkout_around(root, tree) / part
    return None


@functools.cache
def checkout_around(root: Path, origin: Path) -> Path:
    """Return the folder that corresponds to an origin: ``root``, or the top of the checkout around it."""
    if root != origin:
        for place in (root, *root.parents):
            if (place / ".git").exists() and (origin / root.relative_to(place)).is_dir():
                return place
    return root


def lies_in_origin(path: Path, root: Path, origins: Sequence[Path]) -> bool:
    """Return whether ``path`` is an origin's own and not in ``root``."""
    return own_part(path, root) is None and any(own_part(path, origin) is not None for origin in origins)


def own_places(root: Path, origins: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return the folders of ``root`` that its names are imported from.

    Besides ``root`` and ``root/src`` these are the entries of ``sys.path`` inside it, and the counterparts
    of those inside an origin.
    """
    source = [root / "src"] if _is_source_folder(root / "src") else []
    entries = (counterpart(Path(entry), root, origins) for entry in sys.path)
    mapped = [place for place in entries if place is not None and place.is_dir()]
    return tuple(dict.fromkeys([root, *source, *mapped]))


def own_modules(places: Iterable[Path]) -> frozenset[str]:
    """Return the dotted names of modules and packages in ``places``, those in namespace folders included."""
    return frozenset(name for place in places for name in _modules_in(place))


def own_names(root: Path, origins: Sequence[Path] = ()) -> frozenset[str]:
    """Return the top-level names importable from ``root``: modules, packages and namespace packages."""
    return frozenset(_top(name) for name in own_modules(own_places(root, origins)))


def where_from(names: Iterable[str]) -> dict[str, str]:
    """Return where top-level names were, or would be, imported from: a file, or a namespace's first folder.

    Nothing is imported. Names that cannot be imported or are built into the interpreter are left out.
    """
    found = {name: loaded_file(name) or _findable_place(name) for name in names}
    return {name: place for name, place in found.items() if place is not None}


def check_before_import(root: Path, names: Iterable[str]) -> dict[str, str]:
    """Return those of the tree's own ``names`` that were or would be imported from elsewhere, with the place.

    A namespace folder that an installed package of the same name hides is not reported here: which of them is
    meant is known only when their modules are imported (``foreign_modules``).
    """
    places = own_places(root)
    return {
        name: place
        for name, place in where_from(names).items()
        if _holds(places, name) and own_part(Path(place), root) is None and not _is_standard(name, place)
    }


def foreign_modules(
    root: Path, origins: Sequence[Path] = (), *, made_since: float = math.inf
) -> dict[str, str]:
    """Return the loaded modules that should have come from ``root`` but did not, with their files.

    These have names that ``root`` holds, lie below a package of ``root`` but off its search path, or lie
    inside an origin. An empty result proves that ``root`` was measured. Modules that the code itself wrote
    since ``made_since`` (seconds since the epoch) are its own.
    """
    judge = _Judge(root, made_since)
    files = _loaded_files()
    return {
        name: file
        for name, file in files.items()
        if judge.accuses(name, file)
        or (_file_lies_in_origin(file, root, origins) and not _is_the_agent(name))
    }


def foreign_files(loaded: Mapping[str, str], root: Path) -> dict[str, str]:
    """Return those of another interpreter's modules, by file, that ``root`` holds and that it did not use."""
    places = own_places(root)
    return {
        name: file
        for name, file in loaded.items()
        if "." not in name
        and _holds(places, name)
        and own_part(Path(file), root) is None
        and not _is_standard(name, file)
    }


def foreign_in_words(foreign: Mapping[str, str]) -> str:
    """Return a sentence that names the first of the modules that came from elsewhere, and its file."""
    name, file = min(foreign.items())
    if is_native(foreign):
        return f"wrong code loaded: {file} was built outside of the checkout, where both sides may find it"
    return f"wrong code imported: {name} came from {file}"


def is_native(foreign: Mapping[str, str]) -> bool:
    """Return whether the first of what came from elsewhere is a native library and no module."""
    name, file = min(foreign.items())
    return Path(file).name == name


def loaded_files(root: Path) -> tuple[str, ...]:
    """Return the files of ``root`` that loaded modules came from: relative, with slashes, sorted."""
    parts = (_own_file(file, root) for file in _loaded_files().values())
    return tuple(sorted({part.as_posix() for part in parts if part is not None}))


def loaded_own(root: Path, origins: Sequence[Path] = ()) -> frozenset[str]:
    """Return the top-level names of the loaded modules that ``root`` holds too, wherever they came from."""
    places = own_places(root, origins)
    names = frozenset(_top(name) for name in own_modules(places))
    return frozenset(
        _top(name)
        for name, file in _loaded_files().items()
        if _top(name) in names and _holds(places, name) and not _is_standard(name, file)
    )


def is_installed(file: str) -> bool:
    """Return whether a file lies in an environment or in the standard library."""
    return any(part in _INSTALLED for part in Path(file).parts) or any(
        file.startswith(f"{prefix}/") for prefix in _PREFIXES
    )


def is_library(file: str | None, root: Path) -> bool:
    """Return whether a module's file is installed or the standard library's, and does not lie in ``root``."""
    if file is None or Path(file).is_relative_to(root):
        return False
    return any(part in _INSTALLED for part in Path(file).parts) or _is_in_standard_library(file)


def libraries_since(before: Collection[str], root: Path) -> list[str]:
    """Return the modules of libraries that were loaded after these."""
    return [name for name in list(sys.modules) if name not in before and is_library(loaded_file(name), root)]


def namespace_of(name: str) -> dict[str, object]:
    """Return what a loaded module holds, without triggering one that loads itself on first use."""
    try:
        held = object.__getattribute__(sys.modules.get(name), "__dict__")
    except AttributeError:
        return {}
    return held if isinstance(held, dict) else {}


def spec_places(spec: ModuleSpec) -> Iterator[Path]:
    """Yield the file and the search folders of what an import would load."""
    if spec.has_location and spec.origin:
        yield Path(spec.origin)
    yield from map(Path, spec.submodule_search_locations or ())


class _Judge:
    """Finds loaded modules that have names of a tree's own and came from elsewhere."""

    def __init__(self, root: Path, made_since: float) -> None:
        self._root, self._made_since = root, made_since
        self._places = own_places(root)
        self._names = own_names(root)

    def accuses(self, name: str, file: str) -> bool:
        if _top(name) not in self._names or own_part(Path(file), self._root) is not None:
            return False
        if _is_standard(name, file):
            return False
        return _holds(self._places, name) or (self._is_below_ours(name, file) and not self._was_made(file))

    def _was_made(self, file: str) -> bool:
        try:
            return os.stat(file).st_mtime >= self._made_since  # noqa: PTH116 (asked of many modules)
        except OSError:
            return False

    def _is_below_ours(self, name: str, file: str) -> bool:
        package = name.rpartition(".")[0]
        above = loaded_file(package)
        if above is None:
            return False
        if own_part(Path(above), self._root) is None:
            return self.accuses(package, above)
        searched = {os.path.realpath(place) for place in getattr(sys.modules[package], "__path__", ())}
        return searched.isdisjoint(_with_parents(Path(file).parent))


def _is_the_agent(name: str) -> bool:
    return f"{name}.".startswith(f"{__package__}.")


def _modules_in(place: Path) -> Iterator[str]:
    with os.scandir(place) as entries:
        for entry in entries:
            if _is_folder(entry):
                yield from _modules_of_folder(Path(entry.path))
            elif (name := _module_name(entry.name)) not in (None, "__init__", "__main__"):
                yield str(name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link to itself


def _modules_of_folder(top: Path) -> Iterator[str]:
    if not _may_hold_modules(top):
        return
    seen = 0
    for folder, folders, files in os.walk(top):
        above = Path(folder).relative_to(top.parent).parts
        names = [name for file in files if (name := _module_name(file))]
        is_package = "__init__" in names
        yield from [".".join(above)] if is_package else (".".join((*above, name)) for name in names)
        folders[:] = [name for name in folders if not is_package and _may_hold_modules(Path(folder, name))]
        seen += len(files)
        if seen > _FILES_LOOKED_AT:
            return


def _may_hold_modules(folder: Path) -> bool:
    return folder.name.isidentifier() and folder.name != "__pycache__" and not _is_environment(folder)


def _module_name(file: str) -> str | None:
    name = inspect.getmodulename(file)
    return name if name is not None and name.isidentifier() else None


def _is_source_folder(folder: Path) -> bool:
    return folder.is_dir() and not _holds((folder.parent,), folder.name) and any(_modules_in(folder))


def _holds(places: Iterable[Path], name: str) -> bool:
    *above, last = name.split(".")
    spec = PathFinder.find_spec(last, [str(place.joinpath(*above)) for place in places])
    return spec is not None and spec.has_location


def _loaded_files() -> dict[str, str]:
    names = (name for name in list(sys.modules) if name not in ("__main__", "__mp_main__"))
    files = {name: loaded_file(name) for name in names if namespace_of(name).get("__name__") == name}
    return {name: file for name, file in files.items() if file is not None}


def loaded_file(name: str) -> str | None:
    """Return the file that a loaded module names, without having it make anything up or import."""
    file = namespace_of(name).get("__file__")
    return file if isinstance(file, str) else None


def _findable_place(name: str) -> str | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return next((str(place) for place in spec_places(spec)), None) if spec is not None else None


def _is_standard(name: str, file: str) -> bool:
    if _top(name) not in sys.stdlib_module_names or any(part in file for part in _INSTALLED):
        return False
    return _is_in_standard_library(file)


def _is_in_standard_library(file: str) -> bool:
    return not _STANDARD_LIBRARY.isdisjoint(_with_parents(Path(file).parent))


def _top(name: str) -> str:
    return name.partition(".")[0]


def _file_lies_in_origin(file: str, root: Path, origins: Sequence[Path]) -> bool:
    return _own_file(file, root) is None and any(_own_file(file, origin) is not None for origin in origins)


def _own_file(file: str, tree: Path) -> Path | None:
    above, name = os.path.split(file if os.path.isabs(file) else os.path.abspath(file))  # noqa: PTH100, PTH117
    folder = _own_folder(above, tree)
    return folder / name if folder is not None else None


@functools.cache
def _own_folder(folder: str, tree: Path) -> Path | None:
    absolute, trunk = os.path.abspath(folder), os.path.abspath(tree)  # noqa: PTH100
    for place, top in ((absolute, trunk), (_resolved(absolute), _resolved(trunk))):
        if f"{place}/".startswith(f"{top}/"):
            part = Path(place).relative_to(top)
            below = [Path(top, each) for each in (*part.parents, part) if each.parts]
            return None if any(map(_is_environment, below)) else part
    return None


@functools.cache
def _resolved(folder: str) -> str:
    above, name = os.path.split(folder)
    if not name:
        return folder
    place = os.path.join(_resolved(above), name)  # noqa: PTH118
    return os.path.realpath(place) if os.path.islink(place) else place  # noqa: PTH114


@functools.cache
def _is_environment(folder: Path) -> bool:
    return folder.name in _INSTALLED or str(folder) in _PREFIXES or (folder / "pyvenv.cfg").is_file()


@functools.cache
def _with_parents(folder: Path) -> frozenset[str]:
    resolved = folder.resolve()
    return frozenset(map(str, (resolved, *resolved.parents)))


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
    """Return the native libraries that the code under test may have built elsewhere, by name.

    Both sides may share them. They lie neither in ``own`` nor in an environment and were written since the
    comparison ``began``, or lie in a cache and were written since ``oldest`` (both in seconds since the
    epoch).
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
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111
    # Programs are installed below this one.
    if file.startswith(f"{home}/.local/"):
        return False
    return file.startswith((*(f"{place}/" for place in caches), f"{home}/."))


def has_torch() -> bool:
    """Return whether torch is loaded or could be imported."""
    return sys.modules.get("torch") is not None or importlib.util.find_spec("torch") is not None


def read_torch_settings() -> dict[str, str]:
    """Return torch's threads and precision flags; nothing where torch is not loaded."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    return {
        "cuda": str(torch.version.cuda),
        "threads": str(torch.get_num_threads()),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "cudnn_benchmark": str(torch.backends.cudnn.benchmark),
    }
