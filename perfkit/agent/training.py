"""Counts a few steps of a training loop in a measured child."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from .channel import Message
from .counters.interventions import Patches
from .counters.model import Counts, as_message, with_texts
from .counters.tensors import TensorWatch
from .counters.torch_adapter import backward_entries
from .loading import TargetError, compile_script, is_script, load_function, script_call
from .torch_settings import has_torch

NO_TORCH = "torch is not installed here, and an optimizer of torch ends a step"

# The step whose counts stand for the loop: by then state that is made on first use, such as an optimizer's,
# exists.
COUNTED_STEP = 3


class _EnoughSteps(BaseException):
    """Ends the loop after its last counted step; it is no Exception, since a loop may catch these."""


def count_steps(place: str, *, root: Path, steps: int) -> Message:
    """Return the counts of the last of ``steps`` training steps, or the problem for which there are none."""
    if not has_torch():
        return {"problem": NO_TORCH}
    try:
        counts = _count(_load(place), TensorWatch(root), steps)
    except TargetError as error:
        return {"problem": str(error)}
    except Exception as error:  # noqa: BLE001 (any error of the user's code)
        return {"problem": f"{type(error).__name__}: {error}".removesuffix(": ")}
    if isinstance(counts, int):
        return {"problem": f"it made fewer than {steps} optimizer steps: {counts}"}
    return as_message(with_texts(counts, root))


def _count(call: Callable[[], object], watch: TensorWatch, steps: int) -> Counts | int:
    """Return the counts of the last step, or how many steps there were where these were too few."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    done = 0

    def end_step(*_: object) -> None:
        nonlocal done
        done += 1
        watch.end_iteration()
        if done >= steps:
            raise _EnoughSteps

    losses: list[Any] = []
    hook = register_optimizer_step_post_hook(end_step)
    try:
        with watch, _kept(losses):
            call()
    except _EnoughSteps:
        pass
    except SystemExit as end:
        if end.code not in (None, 0):
            raise RuntimeError(f"it ended with exit status {end.code}") from end
    finally:
        hook.remove()
    if done < steps:
        return done
    found = tuple((str(loss.dtype).removeprefix("torch."), float(loss)) for loss in losses)
    return replace(last_iterations(watch.counts(), 1), losses=found)


@contextlib.contextmanager
def _kept(losses: list[Any]) -> Iterator[None]:
    """Keep a copy of each number that a backward pass begins from, which no counter sees."""
    from torch.utils._python_dispatch import _disable_current_modes

    def keeping(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def kept(outputs: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (torch's own signature)
            with _disable_current_modes():
                many = outputs if isinstance(outputs, tuple | list) else (outputs,)
                losses.extend(one.detach().clone() for one in many if one.numel() == 1)
            return backward(outputs, *args, **kwargs)

        return kept

    patches = Patches()
    owner, names = backward_entries()
    for name in names:
        patches.replace(owner, name, keeping(getattr(owner, name)))
    try:
        yield
    finally:
        patches.undo()


def last_iterations(counts: Counts, most: int) -> Counts:
    """Return the counts of the last iterations alone, since earlier ones include one-time work."""
    last = tuple(replace(count, values=count.values[-most:]) for count in counts.counts)
    return replace(counts, counts=last)


def _load(place: str) -> Callable[[], object]:
    sys.argv = [place]
    if not is_script(place):
        return load_function(place)
    path = Path(place)
    sys.path.insert(0, str(path.parent))
    return script_call(compile_script(path), path)
