"""A training loop with tricks applied from outside, its own code unchanged."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from perfkit.errors import UsageError
from perfkit.features.experiments.binding import call_to_its_end, load_bound
from perfkit.features.tricks.choosing import trick_named
from perfkit.features.tricks.records import Loop
from perfkit.profiling.passes.targets import Target
from perfkit.runner.targets import prepare_process


def open_loop(loop: Loop) -> Callable[[], object]:
    """Return a call that runs a loop from the same random numbers each time, and set the process up for it.

    Raises:
        UsageError: there is no such target, or it refuses an argument.
    """
    os.chdir(loop.folder)
    target = Target(name=loop.name, place=loop.place)
    prepare_process(target.place, (), root=Path(loop.root))
    call = load_bound(target, loop.arguments)

    def run() -> object:
        _seed()
        return call_to_its_end(call)

    return run


class _SecondStepError(BaseException):
    """Ends a loop after the steps that were asked for; no ``except Exception`` of the loop catches it."""


def run_first_step(
    run: Callable[[], object],
    *,
    before: Callable[[Any], None] = lambda _: None,
    after: Callable[[Any], None] = lambda _: None,
) -> None:
    """Run a loop until its second step; the first one's optimizer is given to ``before`` and ``after`` it."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    taken = False

    def begin(optimizer: Any, *_: object) -> None:  # noqa: ANN401 (torch's own type)
        if taken:
            raise _SecondStepError
        before(optimizer)

    def end(optimizer: Any, *_: object) -> None:  # noqa: ANN401 (torch's own type)
        nonlocal taken
        taken = True
        after(optimizer)

    hooks = [register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)]
    try:
        run()
    except _SecondStepError:
        pass
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def using(tricks: Sequence[str]) -> Iterator[Callable[[], bool]]:
    """Let any loop use these tricks, until the end.

    Yields:
        Whether the loop used something that each trick changes.

    Raises:
        UsageError: one of them cannot be applied from outside.
    """
    with ExitStack() as stack:
        seen = []
        for name in tricks:
            on_loop = trick_named(name).on_loop
            if on_loop is None:
                raise UsageError(f"{name} cannot be applied to a loop from outside")
            seen.append(stack.enter_context(on_loop()))
        yield lambda: all(used() for used in seen)


def _seed() -> None:
    import torch

    torch.manual_seed(0)
    random.seed(0)
    try:
        import numpy as np
    except ImportError:
        return
    np.random.seed(0)  # noqa: NPY002 (the global generator is what loops draw from)
