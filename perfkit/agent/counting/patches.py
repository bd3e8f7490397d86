"""Attributes of classes and modules that are replaced for a while."""

from __future__ import annotations

from typing import Any

_ABSENT = object()


class Patches:
    """Replaces attributes, and puts back what was there."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, str, Any, object]] = []

    def replace(self, owner: Any, name: str, new: Any) -> None:  # noqa: ANN401 (a class or module and its own)
        """Put ``new`` in the place of an attribute."""
        self._made.append((owner, name, new, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, new)

    def undo(self) -> None:
        """Put everything back, except what others have replaced again since."""
        while self._made:
            owner, name, new, old = self._made.pop()
            if vars(owner).get(name) is not new:
                continue
            if old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
