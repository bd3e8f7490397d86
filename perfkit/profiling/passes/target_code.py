"""The target in the process of a pass: which code is the user's, how it fails, and where hydra writes."""

from __future__ import annotations

import functools
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import Any

from perfkit.errors import UsageError
from perfkit.profiling.passes.exchange import Problem
from perfkit.profiling.passes.targets import StepLine, loop_around
from perfkit.runner.targets import without_cell

_HARNESS = Path(__file__).resolve().parent
_PERFKIT = _HARNESS.parents[1]
_INSTALLED = ("site-packages", "dist-packages")
_OUT_OF_MEMORY = ("MemoryError", "OutOfMemoryError")
_HYDRA = "hydra"
_FOLDERS = ("hydra.run.dir", "hydra.sweep.dir")
# With it, hydra raises what a run raises; without, it prints that and exits.
_WHOLE_ERRORS = "HYDRA_FULL_ERROR"


@dataclass(frozen=True, kw_only=True)
class OwnCode:
    """The user's own code: all files in ``packages``, and those under ``trees`` that are not installed."""

    root: Path
    packages: tuple[Path, ...] = ()
    trees: tuple[Path, ...] = ()

    def owns(self, file: str) -> bool:
        """Return whether a file is the user's; perfkit's own frames never are."""
        path = Path(without_cell(file))
        if not path.is_absolute() or path.is_relative_to(_HARNESS):
            return False
        if any(path.is_relative_to(package) for package in self.packages):
            return True
        return any(path.is_relative_to(tree) for tree in self.trees) and not _is_installed(path)

    def shown(self, file: str) -> str:
        """Return a file's name for people: relative to the project's root, or from the library's name on."""
        path = Path(file)
        if not path.is_absolute():
            return file
        if is_harness(file):
            return f"perfkit/profiling/{path.name}"
        if path.is_relative_to(self.root) and not _is_installed(path):
            return path.relative_to(self.root).as_posix()
        for place in _INSTALLED:
            if place in path.parts:
                return Path(*path.parts[path.parts.index(place) + 1 :]).as_posix()
        library = _standard_library()
        return path.relative_to(library.parent).as_posix() if path.is_relative_to(library) else str(path)


def find_own_code(names: Sequence[str], *, root: Path, script: Path | None) -> OwnCode:
    """Return the own code: the named packages, or without names all under ``root``; always the script."""
    packages = tuple(folder.resolve() for name in names for folder in _places(name, root))
    scripts = (script,) if script is not None else ()
    if packages:
        return OwnCode(root=root, packages=(*packages, *scripts))
    return OwnCode(root=root, packages=scripts, trees=(root, *(path.parent for path in scripts)))


def is_harness(file: str) -> bool:
    """Return whether a file is part of perfkit's own measuring code."""
    return Path(file).is_relative_to(_HARNESS)


def _places(name: str, root: Path) -> Iterator[Path]:
    found = _module_places(name)
    relative = Path(*name.split("."))
    usual = (folder / relative for folder in (root, root / "src"))
    yield from found or (path for path in usual if path.exists())


def _module_places(name: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return [Path(place) for place in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.origin else []


def _is_installed(path: Path) -> bool:
    if any(part in _INSTALLED for part in path.parts) or path.is_relative_to(_standard_library()):
        return True
    return sys.prefix != sys.base_prefix and path.is_relative_to(sys.prefix)


def _standard_library() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def optimizer_exists() -> bool:
    """Return whether there is an optimizer of torch, which may step later than this."""
    from torch.optim import Optimizer

    return any(issubclass(type(one), Optimizer) for one in gc.get_objects())


def calling_loop() -> StepLine | None:
    """Return the innermost loop of the user's code that runs now, None where there is none."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (as documented)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.suffix == ".py" and not (_is_installed(path) or path.is_relative_to(_PERFKIT)):
            found = loop_around(path, frame.f_lineno, frame.f_code.co_firstlineno)
            if found is not None:
                return found
        frame = frame.f_back
    return None


def describe_failure(error: BaseException, name: str, find_own: Callable[[], OwnCode]) -> Problem:
    """Return the problem of a target: a mistake in its use, its own exit, or what it raised and where."""
    if isinstance(error, UsageError):
        return Problem(kind="usage", message=str(error))
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 1
        text = f": {error.code}" if isinstance(error.code, str) else ""
        return Problem(kind="failed", message=f"{name} exited with code {code}{text}")
    frames, own = without_harness(error.__traceback__), find_own()
    details = "".join(traceback.format_exception(type(error), error, frames))
    return Problem(
        kind="failed",
        message=f"{name} raised {_in_a_line(error)}{_location(error, frames, own)}"
        + as_a_module(error, own.root),
        status="oom" if type(error).__name__ in _OUT_OF_MEMORY else "error",
        details=details,
    )


def as_a_module(error: BaseException, root: Path) -> str:
    """Return as which module a script runs that is one of its package, "" of another failure."""
    frames = list(traceback.walk_tb(error.__traceback__))
    if not (frames and isinstance(error, ImportError) and "no known parent package" in str(error)):
        return ""
    frame, _ = frames[-1]
    script = Path(frame.f_code.co_filename)
    if frame.f_globals.get("__name__") != "__main__" or not script.is_relative_to(root):
        return ""
    module = ".".join(script.relative_to(root).with_suffix("").parts).removeprefix("src.")
    return f"; it is a module of a package: run it as `{module}`"


def describe_internal_failure(error: Exception) -> Problem:
    """Return the problem of a pass in which perfkit's own code raised."""
    details = "".join(traceback.format_exception(error))
    return Problem(kind="internal", message=f"perfkit raised {_in_a_line(error)}", details=details)


def _in_a_line(error: BaseException) -> str:
    kind = type(error).__name__
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    first_line = next(iter(text.splitlines()), "")
    return f"{kind}: {first_line}" if first_line else kind


def without_harness(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the first frame on that is neither perfkit's nor the import system's."""
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if not Path(file).is_relative_to(_PERFKIT) and "importlib" not in file:
            break
        frames = frames.tb_next
    return frames


def _location(error: BaseException, frames: TracebackType | None, own: OwnCode) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({own.shown(error.filename)}:{error.lineno})"
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(frames)]
    mine = [place for place in places if own.owns(place[0])] or places
    return f" ({own.shown(mine[-1][0])}:{mine[-1][1]})" if mine else ""


def redirect_hydra(folder: Path) -> None:
    """Have ``hydra.main`` put its outputs into a folder, unless the arguments name one."""
    sys.meta_path.insert(0, _HydraFinder(folder))


class _HydraFinder(importlib.abc.MetaPathFinder):
    """Waits for the import of hydra, which no target needs to make, and is gone once that has begun."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != _HYDRA:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(_HYDRA)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = functools.partial(self._load, loader.exec_module)
        return spec

    def _load(self, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        execute(module)
        main: Any = getattr(module, "main", None)
        if not callable(main):
            return

        @functools.wraps(main)
        def redirected(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (hydra's own signature)
            os.environ.setdefault(_WHOLE_ERRORS, "1")
            quoted = str(self._folder).replace("'", "\\'")
            for key in _FOLDERS:
                if not any(argument.lstrip("+").startswith(f"{key}=") for argument in sys.argv[1:]):
                    sys.argv.append(f"{key}='{quoted}'")
            return main(*args, **kwargs)

        for owner in (module, sys.modules.get(f"{_HYDRA}.main")):
            if owner is not None:
                owner.main = redirected  # type: ignore[attr-defined]
