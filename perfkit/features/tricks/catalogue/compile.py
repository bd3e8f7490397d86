"""Small operators joined to one kernel by the compiler."""

import torch
from torch import Tensor

from perfkit.features.tricks.pieces import seeded
from perfkit.features.tricks.trick import Pair, Trick


def _pair(rows: int) -> Pair:
    values = seeded(lambda: torch.randn(rows, 1024))
    compiled = torch.compile(_pointwise, dynamic=False)
    # Compiled here, so that no call of the work compiles.
    compiled(values)
    return Pair(without=lambda: (_pointwise(values),), with_=lambda: (compiled(values),))


def _pointwise(values: Tensor) -> Tensor:
    """Return a bounded function of each value: ten operators that read and write all of them."""
    gate = torch.sigmoid(values * 1.5 + 0.5)
    wave = torch.tanh(values) * torch.cos(values)
    return gate * wave + (1 - gate) * values.clamp(-1, 1)


TRICK = Trick(
    name="compile",
    title="torch.compile",
    what=(
        "Traces the operators and generates one kernel for a chain of them, which reads and writes memory "
        "once, where each operator by itself writes all its results and reads them again."
    ),
    helps="In chains of elementwise operators on large tensors, and where many small operators are started.",
    caveat="Compiling takes seconds, and is done again for shapes and branches not met before.",
    source=(
        "PyTorch tutorial, Introduction to torch.compile: "
        "https://docs.pytorch.org/tutorials/intermediate/torch_compile_tutorial.html"
    ),
    code="model = torch.compile(model)",
    size_means="rows of 1024 values",
    sizes=(16, 256, 1024),
    pair=_pair,
    relative_tolerance=1e-4,
    absolute_tolerance=1e-5,
    tolerance_why="The compiler's own approximations of exp, tanh and cos differ in the last digits.",
    needs="compiler",
)
