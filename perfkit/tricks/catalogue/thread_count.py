"""All of the processor's threads for one operator."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import gelu

from perfkit.tricks.pieces import seeded
from perfkit.tricks.trick import Call, Pair, Trick


def _pair(side: int) -> Pair:
    return Pair(without=_side(side, threads=1), with_=_side(side, threads=_allowed()))


def _side(side: int, *, threads: int) -> Call:
    left, right = seeded(lambda: (torch.randn(side, side), torch.randn(side, side) / side**0.5))

    def compute() -> tuple[Tensor, ...]:
        with _threads(threads):
            return (gelu(left @ right),)

    return compute


def _allowed() -> int:
    """Return the processors that this process may run on, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _threads(count: int) -> Iterator[None]:
    former = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(former)


TRICK = Trick(
    name="thread_count",
    title="All threads",
    what=(
        "Divides the work of one operator among as many threads as the process may use processors, instead "
        "of leaving it to one."
    ),
    helps="With large tensors on a processor that has nothing else to do.",
    caveat="Small operators wait longer for the threads than they save, the more so beside other processes.",
    source=(
        "PyTorch documentation, set_num_threads: "
        "https://docs.pytorch.org/docs/stable/generated/torch.set_num_threads.html"
    ),
    size_means="rows and columns of a matrix",
    sizes=(64, 512, 1024),
    pair=_pair,
    relative_tolerance=1e-4,
    absolute_tolerance=1e-5,
    tolerance_why="Divided among threads, sums may be taken in another order.",
    on_loop=lambda: _threads(_allowed()),
)
