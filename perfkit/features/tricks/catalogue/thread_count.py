"""All of the processor's threads for one operator."""

import torch
from torch import Tensor
from torch.nn.functional import gelu

from perfkit.features.tricks.pieces import seeded
from perfkit.features.tricks.switches import allowed_threads, threads_set_to
from perfkit.features.tricks.trick import Call, Pair, Trick


def _pair(side: int) -> Pair:
    return Pair(without=_side(side, threads=1), with_=_side(side, threads=allowed_threads()))


def _side(side: int, *, threads: int) -> Call:
    left, right = seeded(lambda: (torch.randn(side, side), torch.randn(side, side) / side**0.5))

    def compute() -> tuple[Tensor, ...]:
        with threads_set_to(threads):
            return (gelu(left @ right),)

    return compute


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
    code="torch.set_num_threads(len(os.sched_getaffinity(0)))",
    size_means="rows and columns of a matrix",
    sizes=(64, 512, 1024),
    pair=_pair,
    relative_tolerance=1e-4,
    absolute_tolerance=1e-5,
    tolerance_why="Divided among threads, sums may be taken in another order.",
    excludes=("one_thread",),
    on_loop=lambda: threads_set_to(allowed_threads()),
)
