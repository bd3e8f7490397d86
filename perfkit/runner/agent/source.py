"""The source text of a function, by which a benchmark is known from one commit to the next."""

from __future__ import annotations

import inspect
from collections.abc import Callable


def source_of(function: Callable[..., object]) -> str:
    """Return a function's source, decorators included; its qualified name where there is none.

    An object that makes its attributes up, as those of ``unittest.mock`` do, has none.
    """
    try:
        return inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError, ValueError):
        return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', function)}"
