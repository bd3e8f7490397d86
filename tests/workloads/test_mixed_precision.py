"""What is cast follows the precision, and the scaled optimiser counts its steps and skips."""

import pytest
import torch
from torch import Tensor, nn
from workloads.mixed_precision import Precision, ScaledOptimizer, autocast

INPUTS = torch.linspace(-1, 1, 12).reshape(4, 3)


def seeded_linear() -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(3, 2)


def stepped(precision: Precision, *, steps: int) -> nn.Linear:
    """Return the layer after some steps towards outputs of zero."""
    model = seeded_linear()
    optimizer = ScaledOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), device="cpu", precision=precision
    )
    for _ in range(steps):
        with autocast("cpu", precision):
            outputs = model(INPUTS)
        optimizer.step(outputs.float().square().mean())
    return model


@pytest.mark.parametrize(
    ("precision", "dtype"), [("default", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_matrix_products_run_in_the_precision_of_choice(precision: Precision, dtype: torch.dtype) -> None:
    model = seeded_linear()
    with autocast("cpu", precision):
        inside = model(INPUTS)
    assert dtype == inside.dtype
    assert torch.float32 == model(INPUTS).dtype


def test_steps_of_the_default_are_those_of_the_bare_optimizer() -> None:
    by_hand = seeded_linear()
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        by_hand(INPUTS).square().mean().backward()
        optimizer.step()
    assert torch.equal(by_hand.weight, stepped("default", steps=3).weight)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_steps_in_half_precision_stay_near_those_of_the_default(precision: Precision) -> None:
    weight = stepped(precision, steps=3).weight
    assert torch.float32 == weight.dtype
    torch.testing.assert_close(stepped("default", steps=3).weight, weight, rtol=0.02, atol=0.002)


def test_steps_are_skipped_and_counted_until_the_scale_fits() -> None:
    model = seeded_linear()
    optimizer = ScaledOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), device="cpu", precision="fp16")
    skipped = []
    for _ in range(5):
        before = model.weight.detach().clone()
        optimizer.step(overflowing_loss(model))
        skipped.append(torch.equal(before, model.weight))
    assert [True, True, True, False, False] == skipped
    assert (5, 3) == (optimizer.steps, optimizer.skipped)


def overflowing_loss(model: nn.Linear) -> Tensor:
    """Return a loss of one row whose gradient is four for every output, in fp16."""
    with autocast("cpu", "fp16"):
        outputs: Tensor = model(INPUTS[:1])
    return 4 * outputs.float().sum()
