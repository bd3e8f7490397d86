"""All tricks: each module of this folder has some in TRICKS."""

import difflib
import pkgutil
from importlib import import_module

from perfkit.errors import UsageError
from perfkit.features.tricks.catalogue.operators import IDENTICAL
from perfkit.features.tricks.trick import Trick


def catalogue() -> tuple[Trick, ...]:
    """Return all tricks by name."""
    modules = (import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    found: list[Trick] = [trick for module in modules for trick in getattr(module, "TRICKS", ())]
    return tuple(sorted(found, key=lambda trick: trick.name))


def find(name: str) -> Trick:
    """Return the trick of this name, or the pair that is no trick at all."""
    if name == IDENTICAL.name:
        return IDENTICAL
    tricks = {trick.name: trick for trick in catalogue()}
    if name not in tricks:
        close = difflib.get_close_matches(name, tricks, n=1, cutoff=0.5)
        advice = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(tricks)}"
        raise UsageError(f"expected the name of a trick, found {name!r}; {advice}")
    return tricks[name]
