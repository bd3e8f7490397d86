"""Changes for a while what all code shares: attributes of torch, and how its objects are made and called."""

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

Arguments = dict[str, Any]
Forward = Callable[..., object]
Value = TypeVar("Value")
_NOTHING = object()


@contextmanager
def switched(
    get: Callable[[], Value], switch: Callable[[Value], object], value: Value
) -> Iterator[Callable[[], bool]]:
    """Switch a setting to another value, until the end.

    Yields:
        Whether that is another value than before.
    """
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
    """Construct the objects of a class with changed arguments, whoever constructs them, until the end.

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
    """Let torch divide its work among so many threads, until the end."""
    return switched(torch.get_num_threads, torch.set_num_threads, count)


def allowed_threads() -> int:
    """Return the processors that this process may run on, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def calling(around: Callable[[nn.Module, Forward, tuple[Any, ...], Arguments], object]) -> Iterator[None]:
    """Let each call of a module that no other module makes go through a function, until the end.

    Args:
        around: Given the module, what calls it, and the arguments; returns the outputs.
    """
    call = nn.Module.__call__
    outermost = True

    def call_around(self: nn.Module, *args: Any, **keywords: Any) -> object:  # noqa: ANN401 (the module's own)
        nonlocal outermost
        if not outermost:
            return call(self, *args, **keywords)
        outermost = False
        try:
            return around(self, lambda *new, **named: call(self, *new, **named), args, keywords)
        finally:
            outermost = True

    with replaced(nn.Module, "__call__", call_around):
        yield
