"""A net evaluated in a context that says whether gradients are recorded."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from perfkit.features.tricks.pieces import perceptron, seeded
from perfkit.features.tricks.trick import Call


def evaluation(rows: int, context: Callable[[], AbstractContextManager[None]]) -> Call:
    """Return a call that evaluates a net of many small layers within the context.

    Its parameters require gradients, as those of a net in training do; the outputs require none.
    """
    model = seeded(lambda: perceptron(layers=16, width=64)).eval()
    inputs = seeded(lambda: torch.randn(rows, 64))

    def evaluate() -> tuple[torch.Tensor, ...]:
        with context():
            outputs = model(inputs)
        return (outputs.detach(),)

    return evaluate
