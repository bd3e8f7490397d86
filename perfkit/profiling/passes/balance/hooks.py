"""Hooks that tell a phase clock what a PyTorch training loop is doing, whoever wrote the loop.

They replace what every loop calls: the iterator of a ``DataLoader``, a tensor's copy to another device, the
call of an outermost module, ``backward``, and an optimizer's ``step``. No user's code is edited.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

from perfkit.model.phases import (
    BACKWARD,
    DATA,
    EVALUATION,
    FORWARD,
    LOGGING,
    LOSS,
    OPTIMIZER,
    RANKS,
    TO_DEVICE,
    TO_HOST,
)
from perfkit.profiling.passes.balance.clock import PhaseClock
from perfkit.runner.agent.counting.interventions import Patches

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
# What ranks do together; those for objects call these.
_COLLECTIVES = (
    *("all_reduce", "all_reduce_coalesced", "reduce", "broadcast", "barrier", "monitored_barrier"),
    *("all_gather", "all_gather_into_tensor", "all_gather_coalesced", "gather", "scatter"),
    *("reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "send", "recv"),
    # With this a data-parallel model sends its buffers, before each forward pass.
    "_broadcast_coalesced",
)
_HOOKED = "_perfkit_hooked"
_Call = Callable[..., Any]


def can_import_torch() -> bool:
    """Tell whether torch can be imported; a training that says by itself where its steps end needs none."""
    try:
        import torch  # noqa: F401 (to see whether it can be)
    except (ImportError, OSError):
        return False
    return True


def hook_torch(clock: PhaseClock) -> contextlib.ExitStack:
    """Set the hooks in torch, and return what removes them when it is closed.

    Functions that the user's code imported from torch before are not hooked.
    """
    import torch
    from torch.nn import functional
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

    with contextlib.ExitStack() as hooks:
        patches = Patches()
        hooks.callback(patches.undo)
        wrap = functools.partial(_wrap, clock, patches)
        wrap(_BaseDataLoaderIter, ("__next__",), _unless_evaluating(DATA))
        # Workers are started and ended with each epoch.
        wrap(DataLoader, ("__iter__",), _unless_evaluating(DATA))
        wrap(_MultiProcessingDataLoaderIter, ("_shutdown_workers",), _unless_evaluating(DATA))
        wrap(torch.Tensor, _CALLS_TO_DEVICE, _always(TO_DEVICE))
        wrap(torch.Tensor, _CALLS_TO_HOST, _always(TO_HOST))
        wrap(torch.Tensor, ("backward",), _always(BACKWARD))
        wrap(torch.autograd, ("backward", "grad"), _always(BACKWARD))
        wrap(Optimizer, ("zero_grad",), _always(OPTIMIZER))
        wrap(LRScheduler, ("step",), _always(OPTIMIZER))
        wrap(torch.nn.utils, ("clip_grad_norm_", "clip_grad_value_"), _always(OPTIMIZER))
        wrap(functional, _losses(vars(functional)), _always(LOSS))
        wrap(torch.nn.Module, ("__call__",), _phase_of_module)
        for handle in _hook_steps(clock):
            hooks.callback(handle.remove)
        _hook_evaluation(clock, patches, torch.no_grad, torch.inference_mode)
        return hooks.pop_all()


def hook_collectives(clock: PhaseClock) -> None:
    """Count what ranks do together as a phase of its own, wherever in a step it happens.

    A data-parallel model reduces its gradients while a backward pass goes on. What is left of that when the
    last gradient is there is the time between the end of the graph, which a callback queued before the
    model's own tells, and the end of the pass.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    for owner in (dist, distributed_c10d):
        for name in _COLLECTIVES:
            _wrap_instead(clock, owner, name)
    _wrap_instead(clock, dist.Work, "wait")
    backward: Any = torch.autograd.backward

    @functools.wraps(backward)
    def told(tensors: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (torch's own signature)
        root = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
        if not isinstance(root, torch.Tensor) or not root.requires_grad:
            return backward(tensors, *args, **kwargs)
        handle = root.register_hook(lambda _: _tell_end_of_graph(clock))  # type: ignore[no-untyped-call]
        hook = clock.hook
        try:
            return backward(tensors, *args, **kwargs)
        finally:
            handle.remove()
            if clock.hook != hook:
                clock.turn(hook)

    torch.autograd.backward = told


def _tell_end_of_graph(clock: PhaseClock) -> None:
    """Have the clock turn to the other ranks once the graph that runs now is done."""
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


def hook_loggers(clock: PhaseClock) -> Patches:
    """Set the hooks in logging libraries that have been imported by now, and return what can undo them.

    A second call changes nothing.
    """
    patches = Patches()
    for module, owner, names in _LOGGERS:
        found: Any = sys.modules.get(module)
        with contextlib.suppress(AttributeError, TypeError):
            _wrap(clock, patches, getattr(found, owner) if owner else found, names, _always(LOGGING))
    return patches


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
            patches.replace(owner, name, _timed(clock, call, phase_of))


def _timed(clock: PhaseClock, call: _Call, phase_of: Callable[[Any], str]) -> _Call:
    is_compiling = _is_compiling()

    @functools.wraps(call)
    def timed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the wrapped call's own signature)
        # A compiler that traces this must see the call only. Most other calls are in a phase already.
        if is_compiling() or clock.hook or not clock.begin(phase_of(args[0] if args else None)):
            return call(*args, **kwargs)
        try:
            return call(*args, **kwargs)
        finally:
            clock.end()

    setattr(timed, _HOOKED, True)
    return timed


def _is_compiling() -> Callable[[], bool]:
    """Return what tells whether torch's compiler traces now; without torch none does."""
    if not can_import_torch():
        return lambda: False
    import torch

    return torch.compiler.is_compiling


def _always(phase: str) -> Callable[[Any], str]:
    return lambda _: phase


def _unless_evaluating(phase: str) -> Callable[[Any], str]:
    import torch

    return lambda _: phase if torch.is_grad_enabled() else EVALUATION


def _phase_of_module(module: Any) -> str:  # noqa: ANN401 (whatever is called)
    """Return whether the outermost module that is called is a loss, an evaluation or a forward pass."""
    if type(module).__name__.endswith("Loss"):
        return LOSS
    return FORWARD if module.training else EVALUATION


def _losses(names: Iterable[str]) -> list[str]:
    """Return the losses among the functions of ``torch.nn.functional``."""
    return [
        name
        for name in names
        if not name.startswith("_") and (name.endswith("_loss") or name in ("cross_entropy", "kl_div"))
    ]


def _hook_steps(clock: PhaseClock) -> tuple[Any, Any]:
    """Count an optimizer's step as a phase, and return the handles that end that.

    The hook that ends the whole training step runs after it.

    A closure that the step is given is the loop's own code, as Lightning passes all of a training step: what
    runs in it counts as it would outside.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    outermost: list[bool] = []

    def begin(_: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        outermost.append(clock.begin(OPTIMIZER))
        return _with_closure_aside(clock, args, kwargs) if outermost[-1] else None

    def end(*_: object) -> None:
        if outermost and outermost.pop():
            clock.end()

    return register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)


def _with_closure_aside(
    clock: PhaseClock, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments of an optimizer's step with its closure outside of the step's phase.

    Torch takes None for the arguments as they are, as where there is no closure.
    """
    optimizer, *given = args
    closure = kwargs.get("closure", given[0] if given else None)
    if not callable(closure):
        return None

    @functools.wraps(closure)
    def closure_aside(*called: Any, **named: Any) -> Any:  # noqa: ANN401 (the closure's own signature)
        with clock.aside():
            return closure(*called, **named)

    if "closure" in kwargs:
        return args, {**kwargs, "closure": closure_aside}
    return (optimizer, closure_aside, *given[1:]), kwargs


def _hook_evaluation(clock: PhaseClock, patches: Patches, *regions: Any) -> None:  # noqa: ANN401 (torch's context managers)
    """Count code that runs without gradients, outside every other phase, as evaluation."""
    for region in regions:
        _hook_region(clock, patches, region)


def _hook_region(clock: PhaseClock, patches: Patches, region: Any) -> None:  # noqa: ANN401 (a context manager's class)
    enter, leave = region.__enter__, region.__exit__

    @functools.wraps(enter)
    def timed_enter(self: Any) -> Any:  # noqa: ANN401 (the region)
        self._perfkit_outermost = clock.begin(EVALUATION)
        return enter(self)

    @functools.wraps(leave)
    def timed_leave(self: Any, *error: Any) -> Any:  # noqa: ANN401 (likewise)
        try:
            return leave(self, *error)
        finally:
            # A region that was entered before the hooks were set has begun nothing.
            if vars(self).pop("_perfkit_outermost", False):
                clock.end()

    patches.replace(region, "__enter__", timed_enter)
    patches.replace(region, "__exit__", timed_leave)
