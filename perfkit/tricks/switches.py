"""Changing for a while what all code shares: attributes of torch, and how its objects are constructed."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Arguments = dict[str, Any]


@contextmanager
def replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """Give an attribute of the owner's own another value, until the end."""
    former = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, former)


@contextmanager
def constructing(made: type, change: Callable[[Arguments], Arguments]) -> Iterator[None]:
    """Construct the objects of a class with changed arguments, whoever constructs them, until the end.

    Objects of its subclasses are left alone, as those may pass on arguments of their own.

    Args:
        made: The class.
        change: Returns the arguments to set, given those that the caller passed, by name.
    """
    construct = vars(made)["__init__"]
    signature = inspect.signature(construct)

    def construct_changed(self: object, *args: object, **keywords: object) -> None:
        passed = signature.bind(self, *args, **keywords)
        if type(self) is made:
            passed.arguments |= change(passed.arguments)
        construct(*passed.args, **passed.kwargs)

    with replaced(made, "__init__", construct_changed):
        yield
