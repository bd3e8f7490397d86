"""Ends real processes at the very moment that a test names, as a power failure would."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from typing import NoReturn

from perfkit.ledger.files import OnStep


def in_child(work: Callable[[], None]) -> int:
    """Do something in a process of its own and return how that ended, as ``waitpid`` returns it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 (any failure must not go on as the test)
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


def die() -> NoReturn:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def killed_at(step: int, work: Callable[[OnStep], None]) -> bool:
    """Do something in a process that is killed after so many steps; report whether there were as many."""
    seen = []

    def on_step(name: str) -> None:
        seen.append(name)
        if len(seen) == step:
            die()

    status = in_child(lambda: work(on_step))
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def kill_after(work: Callable[[], None]) -> None:
    """Do something in a process that is killed when it is done."""

    def whole() -> None:
        work()
        die()

    assert signal.SIGKILL == os.WTERMSIG(in_child(whole))
