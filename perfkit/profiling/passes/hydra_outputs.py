"""Hydra in the process of a pass: what it writes goes to the pass's folder, and its errors are told whole.

Each run of a function under ``@hydra.main`` makes a folder of outputs where the person is; the passes of one
profile would leave several. The overrides used are those of hydra's own command line:
https://hydra.cc/docs/configure_hydra/workdir/
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_HYDRA = "hydra"
_FOLDERS = ("hydra.run.dir", "hydra.sweep.dir")
# With it, hydra raises what a run raises; without, it prints that and exits.
_WHOLE_ERRORS = "HYDRA_FULL_ERROR"


def redirect_hydra(folder: Path) -> None:
    """Have ``hydra.main`` put its outputs into a folder, unless the arguments name one.

    Nothing is imported here: most targets do without hydra.
    """
    sys.meta_path.insert(0, _HydraFinder(folder))


class _HydraFinder(importlib.abc.MetaPathFinder):
    """Waits for the import of hydra, which no target needs to make, and is gone once that has begun."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how hydra is loaded, with its ``main`` replaced afterwards; nothing for other modules."""
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
            self._redirect()
            return main(*args, **kwargs)

        for owner in (module, sys.modules.get(f"{_HYDRA}.main")):
            if owner is not None:
                owner.main = redirected  # type: ignore[attr-defined]

    def _redirect(self) -> None:
        os.environ.setdefault(_WHOLE_ERRORS, "1")
        for key in _FOLDERS:
            if not any(argument.lstrip("+").startswith(f"{key}=") for argument in sys.argv[1:]):
                sys.argv.append(f"{key}={_quoted(self._folder)}")


def _quoted(folder: Path) -> str:
    """Return a path as a quoted value of hydra's grammar, in which other signs have a meaning."""
    text = str(folder).replace("'", "\\'")
    return f"'{text}'"
