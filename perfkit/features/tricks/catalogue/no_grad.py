"""Evaluation without a graph of what was computed."""

import torch

from perfkit.features.tricks.evaluation import evaluation
from perfkit.features.tricks.trick import Pair, Trick

TRICK = Trick(
    name="no_grad",
    title="No gradients in evaluation",
    what=(
        "Within torch.no_grad() operators record nothing for a backward pass: no graph is built, and "
        "intermediate results are freed as soon as the next operator has read them."
    ),
    helps="In evaluation and inference, above all with many small operators or little memory.",
    caveat="It does not switch dropout and batch normalisation to evaluation: model.eval() does.",
    source=(
        "PyTorch documentation, Autograd mechanics, Locally disabling gradient computation: "
        "https://docs.pytorch.org/docs/stable/notes/autograd.html"
    ),
    code="with torch.no_grad(): outputs = model(inputs)",
    size_means="rows in a batch",
    sizes=(1, 16, 256),
    pair=lambda rows: Pair(
        without=evaluation(rows, torch.enable_grad), with_=evaluation(rows, torch.no_grad)
    ),
    tolerance_why="The same operators run on the same values.",
)
