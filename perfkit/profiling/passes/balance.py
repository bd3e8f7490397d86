"""The balance pass: hooks in what every PyTorch loop calls, and the clock whose phase they switch."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from perfkit.agent.clock import Accelerator, accelerator_in_use
from perfkit.agent.counters.interventions import Guard, Patches
from perfkit.model import Balance, PhaseSeconds
from perfkit.model.readings import (
    BACKWARD,
    DATA,
    ENVIRONMENT,
    FORWARD,
    LOGGING,
    LOSS,
    OPTIMIZER,
    RANKS,
    TO_DEVICE,
    TO_HOST,
)

_Label = str | None
# The label of what belongs to no step; no phase has it.
_PAUSE = "(pause)"
# That of a forward pass which returned its loss too: what follows is none.
_WITH_LOSS = "(forward with loss)"
# That of a module whose result has no gradient, such as a metric: no loss is made of it.
_WITHOUT_GRADIENT = "(forward without gradient)"
_FORWARDS = (FORWARD, _WITHOUT_GRADIENT)
# No thread has this for its identity.
_NO_THREAD = -1
_CALLS_TO_DEVICE = ("to", "cuda", "pin_memory")
_CALLS_TO_HOST = ("item", "cpu", "tolist", "numpy")
# Libraries with which training code logs numbers; their hooks are set only where they were imported.
_LOGGERS = (
    (
        "torch.utils.tensorboard.writer",
        "SummaryWriter",
        ("add_scalar", "add_scalars", "add_histogram", "flush"),
    ),
    ("tensorboardX.writer", "SummaryWriter", ("add_scalar", "add_scalars", "add_histogram", "flush")),
    ("wandb.sdk.wandb_run", "Run", ("log",)),
    ("mlflow", None, ("log_metric", "log_metrics")),
    ("tqdm.std", "tqdm", ("update", "set_postfix", "refresh")),
    ("logging", "Logger", ("_log",)),
    ("builtins", None, ("print",)),
)
# What agents act in; the methods of subclasses are hooked, since these call none of the base class.
_ENVIRONMENTS = (
    ("gymnasium.core", "Env"),
    ("gymnasium.vector.vector_env", "VectorEnv"),
    ("gym.core", "Env"),
)
# What ranks do together; those for objects call these.
COLLECTIVES = (
    *("all_reduce", "all_reduce_coalesced", "reduce", "broadcast", "barrier", "monitored_barrier"),
    *("all_gather", "all_gather_into_tensor", "all_gather_coalesced", "gather", "scatter"),
    *("reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "send", "recv"),
    # With this a data-parallel model sends its buffers, before each forward pass.
    "_broadcast_coalesced",
)
_LOSSES = ("cross_entropy", "kl_div", "binary_cross_entropy")
_HOOKED = "_perfkit_hooked"
CLOSURE = "closure_aside"
_Call = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time on the host's clock, or in a device's queue: behind the work before it."""

    at_s: float = 0.0
    event: Any = None

    def seconds_until(self, later: Moment) -> float:
        """Return how much later another moment of the same clock is; a device must have reached both."""
        if self.event is None or later.event is None:
            return later.at_s - self.at_s
        return float(self.event.elapsed_time(later.event)) / 1e3

    def wait(self) -> None:
        """Wait until a device has done the work before it."""
        if self.event is not None:
            self.event.synchronize()


class PhaseClock:
    """Sums up the time of each phase, step by step; every phase is measured, none is a remainder.

    The outermost hook decides, unless there is another ``instead``; phases of hooks count as their own inside
    phases that the user names. Other threads are ignored. ``clock_of`` chooses how moments are taken: on a
    device by queued events, so that no step waits. ``watch`` is called with the label of each new phase; its
    own time belongs to no step.
    """

    def __init__(
        self,
        clock_of: Callable[[], Callable[[], Moment]] = lambda: host_now,
        watch: Callable[[_Label], None] | None = None,
    ) -> None:
        self._clock_of, self._watch = clock_of, watch
        # An error of a hook is raised at the end of its step.
        self.guarded = Guard(self.close)
        self._turn_safely = self.guarded(self.turn)
        self._now: Callable[[], Moment] = host_now
        self._thread = threading.get_ident()
        self.hook: _Label = None
        self._named: list[str] = []
        self._changes: list[tuple[Moment, _Label]] = []
        self._steps: list[list[tuple[Moment, _Label]]] = []

    def begin(self, phase: str, begun: Moment | None = None) -> bool:
        """Enter a hook's phase, with what the hook did since it has ``begun`` as the watch's own time.

        Return whether it is the outermost one, since only that must be ended.
        """
        if self.hook is not None or threading.get_ident() != self._thread:
            return False
        self.hook = phase
        self._change(phase, begun)
        return True

    def end(self, renamed: _Label = None, ended: Moment | None = None) -> None:
        """Leave the phase of the outermost hook, now or when it ``ended``; it may get another name."""
        place = len(self._changes) - 1
        while renamed and place >= 0 and self._changes[place][1] in (self.hook, _PAUSE):
            moment, label = self._changes[place]
            self._changes[place] = moment, renamed if label == self.hook else label
            place -= 1
        self.hook = None
        self._change(self._label, ended)

    @contextmanager
    def instead(self, phase: _Label) -> Iterator[None]:
        """Be in a phase for a while instead of the present hook's, in None for phases that come inside."""
        if threading.get_ident() != self._thread:
            yield
            return
        hook = self._turn_safely(phase)
        try:
            yield
        finally:
            self._turn_safely(hook)

    def turn(self, phase: _Label) -> _Label:
        """Change the present hook's phase, and return what it was.

        Other threads may call it only while the clock's own thread waits for them.
        """
        hook, self.hook = self.hook, phase
        self._change(self._label)
        return hook

    def enter(self, name: str) -> None:
        """Enter a phase that the user names."""
        if threading.get_ident() == self._thread:
            self._named.append(name)
            self._change_named()

    def leave(self, name: str) -> None:
        """Leave a phase that the user named."""
        if threading.get_ident() == self._thread and name in self._named:
            self._named.remove(name)
            self._change_named()

    def end_step(self) -> None:
        """Close the step; time until ``start_step`` belongs to no step."""
        self.guarded.check()
        self._change(None)
        self._steps.append(self._changes)
        self._changes = []

    def bookmark(self) -> Moment:
        """Return the present moment, from or to which ``balance`` can cut something out."""
        now = self._now()
        self._changes.append((now, self._label))
        return now

    def extend_step(self) -> None:
        """Make one step of the last whole one and what has come since."""
        self._changes = [*self._steps.pop(), *self._changes]
        self.end_step()
        self.start_step()

    def start_step(self) -> None:
        """Begin the first step, or the next one."""
        self._now = self._clock_of()
        self._changes = []
        self._change(self._label)

    def moment(self) -> Moment:
        """Return the present moment, in the middle of a phase."""
        return self._now()

    def close(self) -> None:
        """Ignore all later calls, so that a hook that is still set, as in a forked process, costs little."""
        self._thread = _NO_THREAD

    def wait(self) -> None:
        """Wait until a device has reached the last moment of the whole steps."""
        if self._steps:
            self._steps[-1][-1][0].wait()

    def balance(self, cuts: Iterable[tuple[Moment, Moment]] = ()) -> Balance:
        """Return the phases of whole steps without ``cuts``; a device must have reached its last moment."""
        self.guarded.check()
        steps = [_seconds(changes) for changes in _cut(self._steps, cuts)]
        for step in steps:
            step.pop(_PAUSE, None)
        names = dict.fromkeys(name for step in steps for name in step if name is not None)
        return Balance(
            step_s=tuple(sum(step.values()) for step in steps),
            phases=tuple(
                PhaseSeconds(name=name, seconds=tuple(step.get(name, 0.0) for step in steps))
                for name in names
            ),
        )

    @property
    def _label(self) -> _Label:
        return self.hook or (self._named[-1] if self._named else None)

    def _change(self, label: _Label, at: Moment | None = None) -> None:
        if self._watch is not None:
            self._changes.append((at or self._now(), _PAUSE))
            self._watch(label)
            at = None
        self._changes.append((at or self._now(), label))

    def _change_named(self) -> None:
        if self.hook is None:
            self._change(self._label)


def _seconds(changes: list[tuple[Moment, _Label]]) -> dict[_Label, float]:
    seconds: dict[_Label, float] = defaultdict(float)
    labels = _with_own_losses([label for _, label in changes])
    for label, ((begin, _), (end, _)) in zip(labels, itertools.pairwise(changes), strict=False):
        seconds[label] += begin.seconds_until(end)
    return seconds


def _cut(
    steps: Iterable[list[tuple[Moment, _Label]]], cuts: Iterable[tuple[Moment, Moment]]
) -> Iterator[list[tuple[Moment, _Label]]]:
    found = list(cuts)
    begins, ends = {id(begin) for begin, _ in found}, {id(end) for _, end in found}
    is_cut = False
    for changes in steps:
        kept = []
        for moment, label in changes:
            is_cut = (is_cut or id(moment) in begins) and id(moment) not in ends
            kept.append((moment, _PAUSE if is_cut else label))
        yield kept


def _with_own_losses(labels: list[_Label]) -> list[_Label]:
    """Name what no hook saw before a backward pass: between modules a forward pass, behind them a loss."""
    since = 0
    for backward in [place for place, label in enumerate(labels) if label == BACKWARD]:
        first, since = since, backward + 1
        begin = _last_of((FORWARD, _WITH_LOSS), labels, first, backward)
        if begin is None:
            begin = _last_of((_WITHOUT_GRADIENT,), labels, first, backward)
        if begin is None or labels[begin] == _WITH_LOSS:
            continue
        # What comes before an agent has acted is no part of a loss.
        acted = _last_of((ENVIRONMENT,), labels, begin, backward)
        behind = begin if acted is None else acted
        between = labels[behind:backward]
        until = rest = len(between)
        if OPTIMIZER in between:
            until = between.index(OPTIMIZER)
            rest -= between[::-1].index(OPTIMIZER)
            # With a loss that a hook saw, what comes before gradients are set to zero may be anything.
            if LOSS in between[:until]:
                until -= between[:until][::-1].index(LOSS)
        for part in (slice(behind, behind + until), slice(behind + rest, backward)):
            labels[part] = [label or LOSS for label in labels[part]]
        while begin and (label := labels[begin - 1]) in (*_FORWARDS, _PAUSE, None):
            begin -= 1
            if label in _FORWARDS:
                until = next(at for at in range(begin + 1, backward) if labels[at] in _FORWARDS)
                labels[begin:until] = [label or FORWARD for label in labels[begin:until]]
    return [FORWARD if label in (_WITH_LOSS, _WITHOUT_GRADIENT) else label for label in labels]


def _last_of(kinds: tuple[_Label, ...], labels: list[_Label], first: int, end: int) -> int | None:
    return next((at for at in range(end - 1, first - 1, -1) if labels[at] in kinds), None)


def host_now() -> Moment:
    """Read the host's clock."""
    return Moment(time.perf_counter())


def choose_clock(in_use: Callable[[], Accelerator | None] = accelerator_in_use) -> Callable[[], Moment]:
    """Return the device's clock where an accelerator with events is in use, else the host's."""
    device = in_use()
    if device is None or device.event() is None:
        return host_now
    return functools.partial(moment_on, device)


def moment_on(device: Accelerator | None) -> Moment:
    """Read the host's clock, and queue an event behind the work of a device that has events."""
    event = None if device is None else device.event()
    if event is not None:
        event.record()
    return Moment(time.perf_counter(), event)


def can_import_torch() -> bool:
    """Return whether torch can be imported; a training that marks its steps needs none."""
    try:
        import torch  # noqa: F401 (to see whether it can be)
    except (ImportError, OSError):
        return False
    return True


def hook_torch(clock: PhaseClock) -> contextlib.ExitStack:
    """Set the hooks in torch, and return what removes them when it is closed."""
    import torch
    from torch.nn import functional
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

    with contextlib.ExitStack() as hooks:
        patches = Patches()
        hooks.callback(patches.undo)
        wrap = functools.partial(_wrap, clock, patches)
        wrap(_BaseDataLoaderIter, ("__next__",), _always(DATA))
        # Workers are started and ended with each epoch.
        wrap(DataLoader, ("__iter__",), _always(DATA))
        wrap(_MultiProcessingDataLoaderIter, ("_shutdown_workers",), _always(DATA))
        wrap(torch.Tensor, _CALLS_TO_DEVICE, _always(TO_DEVICE))
        wrap(torch.Tensor, _CALLS_TO_HOST, _always(TO_HOST))
        wrap(torch.Tensor, ("backward",), _always(BACKWARD))
        wrap(torch.autograd, ("backward", "grad"), _always(BACKWARD))
        for owner in (Optimizer, torch.nn.Module):
            wrap(owner, ("zero_grad",), _always(OPTIMIZER))
        wrap(LRScheduler, ("step",), _always(OPTIMIZER))
        wrap(torch.nn.utils, ("clip_grad_norm_", "clip_grad_value_"), _always(OPTIMIZER))
        wrap(functional, _losses(vars(functional)), _always(LOSS))
        wrap(torch.nn.Module, ("__call__",), _phase_of_module)
        for handle in _hook_steps(clock):
            hooks.callback(handle.remove)
        return hooks.pop_all()


def hook_collectives(clock: PhaseClock) -> None:
    """Count what ranks do together as a phase of its own, wherever in a step it happens.

    A data-parallel model reduces its gradients while a backward pass goes on. What is left of that when the
    last gradient is there is the time between the end of the graph, which a callback queued before the
    model's own marks, and the end of the pass.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    for owner in (dist, distributed_c10d):
        for name in COLLECTIVES:
            _wrap_instead(clock, owner, name)
    _wrap_instead(clock, dist.Work, "wait")
    backward: Any = torch.autograd.backward

    @functools.wraps(backward)
    def timed_backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (torch's own signature)
        root = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
        if not isinstance(root, torch.Tensor) or not root.requires_grad:
            return backward(tensors, *args, **kwargs)
        handle = root.register_hook(lambda _: _note_end_of_graph(clock))  # type: ignore[no-untyped-call]
        hook = clock.hook
        try:
            return backward(tensors, *args, **kwargs)
        finally:
            handle.remove()
            if clock.hook != hook:
                clock.turn(hook)

    torch.autograd.backward = timed_backward


def _note_end_of_graph(clock: PhaseClock) -> None:
    from torch.autograd import Variable

    engine: Any = Variable._execution_engine  # noqa: SLF001 (torch's own data parallelism queues with it)
    engine.queue_callback(lambda: clock.turn(RANKS) if clock.hook == BACKWARD else None)


def _wrap_instead(clock: PhaseClock, owner: Any, name: str) -> None:  # noqa: ANN401 (a class or module)
    import torch

    call = getattr(owner, name, None)
    if call is None or hasattr(call, _HOOKED):
        return
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(call)
    def timed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the wrapped call's own signature)
        if is_compiling() or clock.hook == RANKS:
            return call(*args, **kwargs)
        with clock.instead(RANKS):
            return call(*args, **kwargs)

    setattr(timed, _HOOKED, True)
    setattr(owner, name, timed)


def hook_libraries(clock: PhaseClock) -> Patches:
    """Set the hooks in loggers, environments and others' optimizers that were imported by now.

    Return what can undo them.
    """
    patches = Patches()
    for module, owner, names in _LOGGERS:
        found: Any = sys.modules.get(module)
        with contextlib.suppress(AttributeError, TypeError):
            _wrap(clock, patches, getattr(found, owner) if owner else found, names, _always(LOGGING))
    for module, owner in _ENVIRONMENTS:
        for kind in _with_subclasses(getattr(sys.modules.get(module), owner, None)):
            _wrap(clock, patches, kind, ("step", "reset"), _always(ENVIRONMENT))
    for kind in _with_subclasses(getattr(sys.modules.get("torch.optim"), "Optimizer", None)):
        # One that wraps another one, as Accelerate's does, calls torch's hooks too late.
        if not kind.__module__.startswith("torch."):
            _wrap(clock, patches, kind, ("step", "zero_grad"), _always(OPTIMIZER))
    return patches


def _with_subclasses(kind: type[object] | None) -> Iterator[type[object]]:
    if kind is not None:
        yield kind
        for one in kind.__subclasses__():
            yield from _with_subclasses(one)


def _wrap(
    clock: PhaseClock,
    patches: Patches,
    owner: Any,  # noqa: ANN401 (a class or module)
    names: Iterable[str],
    phase_of: Callable[[Any], str],
) -> None:
    for name in names:
        call = getattr(owner, name, None)
        if call is not None and not hasattr(call, _HOOKED):
            patches.replace(owner, name, _timed(clock, patches, call, phase_of))


def _timed(clock: PhaseClock, patches: Patches, call: _Call, phase_of: Callable[[Any], str]) -> _Call:
    is_compiling = _is_compiling()

    @clock.guarded
    def begin(args: tuple[Any, ...]) -> bool:
        begun = clock.moment()
        if phase_of is _phase_of_module:
            # Behind this function, its guard and the hook.
            _hook_forward(clock, patches, sys._getframe(3))  # noqa: SLF001 (as documented)
        return clock.begin(phase_of(args[0] if args else None), begun)

    @clock.guarded
    def end(args: tuple[Any, ...], result: object) -> None:
        ended = clock.moment()
        clock.end(_renamed(args[0], result) if phase_of is _phase_of_module else None, ended)

    @functools.wraps(call)
    def timed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the wrapped call's own signature)
        # A compiler that traces this must see the call only. Most other calls are in a phase already.
        if is_compiling() or clock.hook or not begin(args):
            return call(*args, **kwargs)
        result = None
        try:
            result = call(*args, **kwargs)
        finally:
            end(args, result)
        return result

    setattr(timed, _HOOKED, True)
    return timed


def _hook_forward(clock: PhaseClock, patches: Patches, caller: FrameType) -> None:
    """Hook the ``forward`` that a loop calls by this name, once a module in it is called.

    Others are left alone, since TorchScript cannot compile what was replaced.
    """
    if caller.f_code.co_name != "forward":
        return
    for kind in type(caller.f_locals.get("self")).__mro__:
        if getattr(vars(kind).get("forward"), "__code__", None) is caller.f_code:
            _wrap(clock, patches, kind, ("forward",), _phase_of_module)


def _is_compiling() -> Callable[[], bool]:
    if not can_import_torch():
        return lambda: False
    import torch

    return torch.compiler.is_compiling


def _always(phase: str) -> Callable[[Any], str]:
    return lambda _: phase


def _phase_of_module(module: Any) -> str:  # noqa: ANN401 (any callable)
    return LOSS if type(module).__name__.endswith("Loss") else FORWARD


def _renamed(module: Any, result: Any) -> _Label:  # noqa: ANN401 (a module and what it returned)
    """Return the label of a module that returned a loss, or nothing with a gradient; None of another one."""
    parts = result.values() if isinstance(result, dict) else result
    parts = tuple(parts) if isinstance(result, dict | tuple | list) else (result,)
    for part in parts:
        # A loss is a tensor without dimensions.
        if getattr(part, "requires_grad", False) and not part.ndim:
            return LOSS if next(module.parameters(), None) is None else _WITH_LOSS
    # What is no tensor may hold some.
    may_train = any(getattr(part, "requires_grad", True) for part in parts)
    return None if may_train or _phase_of_module(module) == LOSS else _WITHOUT_GRADIENT


def _losses(names: Iterable[str]) -> list[str]:
    return [
        name
        for name in names
        if not name.startswith("_") and (name.endswith("_loss") or name.startswith(_LOSSES))
    ]


def _hook_steps(clock: PhaseClock) -> tuple[Any, Any]:
    """Count an optimizer's step as a phase, and return the handles that end that.

    The hook that ends the whole training step runs after it.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    outermost: list[bool] = []

    @clock.guarded
    def begin(_: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        outermost.append(clock.begin(OPTIMIZER))
        # The whole step may have been entered already.
        aside = functools.partial(clock.instead, None)
        return with_closure_aside(aside, args, kwargs) if clock.hook == OPTIMIZER else None

    @clock.guarded
    def end(*_: object) -> None:
        if outermost and outermost.pop():
            clock.end()

    return register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)


def with_closure_aside(
    aside: Callable[[], contextlib.AbstractContextManager[None]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return what an optimizer's step is given with its closure in ``aside``; None where it has no closure.

    A closure is the loop's own code, as Lightning passes all of a training step: what runs in it counts as it
    would outside. The function around it is named CLOSURE.
    """
    optimizer, *given = args
    closure = kwargs.get("closure", given[0] if given else None)
    if not callable(closure):
        return None

    @functools.wraps(closure)
    def closure_aside(*called: Any, **named: Any) -> Any:  # noqa: ANN401 (the closure's own signature)
        with aside():
            return closure(*called, **named)

    if "closure" in kwargs:
        return args, {**kwargs, "closure": closure_aside}
    return (optimizer, closure_aside, *given[1:]), kwargs
