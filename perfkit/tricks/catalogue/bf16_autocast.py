"""Forward passes in bfloat16."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from perfkit.tricks.pieces import gradients, perceptron, seeded
from perfkit.tricks.switches import replaced
from perfkit.tricks.trick import Call, Pair, Trick


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
def _in_every_loop() -> Iterator[None]:
    call = nn.Module.__call__
    outermost = True

    def call_casting(self: nn.Module, *args: object, **keywords: object) -> object:
        nonlocal outermost
        if not outermost:
            return call(self, *args, **keywords)
        outermost = False
        try:
            with _casting_everywhere():
                outputs = call(self, *args, **keywords)
            # Not every operator that the loop goes on with exists in bfloat16.
            return tree_map_only(Tensor, _as_single, outputs)
        finally:
            outermost = True

    # Not around the whole loop: the weights' casts are kept until the context ends, and after an update
    # they would be those of the former weights.
    with replaced(nn.Module, "__call__", call_casting):
        yield


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
    size_means="rows in a batch",
    sizes=(16, 128, 512),
    pair=_pair,
    relative_tolerance=2e-2,
    absolute_tolerance=1e-2,
    tolerance_why="Each layer rounds to eight bits, 0.4%, and four layers there and back add up.",
    on_loop=_in_every_loop,
)
