"""The steps of a training that runs anyway: timed, watched and counted, a few at a time."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from perfkit.agent.clock import accelerator_in_use, synchronised, uses_accelerator
from perfkit.agent.counters.interventions import Patches, undone_in_forks
from perfkit.agent.counters.model import Counts, with_texts
from perfkit.agent.counters.tensors import TensorWatch
from perfkit.agent.counters.torch_adapter import call_before_backward
from perfkit.agent.training import COUNTED_STEP, last_iterations
from perfkit.errors import UsageError
from perfkit.model import Balance, PhaseSeconds
from perfkit.phases import listen_to_phases
from perfkit.profiling.passes.balance import (
    Moment,
    PhaseClock,
    can_import_torch,
    choose_clock,
    hook_libraries,
    hook_torch,
    host_now,
)
from perfkit.profiling.passes.launch import ratio_of_turns
from perfkit.profiling.passes.periods import Periods, Sites
from perfkit.profiling.passes.target_code import optimizer_exists

_Kind = Literal["left alone", "timed", "watched", "counted"]
# Timed and watched steps take turns of this many, so that the machine affects both alike.
# The first step after a switch, in which Python finds its caches cold, belongs to neither.
_TURN = 5
# A device keeps two moments of each step until they are read, so they are read after this many steps.
_MOST_AT_ONCE = 50
_REPEATED = 2
# A validation between steps that are counted makes them worthless; they are counted anew so often.
_TRIES = 3
# So long rank 0 waits for the medians of the others, which they leave after the same step.
_RANKS_WAIT = timedelta(seconds=0.5)
_NO_TORCH = "torch, which counts, cannot be imported"
# How often trainings of a name were over in this process: all ranks count alike.
_filed: dict[str, int] = {}


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """What is done with the steps of a training: some are left alone, then others timed and watched in turns.

    ``steps`` are timed with nothing else in place; ``balance`` others are watched, phase by phase. With
    ``counts`` three steps are counted before these.
    """

    warmup: int = 10
    steps: int = 200
    balance: int = 40
    counts: bool = False

    def __post_init__(self) -> None:
        for name, least in (("warmup", 0), ("steps", 1), ("balance", 0)):
            if getattr(self, name) < least:
                raise UsageError(
                    f"{name} is a number of steps, at least {least}, found {getattr(self, name)}"
                )

    def turns(self) -> Iterator[tuple[_Kind, int]]:
        """Yield in order what is done, and with how many steps."""
        yield "left alone", self.warmup
        if self.counts:
            yield "counted", COUNTED_STEP
            # What counting left behind, such as cold caches, belongs to no time.
            yield "left alone", 1
        timed, watched = self.steps, self.balance
        while watched and timed:
            yield "timed", min(_TURN, timed)
            yield "watched", min(_TURN, watched)
            timed, watched = max(0, timed - _TURN), max(0, watched - _TURN)
        yield "watched", watched
        while timed:
            yield "timed", min(_MOST_AT_ONCE, timed)
            timed = max(0, timed - _MOST_AT_ONCE)


@dataclass(frozen=True, kw_only=True)
class StepFindings:
    """What the steps of a training gave, in seconds and measured order.

    ``balance`` is of other steps that took turns with ``step_s``; ``uncounted`` is why none were counted.
    ``flops_type`` is the type of torch in which most FLOPs were made, ``batches`` how many batches of loaders
    a step was trained with, 0 where none were seen.
    """

    step_s: tuple[float, ...]
    balance: Balance | None
    counts: Counts | None
    seen: int
    uncounted: str | None = None
    flops_type: str = ""
    batches: float = 0.0


class TrainingSteps:
    """Follows the steps of a training by the calls of a loop or a library, from ``begin`` to ``end``.

    Nothing may be called from within a hook of torch, since hooks are set and removed between steps.
    """

    def __init__(self, plan: StepPlan, root: Path) -> None:
        self._plan, self._root = plan, root
        self._turns = plan.turns()
        self._turn: _Timing | _Counting | None = None
        self._timed: list[_Timing] = []
        self._counting: _Counting | None = None
        self._watched = False
        self._pauses = 0
        self._seen = 0
        self.sites = Sites()

    @property
    def is_over(self) -> bool:
        """Whether all steps of the plan were made, or ``end`` was called."""
        return self._turn is None

    def begin(self) -> None:
        """Begin the first step."""
        self._next_turn()

    def end_step(self) -> None:
        """End a step and begin the next one."""
        if self._turn is None:
            return
        self._seen += 1
        if self._turn.end_step():
            self._turn.close()
            self._next_turn()
        else:
            self._turn.start_step()

    def pause(self) -> None:
        """Begin what belongs to no step, such as a validation; pauses may lie in one another."""
        self._pauses += 1
        if self._turn is not None and self._pauses == 1:
            self._turn.pause()

    def resume(self) -> None:
        """End a pause."""
        if self._turn is not None and self._pauses == 1:
            self._turn.resume()
        self._pauses = max(0, self._pauses - 1)

    def restart_step(self) -> None:
        """Begin the present step anew: what was done since the last one ended belongs to none."""
        if self._turn is not None:
            self._turn.restart_step()

    def end(self) -> None:
        """Follow no further step, and leave torch as it was."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.close()

    def findings(self) -> StepFindings:
        """Return what the whole steps gave; an accelerator is waited for."""
        balances = [timing.balance() for timing in self._timed]
        clean = [one for one, timing in zip(balances, self._timed, strict=True) if not timing.watched]
        counting = self._counting
        return StepFindings(
            step_s=tuple(second for one in clean for second in one.step_s),
            balance=_joined(balances, [timing.watched for timing in self._timed]),
            counts=None if counting is None else counting.found,
            seen=self._seen,
            uncounted=None if counting is None else counting.why_not,
            flops_type="" if counting is None else counting.flops_type,
            batches=sum(one.batches for one in self._timed) / max(sum(one.steps for one in self._timed), 1),
        )

    def _next_turn(self) -> None:
        self._turn = None
        for kind, steps in self._turns:
            if steps:
                # Moments that a device reached long ago are read now, so that they need not be kept.
                for timing in self._timed[:-1]:
                    timing.balance()
                self._turn = self._new_turn(kind, steps)
                self._turn.open()
                self._turn.start_step()
                if self._pauses:
                    self._turn.pause()
                return

    def _new_turn(self, kind: _Kind, steps: int) -> _Timing | _Counting:
        if kind == "counted":
            self._counting = _Counting(steps, self._root)
            return self._counting
        switched = (kind == "watched") != self._watched
        self._watched = kind == "watched"
        timing = _Timing(
            steps, watched=self._watched, skipped=int(switched), sites=self.sites, seen=self._seen
        )
        if kind != "left alone":
            self._timed.append(timing)
        return timing


class _Timing:
    """Some steps that a clock times, with hooks for their phases where they are watched."""

    def __init__(self, steps: int, *, watched: bool, skipped: int, sites: Sites, seen: int) -> None:
        self.watched = watched
        self._seen = seen
        self._skipped = skipped
        self._steps = steps
        self._clock = PhaseClock(_choose_clock)
        self._periods = Periods(self._clock.bookmark, sites=sites)
        self._pauses: list[tuple[Moment, Moment]] = []
        self._hooks = contextlib.ExitStack()
        self._ended: list[bool] = []
        self._balance: Balance | None = None

    @property
    def batches(self) -> int:
        """The batches of loaders that these steps were trained with."""
        return self._periods.batches

    @property
    def steps(self) -> int:
        """The steps that have ended."""
        return len(self._ended)

    @property
    def _is_over(self) -> bool:
        return self._ended.count(True) == self._steps

    def open(self) -> None:
        has_torch = can_import_torch()
        # A clock that waits for a device each time it is read would hold up the steps.
        if has_torch and _choose_clock() is not _synchronised_now:
            self._hooks.callback(self._periods.close)
            self._hooks.enter_context(undone_in_forks(self._periods.close))
            self._periods.watch()
        if not self.watched:
            return
        self._hooks.callback(self._clock.close)
        self._hooks.enter_context(undone_in_forks(self._clock.close))
        self._hooks.callback(listen_to_phases(self._clock))
        if has_torch:
            self._hooks.enter_context(hook_torch(self._clock))
        self._hooks.callback(hook_libraries(self._clock).undo)

    def start_step(self) -> None:
        self._clock.start_step()

    def restart_step(self) -> None:
        self._clock.start_step()

    def end_step(self) -> bool:
        self._periods.end_step(self._seen + len(self._ended), self._clock.bookmark())
        self._clock.end_step()
        self._ended.append(len(self._ended) >= self._skipped)
        return self._is_over

    def pause(self) -> None:
        self._pauses.append((self._clock.bookmark(), Moment()))

    def resume(self) -> None:
        self._pauses.append((self._pauses.pop()[0], self._clock.bookmark()))

    def close(self) -> None:
        self._hooks.close()

    def balance(self) -> Balance:
        if self._balance is None:
            self._clock.wait()
            found = self._periods.found(len(self._ended))
            cuts = [*self._pauses, *((period.begin, period.end) for period in found)]
            self._balance = _kept(self._clock.balance(cuts), self._ended)
            if self._is_over:
                self._clock = PhaseClock()
        return self._balance


class _Counting:
    """Steps whose operators, syncs and bytes are counted; those with a pause in between are counted anew."""

    def __init__(self, steps: int, root: Path) -> None:
        self.found: Counts | None = None
        self.flops_type = ""
        self.why_not: str | None = f"the training ended before {steps} steps were counted"
        self._steps, self._root = steps, root
        self._done = 0
        self._tries = _TRIES
        self._watch: TensorWatch | None = None

    def open(self) -> None:
        if not can_import_torch():
            self._tries, self.why_not = 0, _NO_TORCH
            return
        self._done, self._tries = 0, self._tries - 1
        self._watch = TensorWatch(self._root)
        self._watch.__enter__()

    def start_step(self) -> None:
        if self._watch is None and self._tries:
            self.open()

    def restart_step(self) -> None:
        self.close()
        self.start_step()

    def end_step(self) -> bool:
        if self._watch is None:
            if self.why_not != _NO_TORCH:
                self.why_not = "a validation or a checkpoint came between the steps that were counted"
            return not self._tries
        self._watch.end_iteration()
        self._done += 1
        if self._done < self._steps:
            return False
        counts = with_texts(self._watch.counts(), self._root)
        self.found, self.why_not = last_iterations(counts, _REPEATED), None
        self.flops_type = self._watch.flops_type
        return True

    def pause(self) -> None:
        self.close()

    def resume(self) -> None:
        """Wait for the next step."""

    def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.__exit__(None, None, None)


def rounds(seconds: Sequence[float], *, most: int = 20, fewest: int = 3) -> tuple[tuple[float, ...], int]:
    """Return the means of rounds of ``most`` steps, or of fewer, and how many steps a round has."""
    size = min(most, max(1, len(seconds) // fewest))
    whole = range(0, len(seconds) - size + 1, size)
    return tuple(statistics.fmean(seconds[begin : begin + size]) for begin in whole), size


class OptimizerSteps:
    """Notices updates from ``begin`` to ``end``: steps of optimizers, or backward passes without any."""

    def __init__(self) -> None:
        self._seen = self._seen_backward = False
        self._by_hand: bool | None = None
        self._hook: Any = None
        self._patches = Patches()

    def begin(self) -> None:
        """Begin to notice them."""
        if not can_import_torch():
            return
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._hook = register_optimizer_step_post_hook(self._note)
        call_before_backward(self._patches, self._note_backward)

    def taken(self) -> bool:
        """Return whether there was an update since this was asked last."""
        seen, self._seen = self._seen, False
        backward, self._seen_backward = self._seen_backward, False
        if seen or not backward:
            return seen
        if self._by_hand is None:
            # Gradients may be accumulated for an optimizer that steps later.
            self._by_hand = not optimizer_exists()
        return self._by_hand

    def end(self) -> None:
        """Notice no more; it must not be called from within such a step."""
        self._patches.undo()
        hook, self._hook = self._hook, None
        if hook is not None:
            hook.remove()

    def _note(self, *_: object) -> None:
        self._seen = True

    def _note_backward(self) -> None:
        self._seen_backward = True


def rank_and_ranks() -> tuple[int, int]:
    """Return the number of this process among those that train together, and how many they are."""
    if can_import_torch():
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    rank, ranks = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    return (int(rank), int(ranks)) if rank.isdigit() and ranks.isdigit() else (0, 1)


def store_of_ranks() -> Any:  # noqa: ANN401 (torch's own)
    """Return the store by which the ranks found each other, None where there is none."""
    if can_import_torch():
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            with contextlib.suppress(Exception):
                return getattr(distributed.distributed_c10d, "_get_default_store")()  # noqa: B009 (no public name)
    return None


def exchange_medians(name: str, median_s: float, *, rank: int, ranks: int) -> list[float]:
    """Leave how long a step takes here for rank 0; there, return what the others left in time.

    No rank waits for one that may have ended, and nothing here is a collective operation: the ranks use the
    store by which they found each other. Without one there are no medians of others.
    """
    number = _filed[name] = _filed.get(name, 0) + 1
    store = store_of_ranks() if ranks > 1 else None
    if store is None:
        return []
    with contextlib.suppress(Exception):
        keys = [f"perfkit/{name}/{number}/{other}" for other in range(ranks)]
        if rank:
            store.set(keys[rank], repr(median_s))
            return []
        store.wait(keys[1:], _RANKS_WAIT)
        return [float(store.get(key)) for key in keys[1:]]
    return []


def _choose_clock() -> Callable[[], Moment]:
    found = choose_clock()
    return _synchronised_now if found is host_now and uses_accelerator() else found


def _synchronised_now() -> Moment:
    return Moment(synchronised(time.perf_counter)())


def _kept(balance: Balance, kept: Collection[bool]) -> Balance:
    steps = [step for step, is_kept in enumerate(kept) if is_kept]
    return Balance(
        step_s=tuple(balance.step_s[step] for step in steps),
        phases=tuple(
            PhaseSeconds(name=one.name, seconds=tuple(one.seconds[step] for step in steps))
            for one in balance.phases
        ),
    )


def _joined(balances: Sequence[Balance], watched: Sequence[bool]) -> Balance | None:
    """Return all watched steps as one balance, with what their hooks cost; None where there are none."""
    parts = [one for one, is_watched in zip(balances, watched, strict=True) if is_watched and one.step_s]
    if not parts:
        return None
    names = dict.fromkeys(phase.name for one in parts for phase in one.phases)
    logs = [
        math.log(statistics.median(later.step_s) / statistics.median(earlier.step_s))
        for (earlier, before), (later, after) in pairwise(zip(balances, watched, strict=True))
        if after and not before and earlier.step_s and later.step_s
    ]
    return Balance(
        step_s=tuple(second for one in parts for second in one.step_s),
        phases=tuple(
            PhaseSeconds(name=name, seconds=tuple(s for one in parts for s in one.seconds_of(name)))
            for name in names
        ),
        cost=ratio_of_turns(logs),
    )


# Matrices grow until a product takes so long, or they have so many rows; then products go on for a while.
_LONG_S, _LEAST_ROWS, _MOST_ROWS, _GO_ON_S = 0.02, 256, 8192, 0.2


def measure_peak(dtype: str) -> float | None:
    """Return the most FLOP/s of this process in products of matrices of a type of torch, if it can make any.

    They are those of the accelerator in use, or of the processors with the threads that the training uses.
    """
    if not can_import_torch():
        return None
    import torch

    device = accelerator_in_use()
    kind = "cpu" if device is None else str(torch.accelerator.current_accelerator()).partition(":")[0]
    # A generator of its own: the training's numbers stay what they are.
    numbers = torch.Generator(kind)

    def multiply(rows: int) -> Callable[[], float]:
        left = torch.rand((rows, rows), generator=numbers, device=kind).to(getattr(torch, dtype))
        out = torch.empty_like(left)

        def product() -> float:
            begun = time.perf_counter()
            torch.mm(left, left, out=out)
            if device is not None:
                device.synchronise()
            return time.perf_counter() - begun

        product()
        return product

    # Whether TensorFloat-32 and its like are used is as the training has set it.
    with torch.no_grad(), torch.autocast(kind, enabled=False):
        try:
            return _fastest(multiply)
        except (AttributeError, RuntimeError, TypeError):
            # There may be no room for it, or no product of this type.
            return None


def _fastest(multiply: Callable[[int], Callable[[], float]]) -> float:
    rows, product = _LEAST_ROWS, multiply(_LEAST_ROWS)
    best_s = product()
    while best_s < _LONG_S and rows < _MOST_ROWS:
        rows *= 2
        product = multiply(rows)
        best_s = product()
    until = time.perf_counter() + _GO_ON_S
    while time.perf_counter() < until:
        best_s = min(best_s, product())
    return 2.0 * rows**3 / best_s
