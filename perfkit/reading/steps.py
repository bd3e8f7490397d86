"""How many training steps a cProfile holds: by what a step cannot do without."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit.records.readings import FunctionTime, StepTimes

_NO_OPTIMIZERS = ("optimizer.py", "lr_scheduler.py", "swa_utils.py", "__init__.py")


def steps_of_functions(functions: Sequence[FunctionTime]) -> StepTimes | None:
    """Return the steps that calls show: of an optimizer's ``step``, else of the backward pass; else None."""
    for sign, counts in (
        ("optimizer.step", [one.calls for one in functions if _is_optimizer_step(one)]),
        ("optimizer.step", [one.calls for one in functions if _is_optimizer_wrapper(one)]),
        ("run_backward", [one.calls for one in functions if "run_backward" in one.function]),
    ):
        # Two optimizers of one loop, or one of them every few steps: the busiest sets the pace.
        if counts and max(counts) > 0:
            return StepTimes(count=max(counts), sign=sign)
    return None


def _is_optimizer_step(one: FunctionTime) -> bool:
    file = one.file.rpartition("/")
    return one.function == "step" and file[0].endswith("torch/optim") and file[2] not in _NO_OPTIMIZERS


def _is_optimizer_wrapper(one: FunctionTime) -> bool:
    """Tell whether this is what torch wraps around every optimizer's step, one's own optimizer's too."""
    return one.function == "wrapper" and one.file.endswith("torch/optim/optimizer.py")
