"""Parts of tricks: small seeded nets, temporary changes to torch, and sources."""

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from perfkit.features.tricks.trick import Call, Pair

Made = TypeVar("Made")
Arguments = dict[str, Any]
# The arguments of a module, by place and by name.
Inputs = tuple[tuple[Any, ...], Arguments]
Forward = Callable[[Inputs], object]
Value = TypeVar("Value")
_NOTHING = object()


def documentation(title: str, page: str) -> str:
    """Return a page of torch's documentation as a source."""
    return f"PyTorch documentation, {title}: https://docs.pytorch.org/docs/stable/{page}"


def tutorial(title: str, page: str) -> str:
    """Return one of torch's tutorials as a source."""
    return f"PyTorch tutorial, {title}: https://docs.pytorch.org/tutorials/{page}"


def seeded(make: Callable[[], Made]) -> Made:
    """Return what ``make`` makes, with the same random numbers each time; the caller's stay as they were."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(0)
        return make()


def sides(make: Callable[..., Call], **option: tuple[object, object]) -> Callable[[int], Pair]:
    """Return what makes the pair of a size: ``make`` with the option's first value, and with its second."""
    ((name, (old, new)),) = option.items()
    return lambda size: Pair(without=make(size, **{name: old}), with_=make(size, **{name: new}))


def convolution_net(*, inplace: bool = False) -> nn.Sequential:
    """Return a net from images (N, 3, height, width) to ten logits, with or without in-place activations."""
    return nn.Sequential(
        nn.Conv2d(3, 32, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=inplace),
        nn.Conv2d(32, 64, kernel_size=3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=inplace),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def perceptron(*, layers: int, width: int) -> nn.Sequential:
    """Return a net of layers that each keep the width."""
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers)))


def train_step(model: nn.Module, optimizer: Optimizer, inputs: Tensor) -> Tensor:
    """Update the parameters once, towards outputs of zero, and return the loss, 0-dim."""
    optimizer.zero_grad()
    loss: Tensor = model(inputs).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def outputs_and_gradients(model: nn.Module, inputs: Tensor) -> tuple[Tensor, ...]:
    """Return the outputs, and the gradients of their mean square in the order of the parameters."""
    model.zero_grad()
    outputs = model(inputs)
    outputs.square().mean().backward()
    return outputs.detach(), *gradients(model)


def gradients(model: nn.Module) -> tuple[Tensor, ...]:
    """Return the gradients of the parameters that have one."""
    return tuple(parameter.grad for parameter in model.parameters() if parameter.grad is not None)


def parameters(model: nn.Module) -> tuple[Tensor, ...]:
    """Return the parameters themselves, for comparison."""
    return tuple(parameter.detach() for parameter in model.parameters())


@contextmanager
def switched(
    get: Callable[[], Value], switch: Callable[[Value], object], value: Value
) -> Iterator[Callable[[], bool]]:
    """Switch a setting until the end, and yield whether that is another value than before."""
    former = get()
    switch(value)
    try:
        yield lambda: former != value
    finally:
        switch(former)


def replaced(owner: object, name: str, value: object) -> AbstractContextManager[Callable[[], bool]]:
    """Give an attribute of the owner's own another value, until the end."""
    return switched(partial(getattr, owner, name), partial(setattr, owner, name), value)


class Used:
    """Whether any code has used what was changed; a call returns the answer."""

    def __init__(self) -> None:
        self._seen = False

    def note(self) -> None:
        """Remember that some code has used it."""
        self._seen = True

    def __call__(self) -> bool:
        """Return whether any code has used it."""
        return self._seen


@contextmanager
def constructing(made: type, change: Callable[[Arguments], Arguments]) -> Iterator[Used]:
    """Construct all objects of a class with changed arguments, until the end.

    Objects of its subclasses are left alone, as those may pass on arguments of their own.

    Args:
        made: The class.
        change: Returns the arguments to set, given those that the caller passed, by name.

    Yields:
        Whether an object was constructed with other arguments than its caller's.
    """
    used = Used()
    construct = vars(made)["__init__"]
    signature = inspect.signature(construct)

    # Tricks that change the same class are nested: each reads the signature through the others.
    @wraps(construct)
    def construct_changed(self: object, *args: object, **keywords: object) -> None:
        passed = signature.bind(self, *args, **keywords)
        if type(self) is made:
            changes = change(passed.arguments)
            if any(passed.arguments.get(name, _NOTHING) != value for name, value in changes.items()):
                used.note()
            passed.arguments |= changes
        construct(*passed.args, **passed.kwargs)

    with replaced(made, "__init__", construct_changed):
        yield used


def threads_set_to(count: int) -> AbstractContextManager[Callable[[], bool]]:
    """Let torch divide its work among this many threads, until the end."""
    return switched(torch.get_num_threads, torch.set_num_threads, count)


def allowed_threads() -> int:
    """Return the processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def calling(around: Callable[[nn.Module, Forward, Inputs], object]) -> Iterator[None]:
    """Route each call of an outermost module through a function of (module, call, inputs)."""
    call = nn.Module.__call__
    outermost = True

    def call_around(self: nn.Module, *args: Any, **keywords: Any) -> object:  # noqa: ANN401 (the module's own)
        nonlocal outermost
        if not outermost:
            return call(self, *args, **keywords)
        outermost = False
        try:
            return around(self, lambda inputs: call(self, *inputs[0], **inputs[1]), (args, keywords))
        finally:
            outermost = True

    with replaced(nn.Module, "__call__", call_around):
        yield
