"""Whether automatic casting to half precision is on while a model runs, at next to no cost."""

from __future__ import annotations

from typing import Self

# Only this many calls of modules are looked at, about one forward pass of a deep model.
_MODULES = 200
_DEVICES = ("cpu", "cuda")


class CastWatch:
    """Notes under which types of automatic casting the first modules ran, while it is entered."""

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}
        self._left = _MODULES

    def __enter__(self) -> Self:
        from torch.nn.modules.module import register_module_forward_pre_hook

        self._hook = register_module_forward_pre_hook(self._on_module)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    @property
    def seen(self) -> tuple[str, ...]:
        """The types, such as "bfloat16", in the order in which they were met."""
        return tuple(self._seen)

    def _on_module(self, *_: object) -> None:
        import torch

        for device in _DEVICES:
            if torch.is_autocast_enabled(device):
                self._seen[str(torch.get_autocast_dtype(device)).removeprefix("torch.")] = None
        self._left -= 1
        if self._left <= 0:
            self._hook.remove()
