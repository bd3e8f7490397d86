"""A training loop that goes on by one step at each call: steps of two versions can be timed in turns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Stepper:
    """Each call lets a loop run until the end of its next step; a loop that has ended begins anew.

    The loop runs in a thread of its own, which rests between calls. A step is one of the optimizer that is
    seen first; what other optimizers do belongs to it.
    """

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run
        self._may_go, self._is_done = threading.Semaphore(0), threading.Semaphore(0)
        self._optimizer: Any = None
        self._error: BaseException | None = None
        # Nobody waits for it at the end: it rests within the user's loop.
        self._thread = threading.Thread(target=self._go_round, daemon=True)
        self._thread.start()

    def __call__(self) -> None:
        """Take a step.

        Raises:
            BaseException: what the loop raised.
        """
        if self._error is None:
            self._may_go.release()
            self._is_done.acquire()
        if self._error is not None:
            raise self._error

    def _go_round(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._end_step)
        self._may_go.acquire()
        try:
            while True:
                self._run_once()
        except BaseException as error:  # noqa: BLE001 (told to whoever asks for a step)
            self._error = error
            self._is_done.release()

    def _run_once(self) -> None:
        self._optimizer = None
        self._run()
        if self._optimizer is None:
            raise ValueError("expected a loop that takes steps of an optimizer, found none")

    def _end_step(self, optimizer: Any, *_: object) -> None:  # noqa: ANN401 (torch's own type)
        if threading.current_thread() is not self._thread:
            return
        if self._optimizer is None:
            self._optimizer = optimizer
        if optimizer is self._optimizer:
            self._is_done.release()
            self._may_go.acquire()
