"""Dropping the gradients of the last step instead of overwriting them with zeros."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from perfkit.features.tricks.pieces import parameters, perceptron, seeded
from perfkit.features.tricks.switches import Used, replaced
from perfkit.features.tricks.trick import Call, Pair, Trick


def _pair(layers: int) -> Pair:
    return Pair(without=_side(layers, set_to_none=False), with_=_side(layers, set_to_none=True))


def _side(layers: int, *, set_to_none: bool) -> Call:
    model = seeded(lambda: perceptron(layers=layers, width=128))
    optimizer = SGD(model.parameters(), lr=0.1)
    inputs = seeded(lambda: torch.randn(16, 128))

    def step() -> tuple[Tensor, ...]:
        optimizer.zero_grad(set_to_none=set_to_none)
        model(inputs).square().mean().backward()
        optimizer.step()
        return parameters(model)

    return step


@contextmanager
def _in_every_loop() -> Iterator[Used]:
    used = Used()
    with (
        replaced(Optimizer, "zero_grad", _dropping(Optimizer.zero_grad, used)),
        replaced(nn.Module, "zero_grad", _dropping(nn.Module.zero_grad, used)),
    ):
        yield used


def _dropping(zero_grad: Callable[..., None], used: Used) -> Callable[..., None]:
    def drop(self: object, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002 (torch's own signature)
        if not set_to_none:
            used.note()
        zero_grad(self, set_to_none=True)

    return drop


TRICK = Trick(
    name="zero_grad_set_to_none",
    title="Gradients set to none",
    what=(
        "Drops the gradients before a step instead of filling them with zeros. The backward pass then puts "
        "its results in their place, where it would otherwise read the zeros and add to them."
    ),
    helps="With many or large parameters; it is what zero_grad() does unless told otherwise.",
    caveat="A parameter that a step does not reach has no gradient then, and the optimiser skips it.",
    source=(
        "PyTorch documentation, Optimizer.zero_grad: "
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html"
    ),
    code="optimizer.zero_grad(set_to_none=True)",
    size_means="layers of 128 x 128",
    sizes=(4, 16, 64),
    pair=_pair,
    tolerance_why="A gradient added to zero is that gradient.",
    on_loop=_in_every_loop,
)
