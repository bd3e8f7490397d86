"""Counts, in each iteration, operators, their waits, the bytes they allocate and save, and their FLOPs."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Self

from .interventions import Patches, collect_recent, undone_in_forks, without_garbage_collection
from .memory import Memory, SavedTensors
from .model import OF_DEVICES, OF_TENSORS, Amounts, Counts, Places, Source, causes_of, count_of
from .syncs import Syncs, Wait, WaitingMethods, Watching, wait_of, waits_nowhere
from .torch_adapter import (
    CompiledCode,
    Kinds,
    are_fake,
    call_before_backward,
    flop_formula,
    handle_operators,
    is_composite,
    is_innermost,
    no_overrides,
    operator_mode,
    schema_of,
    storage_of,
)

# This operator copies the data given to a tensor constructor, or wraps memory that is not torch's.
_LIFT = "aten::lift_fresh"
_COPIES = ("aten::_to_copy", "aten::copy_")


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """An operator: which results are newly allocated, when it waits for a device, its formula for FLOPs."""

    name: str
    fresh: tuple[bool, ...] = ()
    lifts: bool = False
    copies: bool = False
    composite: bool = False
    wait: Wait | None = None
    flops: Callable[..., Any] | None = None


def describe(operator: Any) -> Operator:  # noqa: ANN401 (torch's operators share no type)
    """Return what is known of an operator."""
    schema = schema_of(operator)
    if schema is None:
        return Operator(name=str(operator))
    fresh = tuple(one.alias_info is None for one in schema.returns)
    return Operator(
        name=schema.name,
        fresh=fresh if any(fresh) else (),
        lifts=schema.name == _LIFT,
        copies=schema.name in _COPIES,
        composite=is_composite(operator),
        wait=wait_of(schema),
        flops=flop_formula(operator),
    )


class Dispatched:
    """Handles the operators of a thread: lets each run as it would, and counts it."""

    def __init__(
        self, watching: Watching, places: Places, memory: Memory, syncs: Syncs, saved: SavedTensors
    ) -> None:
        self._watching, self._places = watching, places
        self._memory, self._syncs, self._saved = memory, syncs, saved
        self._is_of_others = watching.guarded(lambda kinds: handle_operators(kinds) and not are_fake(kinds))
        self._describe, self._count = watching.guarded(describe), watching.guarded(self._count_one)
        self._known: dict[Any, Operator] = {}
        self.operators: Amounts = Counter()
        self.flops: Amounts = Counter()
        # Those of all iterations, by the type of the first argument.
        self.flops_of: Counter[str] = Counter()
        self.to_device: Amounts = Counter()
        self.to_host: Amounts = Counter()
        self.failed_formula = ""
        self._mode: AbstractContextManager[object] = contextlib.nullcontext()
        self._is_in = False

    def begin(self) -> None:
        """Begin to handle the operators of this thread."""
        self._mode = operator_mode(self._handle)
        self._mode.__enter__()
        self._is_in = True

    def end(self) -> None:
        """Stop handling operators, unless another mode was entered since and not left yet."""
        # A mode that stays would slow all that follows.
        if self._is_in and self._watching.guarded(is_innermost)(self._mode) is not False:
            self._mode.__exit__(None, None, None)
            self._is_in = False

    def forget(self) -> None:
        """Clear all amounts."""
        for amounts in (self.operators, self.flops, self.to_device, self.to_host):
            amounts.clear()

    def _handle(self, operator: Any, kinds: Kinds, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 (the operator's own types)
        if kinds and self._is_of_others(kinds):
            # The tensors that these consist of are dispatched to this method again.
            return NotImplemented
        watching = self._watching
        # Other kinds are passed where torch copies a tensor for internal use: no code called an operator.
        if kinds or not watching.on:
            return operator(*args, **kwargs)
        known = self._known.get(operator) or self._describe(operator)
        if known is None:
            return operator(*args, **kwargs)
        self._known[operator] = known
        if known.composite:
            with self._mode:
                return operator.decompose(*args, **kwargs)
        result = operator(*args, **kwargs)
        if watching.on:
            caller = sys._getframe(1).f_back  # noqa: SLF001 (the documented way to it)
            self._count(known, args, kwargs, result, caller)
        return result

    def _count_one(
        self,
        known: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,  # noqa: ANN401 (likewise)
        frame: FrameType | None,
    ) -> None:
        with no_overrides():
            source = (known.name, self._places.line_of(frame) or self._line_of_backward())
            self.operators[source] += 1
            if known.fresh:
                self._hold(known.fresh, result, source)
            if known.lifts:
                self._hold_lifted(result, source)
            if known.wait is not None and not self._watching.in_wait:
                self._note_wait(known, args, kwargs, frame, source[1])
            if known.copies:
                self._note_copy(known, args, result, source)
            if known.flops is not None:
                self._note_flops(known, args, kwargs, result, source)
            self._saved.ran(source, frame)

    def _line_of_backward(self) -> str:
        if self._watching.is_here():
            return ""
        return self._places.line_of(sys._current_frames().get(self._watching.thread))  # noqa: SLF001 (documented)

    def _hold(self, fresh: tuple[bool, ...], result: Any, source: Source) -> None:  # noqa: ANN401 (likewise)
        results = result if len(fresh) > 1 else (result,)
        for value, is_fresh in zip(results, fresh, strict=False):
            if is_fresh:
                for tensor in value if isinstance(value, (list, tuple)) else (value,):
                    self._hold_one(tensor, source)

    def _hold_one(self, tensor: Any, source: Source) -> None:  # noqa: ANN401 (a tensor, or a number)
        storage = storage_of(tensor)
        if storage is not None:
            self._memory.hold(storage, source)
            if not tensor.is_cpu:
                self._watching.sees_device = True

    def _hold_lifted(self, tensor: Any, source: Source) -> None:  # noqa: ANN401 (likewise)
        storage = storage_of(tensor)
        # A storage that cannot be resized is not torch's own memory but, for example, an array's.
        if storage is not None and storage.resizable():
            self._memory.hold(storage, source)

    def _note_wait(
        self,
        known: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType | None,
        place: str,
    ) -> None:
        what = known.wait(args, kwargs) if known.wait is not None else None
        if what is None:
            return
        # Copies wait only from one device to another.
        real = known.copies or not (args[0].is_cpu or args[0].is_meta)
        if real:
            self._watching.sees_device = True
        elif waits_nowhere(what, frame):
            return
        self._syncs.note(what, place, real=real)

    def _note_copy(self, known: Operator, args: tuple[Any, ...], result: Any, source: Source) -> None:  # noqa: ANN401 (a tensor)
        origin, goal = (args[1], args[0]) if known.name == "aten::copy_" else (args[0], result)
        if origin.is_cpu != goal.is_cpu and not (origin.is_meta or goal.is_meta):
            self._watching.sees_device = True
            amounts = self.to_device if origin.is_cpu else self.to_host
            amounts[source] += origin.numel() * origin.element_size()

    def _note_flops(
        self,
        known: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,  # noqa: ANN401 (likewise)
        source: Source,
    ) -> None:
        try:
            flops = known.flops(*args, **kwargs, out_val=result) if known.flops is not None else 0
        except Exception:  # noqa: BLE001 (the formulas are torch's, and the benchmark must not fail by them)
            self.failed_formula = known.name
        else:
            self.flops[source] += flops
            self.flops_of[str(getattr(args[0], "dtype", ""))] += flops


COMPILED = "compiled"


class TrainingSteps:
    """Notices backward passes and optimizers' steps between ``begin`` and ``end``."""

    def __init__(self) -> None:
        self._went_backward = False
        self._stepped = False
        self._patches = Patches()
        self._hook: Any = None

    @property
    def seen(self) -> bool:
        """Whether a backward pass and an optimizer's step were noticed."""
        return self._went_backward and self._stepped

    def begin(self) -> None:
        """Begin to notice them."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        call_before_backward(self._patches, self._note_backward)
        self._hook = register_optimizer_step_post_hook(self._note_step)

    def end(self) -> None:
        """Restore torch as it was."""
        self._patches.undo()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _note_backward(self) -> None:
        self._went_backward = True

    def _note_step(self, *_: object) -> None:
        self._stepped = True


class TensorWatch:
    """Counts what this thread's operators do to tensors between ``with`` and the end of each iteration.

    When compiled code is about to run, the watch ends for good and sets ``is_compiled``: under it that code
    would run uncompiled. Entering it imports torch.
    """

    def __init__(self, root: Path) -> None:
        self.is_compiled = False
        self._watching = Watching()
        places = Places(root)
        self._memory, self._syncs = Memory(), Syncs(places)
        self._saved = SavedTensors(places, self._memory, self._watching)
        self._methods = WaitingMethods(self._watching, places, self._syncs)
        self._operators = Dispatched(self._watching, places, self._memory, self._syncs, self._saved)
        self._steps = TrainingSteps()
        self._values: dict[str, list[float]] = {}
        self._last: dict[str, Amounts] = {}
        self._around = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as around:
            around.enter_context(without_garbage_collection())
            around.enter_context(undone_in_forks(self._leave_process))
            around.enter_context(CompiledCode(self._meet_compiled_code).noticed())
            around.callback(self._leave)
            self._methods.begin()
            self._saved.begin()
            self._steps.begin()
            self._operators.begin()
            self._around = around.pop_all()
        self._watching.on = True
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """End the watch."""
        self._watching.on = False
        self._around.close()

    def end_iteration(self) -> None:
        """End an iteration and begin the next one."""
        self._watching.guarded.check()
        if not self._watching.on:
            return
        self._watching.on = False
        self._last = self._iteration()
        for metric, amounts in self._last.items():
            self._values.setdefault(metric, []).append(float(sum(amounts.values())))
        collect_recent()
        for part in (self._memory, self._syncs, self._saved, self._operators):
            part.forget()
        self._watching.on = True

    @property
    def flops_type(self) -> str:
        """The type of torch in which most FLOPs were made, such as "bfloat16"; empty without any."""
        most = self._operators.flops_of.most_common(1)
        return most[0][0].removeprefix("torch.") if most else ""

    def counts(self) -> Counts:
        """Return the counts of all iterations that were ended."""
        self._watching.guarded.check()
        if self.is_compiled:
            return Counts(counts=(), not_counted=dict.fromkeys(OF_TENSORS, COMPILED))
        wanted = [*OF_TENSORS, *(OF_DEVICES if self._watching.sees_device else ())]
        not_counted = {}
        if self._operators.failed_formula:
            wanted.remove("flops")
            not_counted["flops"] = f"torch's formula for {self._operators.failed_formula} failed"
        return Counts(
            counts=tuple(
                replace(count_of(metric, self._values[metric]), causes=causes_of(self._last[metric]))
                for metric in wanted
                if metric in self._values
            ),
            not_counted=not_counted,
            training=self._steps.seen,
        )

    def _iteration(self) -> dict[str, Amounts]:
        with_device = self._watching.sees_device
        return {
            "operators": self._operators.operators.copy(),
            "syncs": self._syncs.amounts(allowed=False, with_device=with_device),
            "allowed_syncs": self._syncs.amounts(allowed=True, with_device=with_device),
            "allocated": self._memory.allocated(),
            "peak": self._memory.peak(),
            "saved": self._saved.amounts(),
            "flops": self._operators.flops.copy(),
            "to_device": self._operators.to_device.copy(),
            "to_host": self._operators.to_host.copy(),
        }

    def _meet_compiled_code(self) -> None:
        if self._watching.on and self._watching.is_here():
            self._watching.on = False
            self.is_compiled = True
            self._leave()

    def _leave(self) -> None:
        self._methods.end()
        self._saved.end()
        self._steps.end()
        self._operators.end()

    def _leave_process(self) -> None:
        self._watching.on = False
        self._methods.end()
        self._steps.end()
        self._saved.leave_be()
