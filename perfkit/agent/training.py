"""A training loop in a measured child: a few of its steps, counted."""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

from .channel import Message
from .counting.model import Counts, as_message
from .counting.tensors import TensorWatch
from .counting.texts import with_texts

_SCRIPT = ".py"


class _EnoughSteps(BaseException):
    """Ends the loop after its last counted step; no Exception, which a loop may catch."""


def count_steps(place: str, *, root: Path, steps: int) -> Message:
    """Return what the last of so many training steps counts, or the problem that kept it from that.

    ``place`` is "package.module:function", or the path of a script. An optimizer's step ends a step.
    """
    try:
        counts = _count(_load(place), TensorWatch(root), steps)
    except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
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

    hook = register_optimizer_step_post_hook(end_step)
    try:
        with watch:
            call()
    except _EnoughSteps:
        pass
    except SystemExit as end:
        if end.code not in (None, 0):
            raise RuntimeError(f"it ended with exit status {end.code}") from end
    finally:
        hook.remove()
    return last_iteration(watch.counts()) if done >= steps else done


def last_iteration(counts: Counts) -> Counts:
    """Return the counts of the last iteration alone: those before it make what is made once."""
    return replace(counts, counts=tuple(replace(count, values=count.values[-1:]) for count in counts.counts))


def _load(place: str) -> Callable[[], object]:
    sys.argv = [place]
    if place.endswith(_SCRIPT):
        return functools.partial(_run_script, Path(place))
    module, _, name = place.partition(":")
    call: Callable[[], object] = attrgetter(name)(importlib.import_module(module))
    return call


def _run_script(path: Path) -> None:
    """Run a script as the interpreter would."""
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"] = module
    sys.path.insert(0, str(path.parent))
    exec(compile(path.read_bytes(), str(path), "exec"), vars(module))  # noqa: S102 (what was asked for)
