"""Samples the running line of a training loop, and tries changes on its model, optimizer and loader."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import itertools
import linecache
import math
import os
import random
import signal
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from perfkit.extras import is_installed
from perfkit.model import PassSummary
from perfkit.model.profiles import (
    BACKWARD,
    COMPILING,
    DATA,
    LIBRARY,
    MODEL,
    UPDATE,
    LineSample,
    LoopSamples,
    OwnLine,
    part_of_library,
)
from perfkit.profiling.passes.balance import CLOSURE, with_closure_aside
from perfkit.profiling.passes.exchange import PassResult, PassSpec
from perfkit.profiling.passes.instruments import Clean, own_code_of
from perfkit.profiling.passes.target_code import OwnCode, is_harness
from perfkit.profiling.passes.workers import end_workers, sample_workers, samples_of_workers

# On average; drawn, since a fixed period could fall into step with the loop.
_EVERY_S = 0.001
_MOST_BLOCKS = 40
# This share of the steps is the set-up, and so many at least.
_SETUP, _FEWEST_OF_SETUP = 0.1, 3
_OWN_LINES = 12
_TRIAL_S, _TURN_S, _FEWEST_TURNS = 3.0, 0.02, 5
# A part below this share of a step is not worth a trial.
_WORTH_TRYING = 0.03


@dataclass(frozen=True)
class _Code:
    """What is known of a code object: whether it is the user's own, and else which part of a library."""

    own: bool
    phase: str = ""
    inner: str = LIBRARY
    harness: bool = False


# Frames of own code by the identity of their code: its hash takes long.
_Key = tuple[tuple[tuple[int, int], ...], str, str, bool]


class Sampler:
    """Notes at drawn moments which own lines the main thread is in.

    The moments are those of a Poisson process, so each sample stands for the mean time between two. A call of
    C delays a sample to its end, and the delay is the call's own time: that is added.
    """

    def __init__(self, own: OwnCode) -> None:
        self._own = own
        self._files: dict[str, _Code] = {}
        self._codes: dict[int, CodeType] = {}
        self._keys: dict[_Key, int] = {}
        self._grad: Callable[[], bool] = lambda: True
        self._due = 0.0
        self.taken: list[tuple[float, float, int]] = []
        # The iterator of the loader that is trained with.
        self.iterator: Any = None

    def start(self) -> None:
        """Begin to take samples."""
        if is_installed("torch"):
            import torch

            self._grad = torch.is_grad_enabled
        signal.signal(signal.SIGALRM, self._take)
        signal.siginterrupt(signal.SIGALRM, False)  # noqa: FBT003 (positional only)
        self._arm()

    def stop(self) -> None:
        """Take no more samples."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)

    def samples(self, ends: Sequence[float]) -> tuple[LineSample, ...]:
        """Return the seconds at each stack between each two moments that follow one another."""
        found: defaultdict[int, list[float]] = defaultdict(lambda: [0.0] * (len(ends) - 1))
        for at, seconds, key in self.taken:
            block = bisect_left(ends, at) - 1
            if 0 <= block < len(ends) - 1:
                found[key][block] += seconds
        keys = list(self._keys)
        # The samples of a block add up to its time.
        sums = [sum(one) for one in zip(*found.values(), strict=True)]
        for parts in found.values():
            for block, (begin, end) in enumerate(itertools.pairwise(ends)):
                parts[block] *= (end - begin) / sums[block] if sums[block] else 0.0
        return tuple(self._sample(keys[key], seconds) for key, seconds in found.items())

    def _sample(self, key: _Key, seconds: Sequence[float]) -> LineSample:
        frames, phase, inner, no_grad = key
        lines = tuple(self._line(self._codes[code], line) for code, line in frames)
        return LineSample(lines=lines, phase=phase, inner=inner, no_grad=no_grad, seconds=tuple(seconds))

    def _line(self, code: CodeType, line: int) -> OwnLine:
        text = linecache.getline(code.co_filename, line).strip()
        file = self._own.shown(code.co_filename)
        return OwnLine(file=file, line=line, function=code.co_name, text=text)

    def _take(self, _: int, frame: FrameType | None) -> None:
        now = time.perf_counter()
        key = self._key(frame)
        number = self._keys.get(key)
        if number is None:
            number = self._keys[key] = len(self._keys)
        if self.iterator is None and key[1] == DATA and not key[3]:
            self._find_iterator(frame)
        self.taken.append((now, _EVERY_S + max(0.0, now - self._due), number))
        self._arm()

    def _arm(self) -> None:
        delay_s = max(1e-6, random.expovariate(1 / _EVERY_S))
        self._due = time.perf_counter() + delay_s
        signal.setitimer(signal.ITIMER_REAL, delay_s)

    def _key(self, frame: FrameType | None) -> _Key:
        frames: list[tuple[int, int]] = []
        phase = inner = ""
        in_closure = False
        while frame is not None:
            code = frame.f_code
            known = self._files.get(code.co_filename) or self._know(code.co_filename)
            if known.own:
                if len(frames) < _OWN_LINES:
                    self._codes[id(code)] = code
                    # In Python 3.11 a jump back from an `if` to the head of its loop is on no line.
                    frames.append((id(code), frame.f_lineno or _line_before(code, frame.f_lasti)))
            elif known.harness:
                in_closure = in_closure or code.co_name == CLOSURE
            else:
                if not frames and inner in ("", LIBRARY):
                    inner = known.inner
                if known.phase and phase != COMPILING and not (in_closure and known.phase == UPDATE):
                    phase = known.phase
            frame = frame.f_back
        return tuple(frames), phase, inner, not self._grad()

    def _know(self, file: str) -> _Code:
        phase, inner = part_of_library(Path(file).as_posix())
        own = self._own.owns(file)
        found = _Code(own=own, phase=phase, inner=inner, harness=is_harness(file))
        self._files[file] = found
        return found

    def _find_iterator(self, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code.co_name != "__next__":
            frame = frame.f_back
        if frame is not None and hasattr(found := frame.f_locals.get("self"), "_index_sampler"):
            self.iterator = found


@functools.cache
def _line_before(code: CodeType, instruction: int) -> int:
    """Return the last line that begins before an instruction."""
    lines = [line for begin, _, line in code.co_lines() if line and begin <= instruction]
    return lines[-1] if lines else code.co_firstlineno


class LineSamples(Clean):
    """Samples the running line, and after the last step tries what some changes would give."""

    def __init__(self, spec: PassSpec) -> None:
        super().__init__(spec)
        own = own_code_of(spec)
        self._folder = Path(spec.folder)
        self._sampler = Sampler(own)
        self._ends: list[float] = []
        self._parts = _Parts()
        sample_workers(self._folder, lambda: Sampler(own))

    def run(self, call: Callable[[], object]) -> object:
        """Call under the sampler."""
        self._parts.watch_optimizer()
        self._ends.append(time.perf_counter())
        self._sampler.start()
        try:
            return call()
        finally:
            self._sampler.stop()

    def end_step(self) -> None:
        """Note the end of a step; after some, find the model."""
        self._ends.append(time.perf_counter())
        if len(self._ends) == _FEWEST_OF_SETUP:
            self._parts.find_model()
            # What came before was the set-up.
            self._sampler.iterator = None

    def extend_step(self) -> None:
        """Move the end of the last step."""
        self._ends[-1] = time.perf_counter()

    def write(self, summary: PassSummary) -> PassResult:
        """Return the samples in blocks of steps, and the results of the trials."""
        end_workers()
        skipped = max(_FEWEST_OF_SETUP, round(_SETUP * len(self._ends)))
        ends = self._ends[skipped:]
        size = max(1, (len(ends) - 1) // _MOST_BLOCKS)
        edges = ends[::size]
        if len(edges) < 2:  # noqa: PLR2004 (the two ends of a block)
            return PassResult(summary=summary)
        samples = self._sampler.samples(edges)
        block_s = tuple(later - earlier for earlier, later in itertools.pairwise(edges))
        workers, batches = samples_of_workers(self._folder)
        shares: defaultdict[str, float] = defaultdict(float)
        for one in samples:
            if not (one.no_grad and one.phase not in (UPDATE, BACKWARD)):
                shares[one.phase] += one.total_s / sum(block_s)
        step_s = sum(block_s) / len(block_s) / size
        # After Ctrl-C it ends soon, so the fewest turns are enough.
        trial_s = 0.0 if summary.ended == "interrupted" else _TRIAL_S
        trials = self._parts.trials(shares, step_s=step_s, iterator=self._sampler.iterator, trial_s=trial_s)
        return PassResult(
            summary=summary,
            samples=LoopSamples(
                block_s=block_s,
                block_steps=size,
                samples=samples,
                worker_samples=workers,
                worker_batches=batches,
                trials=trials,
                facts=self._parts.facts,
            ),
        )


class _Parts:
    """The model, its input, the optimizer and the loader of a loop, as far as they are found."""

    def __init__(self) -> None:
        self._optimizer: Any = None
        self._model: Any = None
        self._input: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self.facts: dict[str, str] = {}

    def watch_optimizer(self) -> None:
        if is_installed("torch"):
            from torch.optim.optimizer import (
                register_optimizer_step_post_hook,
                register_optimizer_step_pre_hook,
            )

            register_optimizer_step_pre_hook(
                lambda _, args, kwargs: with_closure_aside(contextlib.nullcontext, args, kwargs)
            )
            register_optimizer_step_post_hook(self._meet)

    def find_model(self) -> None:
        """Find the module whose parameters are updated, and keep its next input."""
        if self._optimizer is None:
            return
        from torch.nn import Module

        mine = {id(one) for group in self._optimizer.param_groups for one in group["params"]}
        modules = [one for one in gc.get_objects() if issubclass(type(one), Module)]
        inner = {id(child) for one in modules for child in one.children()}
        outer = [one for one in modules if id(one) not in inner]
        sizes = [(sum(id(p) in mine for p in one.parameters()), at) for at, one in enumerate(outer)]
        most, at = max(sizes, default=(0, 0))
        if not most or any(hasattr(one, "_orig_mod") for one in outer[at].modules()):
            return
        self._model = outer[at]
        hook: Any = self._model.register_forward_pre_hook(
            lambda *given: self._keep(hook, *given), with_kwargs=True
        )

    def trials(
        self,
        shares: dict[str, float],
        *,
        step_s: float,
        iterator: Any,  # noqa: ANN401 (torch's private iterator)
        trial_s: float,
    ) -> dict[str, tuple[float, ...]]:
        """Return for each change that may help the ratios of the time with it to the time without."""
        if self._optimizer is None:
            return {}
        import torch

        found: dict[str, tuple[float, ...]] = {}

        def attempt(name: str, make: Callable[[], tuple[Callable[[], object], Callable[[], object]]]) -> None:
            # The user's objects may refuse anything.
            with contextlib.suppress(Exception):
                present, changed = make()
                found[name] = _ratios(present, changed, trial_s)

        cores = len(os.sched_getaffinity(0))
        kind = type(self._optimizer).__name__
        self.facts |= {"threads": str(torch.get_num_threads()), "cores": str(cores), "optimizer": kind}
        if iterator is not None:
            self.facts["workers"] = str(iterator._num_workers)  # noqa: SLF001 (no public name)
        if self._input is not None and self._model is not None:
            dtypes = {one.dtype for one in self._model.parameters()}
            if torch.float64 in dtypes:
                attempt("float32", self._in_float32)
            if torch.get_num_threads() == 1 < cores and "RANK" not in os.environ:
                attempt("threads", lambda: self._with_threads(cores))
                torch.set_num_threads(1)
            model_s = (shares[MODEL] + shares[BACKWARD]) * step_s
            if iterator is not None and iterator._num_workers and shares[DATA] > _WORTH_TRYING and model_s:  # noqa: SLF001 (likewise)
                # Worker processes have ended: they may have taken cores from the model.
                with contextlib.suppress(Exception):
                    train = self._training()
                    calls = math.ceil(_TURN_S / max(_seconds(train, 2) / 2, 1e-6))
                    turns = [_seconds(train, calls) / calls for _ in range(_FEWEST_TURNS)]
                    found["alone"] = tuple(one / model_s for one in turns)
        groups = self._optimizer.param_groups
        plain = "fused" in groups[0] and not any(one.get("fused") or one.get("foreach") for one in groups)
        if plain and shares[UPDATE] > _WORTH_TRYING:
            attempt("fused", self._fused)
        if iterator is not None and not iterator._num_workers and shares[DATA] > _WORTH_TRYING:  # noqa: SLF001 (likewise)
            wait_s = shares[DATA] * step_s
            count = max(1, min(cores - 1, math.ceil(wait_s / max(step_s - wait_s, wait_s / 8))))
            self.facts["new_workers"] = str(count)
            with contextlib.suppress(Exception):
                found["workers"] = _loader_ratios(iterator, self._work(step_s - wait_s), count, trial_s)
        return found

    def _work(self, busy_s: float) -> Callable[[], object]:
        """Return a call that keeps the main thread busy so long, with the model where it is known."""
        with contextlib.suppress(Exception):
            train = self._training()
            times = round(busy_s / (_seconds(train, 5) / 5))
            if times:
                return functools.partial(_seconds, train, times)

        def spin() -> None:
            until = time.thread_time() + busy_s
            while time.thread_time() < until:
                pass

        return spin

    def _meet(self, optimizer: object, *_: object) -> None:
        self._optimizer = optimizer

    def _keep(self, hook: Any, _: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:  # noqa: ANN401 (torch's private handle)
        import torch

        if torch.is_grad_enabled():
            hook.remove()
            self._input = args, kwargs

    def _in_float32(self) -> tuple[Callable[[], object], Callable[[], object]]:
        import torch
        from torch.utils._pytree import tree_map

        def single(one: Any) -> Any:  # noqa: ANN401 (anything that a model takes)
            return one.float() if isinstance(one, torch.Tensor) and one.is_floating_point() else one

        assert self._input is not None  # noqa: S101 (checked by the caller)
        other = copy.deepcopy(self._model).float()
        return self._training(), _training(other, tree_map(single, self._input))

    def _with_threads(self, threads: int) -> tuple[Callable[[], object], Callable[[], object]]:
        import torch

        train, update = self._training(), self._updating()

        def step(count: int) -> None:
            torch.set_num_threads(count)
            train()
            update()

        return functools.partial(step, 1), functools.partial(step, threads)

    def _fused(self) -> tuple[Callable[[], object], Callable[[], object]]:
        return self._updating(), self._updating(fused=True, foreach=False)

    def _training(self) -> Callable[[], object]:
        """Return a forward and backward pass of a copy of the model, as it is."""
        assert self._input is not None  # noqa: S101 (callers have looked, or do without)
        return _training(copy.deepcopy(self._model), self._input)

    def _updating(self, **options: bool) -> Callable[[], object]:
        """Return an update of copied parameters."""
        import torch

        optimizer = copy.deepcopy(self._optimizer)
        for group in optimizer.param_groups:
            group.update(options)
            for one in group["params"]:
                one.grad = torch.full_like(one, 1e-3)
        step: Callable[[], object] = optimizer.step
        return step


def _training(model: Any, given: tuple[tuple[Any, ...], dict[str, Any]]) -> Callable[[], object]:  # noqa: ANN401 (a module)
    """Return a forward and backward pass of a model."""
    import torch
    from torch.utils._pytree import tree_leaves

    args, kwargs = given

    def train() -> None:
        model.zero_grad(set_to_none=True)
        leaves = [one for one in tree_leaves(model(*args, **kwargs)) if isinstance(one, torch.Tensor)]
        torch.autograd.backward([one.float().mean() for one in leaves if one.requires_grad])

    return train


def _ratios(
    present: Callable[[], object],
    changed: Callable[[], object],
    trial_s: float,
    *,
    untimed: int = 1,
    fewest: int = 1,
) -> tuple[float, ...]:
    """Return the ratios of the changed call's time to the present one's, in turns of several calls.

    A turn begins with ``untimed`` calls, and has at least the ``fewest`` others.
    """
    calls = max(fewest, math.ceil(_TURN_S / max(_seconds(present, 1), _seconds(changed, 1), 1e-6)))
    found: list[float] = []
    until = time.perf_counter() + trial_s
    while len(found) < _FEWEST_TURNS or time.perf_counter() < until:
        took = {}
        for call in (present, changed) if len(found) % 2 else (changed, present):
            _seconds(call, untimed)
            took[call] = _seconds(call, calls)
        found.append(took[changed] / took[present])
    return tuple(found)


def _seconds(call: Callable[[], object], times: int) -> float:
    begun = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - begun


def _loader_ratios(
    iterator: Any,  # noqa: ANN401 (torch's private iterator)
    work: Callable[[], object],
    workers: int,
    trial_s: float,
) -> tuple[float, ...]:
    """Return how long turns with a loader take with workers, over those without, beside so long a step."""
    with contextlib.ExitStack() as stack:
        sides = [_steps_with(iterator, work, count) for count in (0, workers)]
        for side in sides:
            stack.callback(side.close)
        # Workers make batches ahead while the other side has its turn: these are none of the turn.
        ahead = 2 * workers
        present, changed = (functools.partial(next, side) for side in sides)
        return _ratios(present, changed, trial_s, untimed=ahead, fewest=2 * ahead)


def _steps_with(iterator: Any, work: Callable[[], object], workers: int) -> Generator[None, None, None]:  # noqa: ANN401 (likewise)
    from torch.utils.data import DataLoader

    loader: DataLoader[Any] = DataLoader(
        iterator._dataset,  # noqa: SLF001 (no public name)
        batch_sampler=iterator._index_sampler,  # noqa: SLF001 (likewise)
        collate_fn=iterator._collate_fn,  # noqa: SLF001 (likewise)
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    for _ in itertools.chain.from_iterable(itertools.repeat(loader)):
        work()
        yield
