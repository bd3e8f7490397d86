"""One run of a loop with tricks in a process of its own: looked at, or timed by turns."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from perfkit.agent.clock import accelerator_in_use
from perfkit.agent.counters.model import Counts
from perfkit.agent.provenance import libraries_since, read_torch_settings
from perfkit.agent.training import COUNTED_STEP, StepCounter
from perfkit.features.tricks.suite import open_loop, using
from perfkit.features.tricks.trick import Loop
from perfkit.profiling.passes.child import Reporter, leave
from perfkit.profiling.passes.exchange import PassNews, PassResult, PassSpec, Problem
from perfkit.profiling.passes.meter import Meter, import_torch, until_enough
from perfkit.profiling.passes.target_code import describe_failure, find_own_code, redirect_hydra
from perfkit.runner.requests import Parent
from perfkit.runner.targets import wrong_code

if TYPE_CHECKING:
    from torch import Tensor

# Where a look leaves the gradients and the update of the first step, for the parent to compare.
FIRST_STEP_FILE = "first_step.pt"
# A look takes at most so many times its limit.
_BUSY = 10.0


@dataclass(frozen=True, kw_only=True)
class LoopPass:
    """A run of a loop with tricks; a look keeps the first step, and counts a later one or goes on."""

    spec: PassSpec
    loop: Loop
    tricks: tuple[str, ...] = ()
    look: Literal["", "count", "run"] = ""


@dataclass(frozen=True, kw_only=True)
class LoopResult(PassResult):
    """What a run gave, the tricks that it did not use, and the libraries and settings of its process.

    ``own_s`` are the seconds of each step, and of the rest, without those in which others had the core.
    """

    own_s: tuple[float, ...] = ()
    unused: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    torch: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LoopNews(PassNews):
    """A message of a run."""

    result: LoopResult | None = None


def main(request: LoopPass, parent: Parent) -> None:
    """Run the loop, and send what it gave."""
    before = set(sys.modules)
    import_torch()
    root, reporter = Path(request.loop.root), Reporter(parent, request.spec)
    found = _run(request, reporter)
    if wrong := wrong_code(root):
        found = LoopResult(problem=Problem(kind="failed", message=wrong))
    news = libraries_since(before, root)
    reporter.send(LoopNews(result=replace(found, libraries=tuple(news), torch=read_torch_settings())))
    leave()


def _run(request: LoopPass, reporter: Reporter) -> LoopResult:
    spec, counts = request.spec, None
    redirect_hydra(Path(spec.folder) / "hydra")

    clock = _OwnClock()

    def report(steps: int) -> bool:
        # What is queued on an accelerator would run in the turn of another process.
        if reporter.ends_turn and (device := accelerator_in_use()) is not None:
            device.synchronise()
        clock.end_step()
        if spec.limit_s is not None and sum(clock.seconds) > spec.limit_s:
            meter.ended = "limit"
        waited = reporter.steps(steps)
        clock.begin_step()
        return waited

    # The limit is of the loop's own time, of which a busy machine gives it a part.
    limit_s = None if spec.limit_s is None else _BUSY * spec.limit_s
    meter = Meter(limit=spec.steps, report=report, loaders=True, limit_s=limit_s)
    try:
        with using(request.tricks) as unused, _first_step(Path(spec.folder), keep=bool(request.look)):
            run = open_loop(request.loop)
            reporter.wait()
            if request.look == "count":
                found = StepCounter(Path(request.loop.root), COUNTED_STEP, with_kept=False).count(run)
                counts = found if isinstance(found, Counts) else None
            else:
                meter.prepare()
                meter.start()
                clock.begin_step()
                with until_enough():
                    run()
                clock.end_step()
            found_unused = unused()
    except BaseException as error:  # noqa: BLE001 (any error of the user's code)
        own = functools.partial(find_own_code, (), root=Path(request.loop.root), script=None)
        return LoopResult(problem=describe_failure(error, spec.target.name, own))
    summary = None if request.look == "count" else meter.finish("clean", result=None)
    return LoopResult(summary=summary, counts=counts, unused=found_unused, own_s=tuple(clock.seconds))


class _OwnClock:
    """Times steps without what this thread waited for a core, which Linux counts."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._begun_s = 0.0

    def begin_step(self) -> None:
        """Begin a step."""
        self._begun_s = self._now_s()

    def end_step(self) -> None:
        """End it, and begin the next one."""
        now_s = self._now_s()
        self.seconds.append(now_s - self._begun_s)
        self._begun_s = now_s

    @staticmethod
    def _now_s() -> float:
        try:
            waited_ns = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
        except (OSError, LookupError, ValueError):
            waited_ns = 0
        return time.perf_counter() - waited_ns / 1e9


@contextlib.contextmanager
def _first_step(folder: Path, *, keep: bool) -> Iterator[None]:
    """Write the gradients of the first step and its update to a file, which no counter sees."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    from torch.utils._python_dispatch import _disable_current_modes

    before: list[Tensor] = []
    gradients: list[Tensor] = []
    dropout = torch.nn.functional.dropout

    def begin(optimizer: Any, *_: object) -> None:  # noqa: ANN401 (torch's own type)
        if not before and not gradients and not (folder / FIRST_STEP_FILE).exists():
            with _disable_current_modes():
                gradients.extend(_gradients(optimizer))
                before.extend(map(_copy, _parameters(optimizer)))

    def end(optimizer: Any, *_: object) -> None:  # noqa: ANN401 (torch's own type)
        if not before:
            return
        torch.nn.functional.dropout = dropout
        with _disable_current_modes():
            after = map(_copy, _parameters(optimizer))
            update = [new - old for new, old in zip(after, before, strict=True)]
            # A closure, as LBFGS and Lightning have it, makes the gradients within the step.
            found = {"gradients": gradients or _gradients(optimizer), "update": update}
            torch.save(found, folder / FIRST_STEP_FILE)
        before.clear()
        gradients.clear()

    # torch draws a mask in the order in which values lie in memory, so another layout would drop others.
    def drop(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: A002, FBT001, FBT002 (torch's own signature)
        if not training:
            return dropout(input, p, training, inplace)
        return input * dropout(torch.ones(input.shape, dtype=input.dtype, device=input.device), p)

    hooks = [register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)] if keep else []
    if keep:
        torch.nn.functional.dropout = drop
    try:
        yield
    finally:
        torch.nn.functional.dropout = dropout
        for hook in hooks:
            hook.remove()


def _parameters(optimizer: Any) -> list[Any]:  # noqa: ANN401 (torch's own types)
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _gradients(optimizer: Any) -> list[Tensor]:  # noqa: ANN401 (torch's own types)
    return [_copy(one.grad) for one in _parameters(optimizer) if one.grad is not None]


def _copy(values: Tensor) -> Tensor:
    return values.detach().cpu().double().clone()
