"""Batches in memory from which a GPU fetches them while the processor goes on."""

import torch
from torch import Tensor

from perfkit.features.tricks.pieces import perceptron, seeded
from perfkit.features.tricks.trick import Call, Pair, Trick

_BATCHES = 8
_WIDTH = 1024


def _pair(rows: int) -> Pair:
    return Pair(without=_side(rows, pinned=False), with_=_side(rows, pinned=True))


def _side(rows: int, *, pinned: bool) -> Call:
    model = seeded(lambda: perceptron(layers=4, width=_WIDTH)).to("cuda")
    batches = seeded(lambda: [torch.randn(rows, _WIDTH) for _ in range(_BATCHES)])
    if pinned:
        batches = [batch.pin_memory() for batch in batches]

    def evaluate() -> tuple[Tensor, ...]:
        with torch.no_grad():
            outputs = tuple(model(batch.to("cuda", non_blocking=pinned)).mean() for batch in batches)
        torch.cuda.synchronize()
        return outputs

    return evaluate


TRICK = Trick(
    name="pinned_memory",
    title="Pinned memory, non-blocking",
    what=(
        "Keeps batches in memory that the operating system may not move, so that the device fetches them by "
        "itself and the processor goes on preparing work instead of waiting for each copy."
    ),
    helps="Where batches are large and a loader pins them in a thread of its own.",
    caveat="Pinning takes longer than a plain copy: in the training thread it costs more than it gives.",
    source=(
        "PyTorch tutorial, A guide on good usage of non_blocking and pin_memory(): "
        "https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html"
    ),
    code="DataLoader(dataset, pin_memory=True); images.to(device, non_blocking=True)",
    size_means="rows in a batch",
    sizes=(64, 1024, 8192),
    pair=_pair,
    relative_tolerance=1e-5,
    absolute_tolerance=1e-6,
    tolerance_why="The same kernels run, of which some may add in any order.",
    needs="cuda",
)
