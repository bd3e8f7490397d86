"""A loop that goes on by one step at each call."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim import SGD

from perfkit.experiments.tricks.loops import using
from perfkit.experiments.tricks.stepping import Stepper


def _loop(seen: list[str], *, steps: int = 3, optimizers: int = 1) -> Callable[[], None]:
    def run() -> None:
        seen.append("begin")
        model = nn.Linear(2, 1)
        made = [SGD(model.parameters(), lr=0.1) for _ in range(optimizers)]
        for step in range(steps):
            model(torch.ones(1, 2)).sum().backward()
            seen.append(f"step {step}")
            for optimizer in made:
                optimizer.step()
        seen.append("end")

    return run


def test_a_call_is_a_step() -> None:
    """Nothing runs before the first, and between two of them the loop rests."""
    seen: list[str] = []
    step = Stepper(_loop(seen))

    assert [] == seen
    step()
    assert ["begin", "step 0"] == seen
    step()
    assert ["begin", "step 0", "step 1"] == seen


def test_a_loop_that_has_ended_begins_anew() -> None:
    """As often as it is asked."""
    seen: list[str] = []
    step = Stepper(_loop(seen, steps=2))
    for _ in range(5):
        step()

    assert 3 == seen.count("begin")
    assert 2 == seen.count("end")
    assert "step 0" == seen[-1]


def test_a_second_optimizer_makes_no_second_step() -> None:
    """As of a generator and its discriminator."""
    seen: list[str] = []
    step = Stepper(_loop(seen, optimizers=2))
    step()
    step()

    assert ["begin", "step 0", "step 1"] == seen


def test_what_the_loop_raises_reaches_whoever_asks_for_a_step() -> None:
    """Each time."""

    def run() -> None:
        raise KeyError("broken")

    step = Stepper(run)
    for _ in range(2):
        with pytest.raises(KeyError, match="broken"):
            step()


def test_a_loop_without_steps_is_told() -> None:
    """Rather than waited for."""
    with pytest.raises(ValueError, match="expected a loop that takes steps of an optimizer"):
        Stepper(lambda: None)()


def test_other_steps_of_the_process_are_none_of_its_business() -> None:
    """Those of whoever asks, say."""
    seen: list[str] = []
    step = Stepper(_loop(seen))
    step()
    _loop([])()
    step()

    assert ["begin", "step 0", "step 1"] == seen
    assert threading.current_thread() is threading.main_thread()


def test_a_trick_reaches_the_loop() -> None:
    """Settings of torch that are a thread's own among them."""
    threads: list[int] = []

    def run() -> None:
        threads.append(torch.get_num_threads())
        _loop([])()

    before = torch.get_num_threads()
    with using(("one_thread",)):
        Stepper(run)()
    Stepper(run)()

    assert [1, before] == threads
