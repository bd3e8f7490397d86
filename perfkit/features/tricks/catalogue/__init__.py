"""All tricks: each module of this folder defines one as TRICK, or a family of them as TRICKS."""

import difflib
import pkgutil
from importlib import import_module
from types import ModuleType

from perfkit.features.tricks.trick import Trick


def catalogue() -> tuple[Trick, ...]:
    """Return all tricks, in the order of their modules' names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(trick for name in names for trick in _tricks(import_module(f"{__name__}.{name}")))


def find(name: str) -> Trick:
    """Return the trick of this name.

    Raises:
        ValueError: There is none.
    """
    tricks = {trick.name: trick for trick in catalogue()}
    if name not in tricks:
        raise ValueError(f"expected the name of a trick, found {name!r}; {_advice(name, list(tricks))}")
    return tricks[name]


def _tricks(module: ModuleType) -> tuple[Trick, ...]:
    tricks: tuple[Trick, ...] = (module.TRICK,) if hasattr(module, "TRICK") else module.TRICKS
    return tricks


def _advice(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(names)}"
