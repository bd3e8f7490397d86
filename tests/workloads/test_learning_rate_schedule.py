"""The learning rate rises and falls as documented, and the optimiser has it."""

import pytest
import torch
from workloads.image_classification.schedule import learning_rate_share, warmup_cosine


def shares(*, warmup_steps: int, steps: int) -> list[float]:
    """Return the shares of all steps of a run, and of the one after it."""
    return [learning_rate_share(step, warmup_steps=warmup_steps, steps=steps) for step in range(steps + 1)]


def test_rate_rises_linearly_and_falls_by_half_a_cosine() -> None:
    """The last step of the rise has the full rate; half the fall later it is half, at the end zero."""
    whole = shares(warmup_steps=4, steps=12)
    assert [0.25, 0.5, 0.75, 1] == whole[:4]
    assert pytest.approx([1, 0.853553, 0.5, 0.146447, 0], abs=1e-6) == whole[4::2]


def test_without_a_rise_the_first_step_has_the_full_rate() -> None:
    """The fall begins at once."""
    assert pytest.approx([1, 0.5, 0]) == shares(warmup_steps=0, steps=2)


def test_rise_may_take_the_whole_run() -> None:
    """There is no fall, and no division by its length."""
    assert [0.5, 1, 0] == shares(warmup_steps=2, steps=2)


def test_optimiser_has_the_rate_of_its_step() -> None:
    """Each step of the schedule sets the rate of the next update, in parts of the full one."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
    schedule = warmup_cosine(optimizer, warmup_steps=2, steps=4)
    rates = []
    for _ in range(4):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert pytest.approx([0.2, 0.4, 0.4, 0.2]) == rates
    assert optimizer.param_groups[0]["lr"] == 0
