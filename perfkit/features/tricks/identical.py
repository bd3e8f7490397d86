"""A trick that changes nothing: both sides are the same code, so any difference found is an error."""

import torch

from perfkit.features.tricks.pieces import outputs_and_gradients, perceptron, seeded
from perfkit.features.tricks.trick import Call, Pair, Trick


def _side(rows: int) -> Call:
    model = seeded(lambda: perceptron(layers=4, width=128))
    inputs = seeded(lambda: torch.randn(rows, 128))
    return lambda: outputs_and_gradients(model, inputs)


IDENTICAL = Trick(
    name="identical",
    title="The same code twice",
    what="Both sides are one function's, on equal tensors: there is nothing to gain.",
    helps="Never as a trick; it shows whether a comparison finds a difference where there is none.",
    caveat="Tensors of the two sides lie at different addresses, which is no difference of the code.",
    source="None: it is what a comparison is checked with",
    code="",
    size_means="rows in a batch",
    sizes=(16, 128, 512),
    pair=lambda rows: Pair(without=_side(rows), with_=_side(rows)),
    tolerance_why="The same operators on equal values give equal values.",
)
