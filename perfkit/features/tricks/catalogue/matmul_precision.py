"""Matrix products of float32 with fewer bits inside."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from perfkit.features.tricks.pieces import seeded
from perfkit.features.tricks.switches import switched
from perfkit.features.tricks.trick import Call, Pair, Trick


def _pair(side: int) -> Pair:
    return Pair(without=_side(side, "highest"), with_=_side(side, "medium"))


def _side(side: int, precision: str) -> Call:
    left, right = seeded(lambda: (torch.randn(side, side), torch.randn(side, side) / side**0.5))

    def multiply() -> tuple[Tensor, ...]:
        with _matmul_precision(precision):
            return (left @ right,)

    return multiply


def _matmul_precision(precision: str) -> AbstractContextManager[Callable[[], bool]]:
    return switched(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, precision)


TRICK = Trick(
    name="matmul_precision",
    title="Medium matmul precision",
    what=(
        "Lets products of float32 matrices round their arguments to bfloat16, where there are units for it; "
        "sums and results stay float32. The units take a fraction of the time."
    ),
    helps="In nets of large matrix products, on tensor cores or on processors with bfloat16 units.",
    caveat="Without such units it changes nothing; with them, seven of the 23 bits of each number are left.",
    source=(
        "PyTorch documentation, set_float32_matmul_precision: "
        "https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html"
    ),
    code='torch.set_float32_matmul_precision("medium")',
    size_means="rows and columns of a matrix",
    sizes=(128, 512, 1024),
    pair=_pair,
    relative_tolerance=2e-2,
    absolute_tolerance=3e-2,
    tolerance_why=(
        "Rounding to seven bits moves each argument by up to 0.4%; results are of the order of one, and "
        "small ones are differences of large terms."
    ),
    loop_tolerance=0.5,
    on_loop=lambda: _matmul_precision("medium"),
)
