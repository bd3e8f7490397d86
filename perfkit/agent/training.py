"""Counts a few steps of a training loop in a measured child."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from .channel import Message
from .counters.interventions import Patches
from .counters.kept import KeptSteps, with_kept
from .counters.model import Counts, as_message, with_texts
from .counters.tensors import TensorWatch
from .counters.torch_adapter import backward_entries
from .functions import TargetError, compile_script, is_script, load_function, script_call
from .provenance import has_torch

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
        counts = StepCounter(root, steps).count(_load(place))
    except TargetError as error:
        return {"problem": str(error)}
    except Exception as error:  # noqa: BLE001 (any error of the user's code)
        return {"problem": f"{type(error).__name__}: {error}".removesuffix(": ")}
    if isinstance(counts, int):
        return {"problem": f"it made fewer than {steps} optimizer steps: {counts}"}
    return as_message(with_texts(counts, root))


class StepCounter:
    """Counts the last of ``steps`` steps of a loop, and reads what it keeps in those after them if asked."""

    def __init__(self, root: Path, steps: int, *, with_kept: bool = True) -> None:
        self._with_kept = with_kept
        self._watch, self._kept, self._steps = TensorWatch(root), KeptSteps(root), steps
        self._ends = StepEnds(self._end_step, self._extend_step)
        self._done = 0
        self._losses: list[Any] = []

    def count(self, call: Callable[[], object]) -> Counts | int:
        """Return the counts, or how many steps there were where these were too few."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        hooks = (
            register_optimizer_step_pre_hook(self._begin_update),
            register_optimizer_step_post_hook(lambda optimizer, *_: self._ends.end_update(optimizer)),
        )
        try:
            with self._watch, self._kept, _noted(self._note):
                call()
        except _EnoughSteps:
            pass
        except (SystemExit, Exception) as error:
            # What comes after the counted steps is of no interest.
            if self._done < self._steps:
                if not isinstance(error, SystemExit):
                    raise
                if error.code not in (None, 0):
                    raise RuntimeError(f"it ended with exit status {error.code}") from error
        finally:
            for hook in hooks:
                hook.remove()
        if self._done < self._steps:
            return self._done
        found = tuple((str(loss.dtype).removeprefix("torch."), float(loss)) for loss in self._losses)
        counts = replace(last_iterations(self._watch.counts(), 1), losses=found)
        return with_kept(counts, self._kept.found) if self._with_kept else counts

    def _note(self, outputs: Sequence[Any]) -> None:
        """Keep a copy of each number that a backward pass of a counted step begins from."""
        if self._done < self._steps:
            self._losses += [one.detach().clone() for one in outputs if one.numel() == 1]

    def _begin_update(self, optimizer: object, *_: object) -> None:
        self._ends.begin_update(optimizer)
        # After a step it is too early: torch is going through the hooks, of which the watch has one.
        if self._done == self._steps:
            self._watch.leave()
            if not (self._with_kept and self._kept.begin(_EnoughSteps)):
                raise _EnoughSteps

    def _extend_step(self) -> None:
        if self._done < self._steps:
            self._watch.end_iteration()

    def _end_step(self) -> None:
        self._done += 1
        if self._done <= self._steps:
            self._watch.end_iteration()
        elif self._kept.end_step():
            raise _EnoughSteps


@contextlib.contextmanager
def _noted(note: Callable[[Sequence[Any]], None]) -> Iterator[None]:
    """Have what each backward pass begins from noted, which no counter sees."""
    from torch.utils._python_dispatch import _disable_current_modes

    def keeping(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def kept(outputs: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (torch's own signature)
            with _disable_current_modes():
                note(outputs if isinstance(outputs, tuple | list) else (outputs,))
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


class StepEnds:
    """Finds the ends of steps from the steps of optimizers and the batches of loaders.

    A step is over when an optimizer that stepped in it steps again, or an iterator that gave it a batch gives
    another one after that: then ``end`` is called late. The optimizer that was last in a step is expected to
    be so in the next one, whose end is then known at once; ``extend`` is called where another one follows,
    unless steps of the same one followed each other without a batch: then the other one trains another part.
    """

    def __init__(self, end: Callable[[], None], extend: Callable[[], None], last: int | None = None) -> None:
        self._end, self._extend = end, extend
        self.last, self.is_late = last, False
        self._numbers: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        # How many have stepped, and how many at most in one step.
        self.optimizers = self.most = 0
        self._stepped: set[int] = set()
        self._gave: WeakSet[object] = WeakSet()
        self._gave_before: WeakSet[object] = WeakSet()
        # The optimizers of the last step, until it is sure that it is over.
        self._extensible: set[int] = set()
        # Those of the last step, and whether they repeat without batches.
        self._before: set[int] = set()
        self._repeats = False

    def begin_update(self, optimizer: object) -> None:
        """Note that an optimizer is about to step."""
        if self._number(optimizer) in self._stepped:
            self._close()

    def end_update(self, optimizer: object) -> None:
        """Note that an optimizer has stepped."""
        number = self._number(optimizer)
        is_new = bool(self._extensible) and not self._stepped and number not in self._extensible
        if is_new and self._repeats:
            self.last = number
        elif is_new:
            self._extensible.add(number)
            self.last, self.most = number, max(self.most, len(self._extensible))
            self._extend()
            return
        self._stepped.add(number)
        self.most = max(self.most, len(self._stepped))
        if self.last is None or (self.last < self.optimizers and self.last not in self._numbers.values()):
            self.last = number
        if number == self.last:
            self._extensible = self._close()

    def give(self, iterator: object) -> None:
        """Note that an iterator is about to give a batch."""
        if self._stepped and iterator in self._gave:
            self.is_late = True
            self._close()
        if iterator in self._gave_before:
            self._extensible = set()
        self._gave.add(iterator)

    def _close(self) -> set[int]:
        stepped, self._stepped, self._extensible = self._stepped, set(), set()
        self._repeats = stepped == self._before and not self._gave
        self._before = stepped
        self._gave_before, self._gave = self._gave, WeakSet()
        self._end()
        return stepped

    def _number(self, optimizer: object) -> int:
        if optimizer not in self._numbers:
            self._numbers[optimizer] = self.optimizers
            self.optimizers += 1
        return self._numbers[optimizer]
