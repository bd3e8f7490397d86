"""Adding up the losses where they are, and reading the sum once."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import SGD

from perfkit.features.tricks.pieces import perceptron, seeded, train_step
from perfkit.features.tricks.trick import Call, Pair, Trick


def _pair(steps: int) -> Pair:
    return Pair(without=_side(steps, _read_each), with_=_side(steps, _read_once))


def _side(steps: int, total: Callable[[Callable[[], Tensor], int], float]) -> Call:
    model = seeded(lambda: perceptron(layers=2, width=64))
    optimizer = SGD(model.parameters(), lr=0.1)
    inputs = seeded(lambda: torch.randn(16, 64))

    def train() -> tuple[Tensor, ...]:
        losses = total(lambda: train_step(model, optimizer, inputs), steps)
        return (torch.tensor(losses, dtype=torch.float64),)

    return train


def _read_each(step: Callable[[], Tensor], steps: int) -> float:
    total = 0.0
    for _ in range(steps):
        total += step().item()
    return total


def _read_once(step: Callable[[], Tensor], steps: int) -> float:
    total = step().double()
    for _ in range(steps - 1):
        total += step()
    return total.item()


TRICK = Trick(
    name="item_per_step",
    title="Losses read once",
    what=(
        "Adds up the losses as tensors and reads the sum at the end. Reading a number with item() makes the "
        "processor wait until the device has computed it, and the device then waits for new work."
    ),
    helps="On a GPU that is given small work step by step.",
    caveat="On a processor nothing is waited for: the sum as a tensor is one more operator a step.",
    source=(
        "PyTorch tutorial, Performance Tuning Guide, Avoid unnecessary CPU-GPU synchronization: "
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
    ),
    code="total += loss.detach()  # after the loop: total.item()",
    size_means="training steps",
    sizes=(5, 20, 80),
    pair=_pair,
    tolerance_why="Both sums are taken in double precision and in the same order.",
)
