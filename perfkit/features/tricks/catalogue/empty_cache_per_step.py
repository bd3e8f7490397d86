"""Clearing the cache of device memory before each step."""

import torch
from torch import Tensor
from torch.optim import SGD

from perfkit.features.tricks.pieces import parameters, perceptron, seeded, train_step
from perfkit.features.tricks.trick import Call, Pair, Trick


def _pair(steps: int) -> Pair:
    return Pair(without=_side(steps, clearing=False), with_=_side(steps, clearing=True))


def _side(steps: int, *, clearing: bool) -> Call:
    model = seeded(lambda: perceptron(layers=4, width=512)).to("cuda")
    optimizer = SGD(model.parameters(), lr=0.1)
    inputs = seeded(lambda: torch.randn(256, 512)).to("cuda")

    def train() -> tuple[Tensor, ...]:
        for _ in range(steps):
            if clearing:
                _clear()
            train_step(model, optimizer, inputs)
        torch.cuda.synchronize()
        return parameters(model)

    return train


def _clear() -> None:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()


TRICK = Trick(
    name="empty_cache_per_step",
    title="Cache cleared every step",
    what=(
        "Gives unused device memory back, starts the count of its peak anew and waits for the device, before "
        "each step. It is said to keep memory free; the next step has to ask the driver for it again."
    ),
    helps="Where another process needs the memory, or a measurement a clean start.",
    caveat="It frees no memory that a tensor holds, and torch itself has no more memory to use than before.",
    source=(
        "PyTorch documentation, empty_cache: "
        "https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.empty_cache.html"
    ),
    code="torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats(); torch.cuda.synchronize()",
    size_means="training steps",
    sizes=(5, 20, 80),
    pair=_pair,
    relative_tolerance=1e-5,
    absolute_tolerance=1e-6,
    tolerance_why="The same kernels run, of which some may add in any order.",
    needs="cuda",
)
