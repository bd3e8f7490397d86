"""Letting cuDNN try its convolution algorithms and keep the fastest."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from perfkit.features.tricks.pieces import convolution_net, outputs_and_gradients, seeded
from perfkit.features.tricks.switches import replaced
from perfkit.features.tricks.trick import Call, Pair, Trick


def _pair(images: int) -> Pair:
    return Pair(without=_side(images, trying=False), with_=_side(images, trying=True))


def _side(images: int, *, trying: bool) -> Call:
    model = seeded(convolution_net).to("cuda")
    inputs = seeded(lambda: torch.randn(images, 3, 64, 64)).to("cuda")

    def convolve() -> tuple[Tensor, ...]:
        with _benchmark(trying=trying):
            results = outputs_and_gradients(model, inputs)
            torch.cuda.synchronize()
        return results

    return convolve


def _benchmark(*, trying: bool) -> AbstractContextManager[Callable[[], bool]]:
    return replaced(torch.backends.cudnn, "benchmark", trying)


TRICK = Trick(
    name="cudnn_benchmark",
    title="cuDNN tries its algorithms",
    what=(
        "Times the algorithms that cuDNN has for a convolution when a shape is first met, and uses the "
        "fastest from then on, instead of one chosen by rules."
    ),
    helps="In convolution nets on a GPU whose images keep their shape.",
    caveat="Each new shape is tried anew, and the choice, with the last digits, may differ between runs.",
    source=(
        "PyTorch tutorial, Performance Tuning Guide, Enable cuDNN auto-tuner: "
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
    ),
    code="torch.backends.cudnn.benchmark = True",
    size_means="images in a batch",
    sizes=(4, 32, 256),
    pair=_pair,
    relative_tolerance=1e-2,
    absolute_tolerance=1e-3,
    tolerance_why="Other algorithms add in another order, and may round their arguments to ten bits.",
    needs="cuda",
    on_loop=lambda: _benchmark(trying=True),
)
