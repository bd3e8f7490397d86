"""The ends of steps in a program that knows nothing of it: found as in a profile, then at next to no cost."""

from __future__ import annotations

import functools
import os
import time
import weakref
from threading import get_ident
from typing import Any, Protocol

from perfkit.agent.counters.interventions import Patches
from perfkit.agent.counters.torch_adapter import backward_entries
from perfkit.agent.training import StepEnds
from perfkit.phases import count_marked_steps, steps_are_announced
from perfkit.profiling.passes.balance import can_import_torch
from perfkit.profiling.passes.follow import Followed
from perfkit.profiling.passes.target_code import optimizer_exists
from perfkit.profiling.passes.targets import TURN, Unit, call_at

# After so many batches or backward passes without a step, it is looked whether there is an optimizer at all.
_WITHOUT_STEP = 20
# So many steps of others in a row, and the optimizer that ended each step is out of use.
_OTHERS = 64


class Steps(Protocol):
    """What follows the steps: first some by a plan, then all later ones."""

    followed: Followed | None

    def end_step(self) -> None:
        """End a step."""

    def see_batch(self, batch: object) -> None:
        """Remember the size of a batch."""


class WholeSteps:
    """Calls ``steps`` at the end of each step from ``begin`` on, which comes before there is an optimizer.

    A step ends with the optimizers' steps, the mark of the program, a turn of the loop at a line, or a batch
    of a loader. Where there is no optimizer, a backward pass makes a step, and without any each batch does.
    What lies between two loops over loaders, such as an evaluation, is part of no step.
    """

    def __init__(self, steps: Steps, unit: Unit) -> None:
        self._steps, self._unit = steps, unit
        self._thread, self._process = get_ident(), os.getpid()
        self._patches = Patches()
        self._ends = StepEnds(self._close, lambda: None)
        self._closed = self._in_loop = False
        self._updated = self._find_update
        self._ender: weakref.ref[object] | None = None
        self._others = 0
        # The first turn of a loop begins with its first batch: until then nothing belongs to a step.
        self._is_fresh, self._from, self._waited_s, self._giver = False, 0.0, 0.0, 0
        self._batches = self._backwards = 0
        self._by_backward, self._went_backward = False, False

    def begin(self) -> None:
        """Begin to notice the ends of steps."""
        if self._unit.line is not None:
            call_at(self._unit.line, self._reach_line)
            count_marked_steps(lambda: None)
        else:
            count_marked_steps(self._end)
        if not can_import_torch():
            return
        from torch.optim.optimizer import Optimizer
        from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter

        os.register_at_fork(after_in_child=self._patches.undo)
        replace = self._patches.replace
        replace(_BaseDataLoaderIter, "__next__", self._noticed_fetch(_BaseDataLoaderIter.__next__))
        replace(DataLoader, "__iter__", self._noticed_loop(DataLoader.__iter__))
        # Hooks of optimizers must not be changed from within one, which the end of a step may do.
        replace(
            Optimizer, "profile_hook_step", staticmethod(self._noticed_steps(Optimizer.profile_hook_step))
        )
        owner, names = backward_entries()
        for name in names:
            replace(owner, name, self._noticed_backward(getattr(owner, name)))

    def _has_unit(self) -> bool:
        return self._unit.line is not None or self._unit.loader or steps_are_announced()

    def _end(self) -> None:
        """End a step; the first one of a loop began with its first batch."""
        if os.getpid() != self._process:
            return
        if self._is_fresh:
            self._is_fresh = False
            followed = self._steps.followed
            if followed is not None and self._from:
                followed.restart_step_at(self._from)
                followed.add_wait(self._waited_s)
        self._steps.end_step()

    def _reach_line(self, what: str = "") -> None:
        is_turn_over, self._in_loop = self._in_loop, what == TURN
        if not what or is_turn_over:
            self._end()

    def _close(self) -> None:
        self._closed = True
        self._end()

    def _find_update(self, optimizer: object) -> None:
        """Find out whether the update of an optimizer ends a step, and once that is known, notice only it."""
        if self._has_unit():
            return
        self._by_backward, self._closed = False, False
        self._ends.end_update(optimizer)
        if self._closed and self._steps.followed is not None and not self._ends.is_late:
            self._ender, self._others = weakref.ref(optimizer), 0
            self._updated = self._note_update

    def _note_update(self, optimizer: object) -> None:
        if self._ender is not None and self._ender() is optimizer:
            self._others = 0
            if self._is_fresh:
                self._end()
            else:
                self._steps.end_step()
            return
        self._others += 1
        if self._others > _OTHERS or steps_are_announced():
            self._ender, self._updated = None, self._find_update
            self._ends = StepEnds(self._close, lambda: None)
            self._find_update(optimizer)

    def _noticed_steps(self, hooked: Any) -> Any:  # noqa: ANN401 (torch's own signature)
        import torch

        is_compiling = torch.compiler.is_compiling

        def noticed_hooked(step: Any) -> Any:  # noqa: ANN401 (likewise)
            inner = hooked(step)

            @functools.wraps(inner)
            def noticed(optimizer: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (likewise)
                if is_compiling() or get_ident() != self._thread:
                    return inner(optimizer, *args, **kwargs)
                if self._ender is None and not self._has_unit():
                    self._ends.begin_update(optimizer)
                result = inner(optimizer, *args, **kwargs)
                self._updated(optimizer)
                return result

            return noticed

        return noticed_hooked

    def _noticed_loop(self, begin: Any) -> Any:  # noqa: ANN401 (likewise)
        @functools.wraps(begin)
        def noticed(loader: Any) -> Any:  # noqa: ANN401 (likewise)
            if get_ident() == self._thread:
                self._is_fresh, self._from, self._giver = True, 0.0, 0
            return begin(loader)

        return noticed

    def _noticed_fetch(self, fetch: Any) -> Any:  # noqa: ANN401 (likewise)
        clock, steps = time.perf_counter, self._steps

        @functools.wraps(fetch)
        def noticed(iterator: Any) -> Any:  # noqa: ANN401 (likewise)
            if get_ident() != self._thread:
                return fetch(iterator)
            begun = clock()
            if self._is_fresh or self._unit.loader or self._by_backward:
                self._turn(iterator, begun)
            batch = fetch(iterator)
            followed = steps.followed
            if followed is None:
                self._find_batch(iterator, batch)
            elif self._is_fresh:
                self._waited_s += clock() - begun
            else:
                followed.add_wait(clock() - begun)
            return batch

        return noticed

    def _turn(self, iterator: object, begun: float) -> None:
        """Begin a turn of a loop; the iterator that gives the first batch of a step leads."""
        is_new = self._giver != id(iterator)
        if self._is_fresh and is_new and not self._went_backward:
            self._from, self._waited_s, self._giver = begun, 0.0, id(iterator)
            if self._unit.loader:
                self._is_fresh = False
                if self._steps.followed is not None:
                    self._steps.followed.restart_step_at(begun)
            return
        if self._unit.loader and not is_new:
            self._steps.end_step()
        elif self._by_backward and self._went_backward:
            self._went_backward = False
            self._end()

    def _find_batch(self, iterator: object, batch: object) -> None:
        self._steps.see_batch(batch)
        self._batches += 1
        if self._has_unit():
            return
        self._ends.give(iterator)
        if not (self._ends.optimizers or self._backwards) and self._batches % _WITHOUT_STEP == 0:
            self._unit = Unit(loader=not optimizer_exists())
            self._giver = id(iterator)

    def _noticed_backward(self, backward: Any) -> Any:  # noqa: ANN401 (likewise)
        @functools.wraps(backward)
        def noticed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (likewise)
            if self._ender is None and get_ident() == self._thread:
                self._go_backward()
            return backward(*args, **kwargs)

        return noticed

    def _go_backward(self) -> None:
        self._backwards += 1
        if self._has_unit() or self._ends.optimizers:
            return
        if not self._by_backward and self._backwards % _WITHOUT_STEP == 0:
            self._by_backward = not optimizer_exists()
        if self._by_backward and self._went_backward:
            # No loader gave a batch since the last one.
            self._end()
        self._went_backward = self._by_backward
