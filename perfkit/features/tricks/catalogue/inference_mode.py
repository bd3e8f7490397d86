"""Evaluation without a graph, and without the bookkeeping of views and versions."""

import torch

from perfkit.features.tricks.evaluation import evaluation
from perfkit.features.tricks.trick import Pair, Trick

TRICK = Trick(
    name="inference_mode",
    title="Inference mode in evaluation",
    what=(
        "Within torch.inference_mode() operators record nothing for a backward pass, as under no_grad(), "
        "and tensors keep no count of their changes and views no track of their base."
    ),
    helps="In evaluation and inference with many small operators, whose overhead is most of the time.",
    caveat="Outside, its tensors can neither be changed in place nor be saved for a backward pass.",
    source=(
        "PyTorch documentation, inference_mode: "
        "https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad_mode.inference_mode.html"
    ),
    code="with torch.inference_mode(): outputs = model(inputs)",
    size_means="rows in a batch",
    sizes=(1, 16, 256),
    pair=lambda rows: Pair(
        without=evaluation(rows, torch.enable_grad), with_=evaluation(rows, torch.inference_mode)
    ),
    tolerance_why="The same operators run on the same values.",
)
