"""What is known of an operator before it runs; it is found out once per operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .syncs import Wait, wait_of
from .torch_seam import flop_formula, is_composite, schema_of

# Copies what a tensor constructor was given, or wraps memory that is not torch's.
_LIFT = "aten::lift_fresh"
_COPIES = ("aten::_to_copy", "aten::copy_")


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """An operator: which of its results are newly allocated, whether it waits for a device, what it computes.

    ``lifts`` marks the one that stands for a tensor's construction, ``copies`` those that may go from one
    device to another.
    """

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
