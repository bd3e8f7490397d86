"""Whether the counted code trains: a backward pass and an optimizer's step make a training step."""

from __future__ import annotations

import functools
from typing import Any

from .patches import Patches
from .torch_seam import backward_entries


class TrainingSteps:
    """Notices backward passes and optimizers' steps while it has begun."""

    def __init__(self) -> None:
        self._went_backward = False
        self._stepped = False
        self._patches = Patches()
        self._hook: Any = None

    @property
    def seen(self) -> bool:
        """Whether both have been seen."""
        return self._went_backward and self._stepped

    def begin(self) -> None:
        """Notice them from now on."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        owner, names = backward_entries()
        for name in names:
            self._patches.replace(owner, name, self._noticing(getattr(owner, name)))
        self._hook = register_optimizer_step_post_hook(self._note_step)

    def end(self) -> None:
        """Leave torch as it was."""
        self._patches.undo()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _noticing(self, backward: Any) -> Any:  # noqa: ANN401 (torch's own signature)
        @functools.wraps(backward)
        def noticing(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (likewise)
            self._went_backward = True
            return backward(*args, **kwargs)

        return noticing

    def _note_step(self, *_: object) -> None:
        self._stepped = True
