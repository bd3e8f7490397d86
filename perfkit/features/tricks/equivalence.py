"""Whether both sides of a trick give the same."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from perfkit.features.tricks.records import Equivalence

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.features.tricks.trick import Trick

# States that drift apart differ visibly after a few calls.
_CALLS = 3


def compare_sides(trick: Trick, size: int) -> Equivalence:
    """Return what the two sides of a trick differ by, each called as often as the other."""
    pair = trick.pair(size)
    largest = 0.0
    for _ in range(_CALLS):
        without, with_ = pair.without(), pair.with_()
        if len(without) != len(with_):
            return Equivalence(equal=False, problem=f"{len(without)} results against {len(with_)}")
        for old, new in zip(without, with_, strict=True):
            if old.shape != new.shape:
                return Equivalence(equal=False, problem=f"a result of {old.shape} against {new.shape}")
            largest = max(largest, _difference(old, new, trick))
    return Equivalence(equal=largest <= 1, largest=largest)


def _difference(old: Tensor, new: Tensor, trick: Trick) -> float:
    """Return the largest difference of two tensors as a share of what the trick's tolerance allows."""
    old, new = old.detach().cpu().double(), new.detach().cpu().double()
    if not old.numel():
        return 0.0
    apart = (old - new).abs()
    allowed = trick.absolute_tolerance + trick.relative_tolerance * old.abs()
    shares = (apart / allowed).masked_fill(apart == 0, 0.0)
    return float(shares.nan_to_num(nan=math.inf, posinf=math.inf).max())
