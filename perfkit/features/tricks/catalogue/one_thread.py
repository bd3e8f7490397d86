"""One thread for small operators."""

import torch
from torch import Tensor

from perfkit.features.tricks.pieces import outputs_and_gradients, perceptron, seeded
from perfkit.features.tricks.switches import allowed_threads, threads_set_to
from perfkit.features.tricks.trick import Call, Pair, Trick


def _pair(rows: int) -> Pair:
    return Pair(without=_side(rows, threads=allowed_threads()), with_=_side(rows, threads=1))


def _side(rows: int, *, threads: int) -> Call:
    model = seeded(lambda: perceptron(layers=4, width=128))
    inputs = seeded(lambda: torch.randn(rows, 128))

    def compute() -> tuple[Tensor, ...]:
        with threads_set_to(threads):
            return outputs_and_gradients(model, inputs)

    return compute


TRICK = Trick(
    name="one_thread",
    title="One thread",
    what=(
        "Leaves each operator to the thread that asks for it, instead of dividing it among all. Nobody waits "
        "for anybody, and other processes, such as those that load the data, keep their processors."
    ),
    helps="With small tensors, and where several processes share the machine.",
    caveat="Large operators take as much longer as there are threads left out.",
    source=(
        "PyTorch documentation, CPU threading and TorchScript inference: "
        "https://docs.pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html"
    ),
    code="torch.set_num_threads(1)",
    size_means="rows in a batch",
    sizes=(16, 128, 512),
    pair=_pair,
    relative_tolerance=1e-4,
    absolute_tolerance=1e-5,
    tolerance_why="Divided among threads, sums may be taken in another order.",
    excludes=("thread_count",),
    on_loop=lambda: threads_set_to(1),
)
