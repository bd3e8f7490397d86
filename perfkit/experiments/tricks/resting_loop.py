"""A training loop that is set up before the clock starts: it rests after its first step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class RestingLoop:
    """A loop in a thread of its own, which rests after the first step and at the end.

    What is timed between the two are all other steps with all that stands between them, such as the start of
    an epoch: the median of single steps would leave that out.
    """

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run
        self._may_go, self._rests = threading.Semaphore(0), threading.Semaphore(0)
        self._steps = 0
        self._error: BaseException | None = None
        # Nobody waits for it at the end of the process: it may rest within the user's loop.
        self._thread = threading.Thread(target=self._go_round, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Set the loop up and take its first step.

        Raises:
            BaseException: what the loop raised.
            ValueError: it takes fewer than two steps.
        """
        self._go_on()

    def finish(self) -> None:
        """Take all its other steps.

        Raises:
            BaseException: what the loop raised.
            ValueError: it takes fewer than two steps.
        """
        self._go_on()

    def _go_on(self) -> None:
        if self._error is None:
            self._may_go.release()
            self._rests.acquire()
        if self._error is not None:
            raise self._error

    def _rest(self) -> None:
        self._rests.release()
        self._may_go.acquire()

    def _go_round(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(self._end_step)
        self._may_go.acquire()
        try:
            while True:
                self._run_once()
                self._rest()
        except BaseException as error:  # noqa: BLE001 (told to whoever lets it go on)
            self._error = error
            self._rests.release()

    def _run_once(self) -> None:
        self._steps = 0
        self._run()
        if self._steps <= 1:
            raise ValueError(f"expected a loop of at least two optimizer steps, found {self._steps}")

    def _end_step(self, *_: Any) -> None:  # noqa: ANN401 (torch's own types)
        if threading.current_thread() is self._thread:
            self._steps += 1
            if self._steps == 1:
                self._rest()
