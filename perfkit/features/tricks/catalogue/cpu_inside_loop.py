"""Counting what was right where it is, and moving the count once."""

import torch
from torch import Tensor

from perfkit.features.tricks.pieces import perceptron, seeded
from perfkit.features.tricks.trick import Call, Pair, Trick

_ROWS = 128
_CLASSES = 64


def _pair(batches: int) -> Pair:
    model = seeded(lambda: perceptron(layers=2, width=_CLASSES))
    inputs = seeded(lambda: torch.randn(batches, _ROWS, _CLASSES))
    labels = seeded(lambda: torch.randint(_CLASSES, (batches, _ROWS)))
    return Pair(without=_moved_each(model, inputs, labels), with_=_moved_once(model, inputs, labels))


def _moved_each(model: torch.nn.Module, inputs: Tensor, labels: Tensor) -> Call:
    def count() -> tuple[Tensor, ...]:
        correct = 0
        with torch.no_grad():
            for rows, expected in zip(inputs, labels, strict=True):
                predicted = model(rows).argmax(dim=1).cpu().numpy()
                correct += int((predicted == expected.cpu().numpy()).sum())
        return (torch.tensor(correct),)

    return count


def _moved_once(model: torch.nn.Module, inputs: Tensor, labels: Tensor) -> Call:
    def count() -> tuple[Tensor, ...]:
        correct = torch.zeros((), dtype=torch.int64, device=labels.device)
        with torch.no_grad():
            for rows, expected in zip(inputs, labels, strict=True):
                correct += (model(rows).argmax(dim=1) == expected).sum()
        return (correct.cpu(),)

    return count


TRICK = Trick(
    name="cpu_inside_loop",
    title="Moved to the processor last",
    what=(
        "Compares and counts predictions on their device and moves the one count at the end. Each cpu() "
        "within the loop would wait for the device and move a whole batch."
    ),
    helps="In evaluation on a GPU; where tensors are the processor's anyway, cpu() does nothing.",
    caveat="On a processor NumPy may compare small arrays faster than torch does.",
    source=(
        "PyTorch tutorial, Performance Tuning Guide, Avoid unnecessary CPU-GPU synchronization: "
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
    ),
    code="correct += (outputs.argmax(dim=1) == labels).sum()  # after the loop: correct.cpu()",
    size_means="batches of 128 rows",
    sizes=(5, 20, 80),
    pair=_pair,
    tolerance_why="Both sides count, in whole numbers.",
)
