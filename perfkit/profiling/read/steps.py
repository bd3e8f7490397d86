"""Counts the training steps in a cProfile by the calls that every step makes."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit.model.readings import FunctionTime, StepTimes

_NO_OPTIMIZERS = ("optimizer.py", "lr_scheduler.py", "swa_utils.py", "__init__.py")


def steps_of_functions(functions: Sequence[FunctionTime]) -> StepTimes | None:
    """Return how often an optimizer's ``step``, or else the backward pass, was called; None without both."""
    for sign, counts in (
        ("optimizer.step", [one.calls for one in functions if _is_optimizer_step(one)]),
        ("optimizer.step", [one.calls for one in functions if _is_optimizer_wrapper(one)]),
        ("run_backward", [one.calls for one in functions if "run_backward" in one.function]),
    ):
        # Where a loop has two optimizers, the one that steps most often counts.
        if counts and max(counts) > 0:
            return StepTimes(count=max(counts), sign=sign)
    return None


def _is_optimizer_step(one: FunctionTime) -> bool:
    file = one.file.rpartition("/")
    return one.function == "step" and file[0].endswith("torch/optim") and file[2] not in _NO_OPTIMIZERS


def _is_optimizer_wrapper(one: FunctionTime) -> bool:
    """Tell whether this is the function that torch wraps around the step of every optimizer."""
    return one.function == "wrapper" and one.file.endswith("torch/optim/optimizer.py")
