"""Forward passes in bfloat16."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from perfkit.features.tricks.pieces import gradients, perceptron, seeded
from perfkit.features.tricks.switches import Arguments, Forward, Used, calling
from perfkit.features.tricks.trick import Call, Pair, Trick


def _pair(rows: int) -> Pair:
    return Pair(without=_side(rows, casting=False), with_=_side(rows, casting=True))


def _side(rows: int, *, casting: bool) -> Call:
    model = seeded(lambda: perceptron(layers=4, width=256))
    inputs = seeded(lambda: torch.randn(rows, 256))

    def train() -> tuple[Tensor, ...]:
        model.zero_grad()
        with torch.autocast(inputs.device.type, dtype=torch.bfloat16, enabled=casting):
            outputs = model(inputs)
        # Of an unscaled mean the gradients would be smaller than any tolerance.
        outputs.float().square().sum().backward()
        return outputs.detach().float(), *(gradient / rows for gradient in gradients(model))

    return train


@contextmanager
def _in_every_loop() -> Iterator[Used]:
    used = Used()

    def call_casting(_: nn.Module, call: Forward, arguments: tuple[object, ...], named: Arguments) -> object:
        used.note()
        with _casting_everywhere():
            outputs = call(*arguments, **named)
        # Not every operator that the loop goes on with exists in bfloat16.
        return tree_map_only(Tensor, _as_single, outputs)

    # Not around the whole loop: the weights' casts are kept until the context ends, and after an update
    # they would be those of the former weights.
    with calling(call_casting):
        yield used


@contextmanager
def _casting_everywhere() -> Iterator[None]:
    with ExitStack() as stack:
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            stack.enter_context(torch.autocast(device, dtype=torch.bfloat16))
        yield


def _as_single(output: Tensor) -> Tensor:
    return output.float() if output.dtype == torch.bfloat16 else output


TRICK = Trick(
    name="bf16_autocast",
    title="Autocast to bfloat16",
    what=(
        "Runs matrix products and convolutions of the forward pass in bfloat16, and with it their backward "
        "pass; parameters stay float32. Half the bytes are moved, and units for it compute faster."
    ),
    helps="In large nets on tensor cores, or on processors with bfloat16 units.",
    caveat="Without such units casts are added and nothing is gained; eight bits are few for a loss.",
    source=(
        "PyTorch documentation, Automatic Mixed Precision package: https://docs.pytorch.org/docs/stable/amp.html"
    ),
    code='with torch.autocast("cpu", dtype=torch.bfloat16): loss = criterion(model(images), labels)',
    size_means="rows in a batch",
    sizes=(16, 128, 512),
    pair=_pair,
    relative_tolerance=2e-2,
    absolute_tolerance=1e-2,
    tolerance_why="Each layer rounds to eight bits, 0.4%, and four layers there and back add up.",
    # Normalisation over few rows makes much of little: a small batch's gradients move by tens of percent.
    loop_tolerance=0.5,
    on_loop=_in_every_loop,
)
