"""One operator on a batch instead of many on its parts."""

import torch

from perfkit.features.tricks.pieces import seeded
from perfkit.features.tricks.trick import Pair, Trick


def _pair(products: int) -> Pair:
    left, right = seeded(lambda: (torch.randn(products, 16, 16), torch.randn(products, 16, 16)))
    return Pair(
        without=lambda: (torch.stack([one @ other for one, other in zip(left, right, strict=True)]),),
        with_=lambda: (torch.bmm(left, right),),
    )


TRICK = Trick(
    name="batching_small_operators",
    title="Small operators batched",
    what=(
        "Multiplies all pairs of small matrices in one operator. Starting an operator takes microseconds, "
        "in which many small products could be computed."
    ),
    helps="Wherever a Python loop runs the same operator on parts of equal shape.",
    caveat="All parts have to be there at once, and to be of one shape or padded to it.",
    source=(
        "PyTorch documentation, torch.bmm: https://docs.pytorch.org/docs/stable/generated/torch.bmm.html"
    ),
    code="torch.bmm(left, right)",
    size_means="products of 16 x 16 matrices",
    sizes=(8, 64, 512),
    pair=_pair,
    relative_tolerance=1e-4,
    absolute_tolerance=1e-5,
    tolerance_why="Another kernel may add the sixteen products of an element in another order.",
)
