"""A benchmark that trains is recognised by its backward pass and its optimizer's step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from counting_code import Own
from torch.optim import optimizer as optimizers

HEAD = """
import torch
from torch.autograd import grad
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters())
class Own(torch.optim.Optimizer):
    def __init__(self):
        super().__init__(model.parameters(), {})
    def step(self):
        pass
own = Own()
def loss():
    return model(torch.ones(2)).sum()
"""


@pytest.mark.parametrize(
    ("body", "training"),
    [
        ("loss().backward(); optimizer.step()", True),
        ("grad(loss(), model.weight); own.step()", True),
        ("torch.autograd.backward(loss()); optimizer.step(); optimizer.zero_grad()", True),
        ("loss().backward()", False),
        ("optimizer.step()", False),
        ("loss()", False),
    ],
)
def test_a_training_step_is_known_by_both(tmp_path: Path, body: str, *, training: bool) -> None:
    engine = vars(torch.autograd)["_engine_run_backward"]
    hooks = dict(vars(optimizers)["_global_optimizer_post_hooks"])

    counts = Own(tmp_path, f"{HEAD}\ndef run():\n    {body}\n").counts()

    assert training == counts.training
    assert engine is vars(torch.autograd)["_engine_run_backward"]
    assert hooks == vars(optimizers)["_global_optimizer_post_hooks"]
