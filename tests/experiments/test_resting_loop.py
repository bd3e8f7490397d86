"""A loop that rests after its first step and at its end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim import SGD

from perfkit.experiments.tricks.loops import using
from perfkit.experiments.tricks.resting_loop import RestingLoop


def _loop(seen: list[str], *, steps: int = 3) -> Callable[[], None]:
    def run() -> None:
        seen.append("begin")
        model = nn.Linear(2, 1)
        optimizer = SGD(model.parameters(), lr=0.1)
        for step in range(steps):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            seen.append(f"step {step}")
        seen.append("end")

    return run


def test_the_loop_rests_after_its_first_step_and_at_its_end() -> None:
    """Nothing of it runs before it is asked for; then it can begin anew."""
    seen: list[str] = []
    loop = RestingLoop(_loop(seen))

    assert [] == seen
    loop.begin()
    assert ["begin"] == seen
    loop.finish()
    assert ["begin", "step 0", "step 1", "step 2", "end"] == seen
    loop.begin()
    assert ["end", "begin"] == seen[-2:]
    loop.finish()
    assert 2 == seen.count("end")


def test_what_the_loop_raises_reaches_whoever_lets_it_go_on() -> None:
    """Each time."""

    def run() -> None:
        raise KeyError("broken")

    loop = RestingLoop(run)
    for go_on in (loop.begin, loop.finish):
        with pytest.raises(KeyError, match="broken"):
            go_on()


@pytest.mark.parametrize("steps", [0, 1])
def test_a_loop_of_too_few_steps_is_told(steps: int) -> None:
    """Rather than waited for."""

    def run_all() -> None:
        loop = RestingLoop(_loop([], steps=steps))
        loop.begin()
        loop.finish()

    with pytest.raises(ValueError, match=f"at least two optimizer steps, found {steps}"):
        run_all()


def test_other_steps_of_the_process_are_none_of_its_business() -> None:
    """Those of whoever waits, say."""
    seen: list[str] = []
    loop = RestingLoop(_loop(seen))
    _loop([])()
    loop.begin()
    _loop([])()

    assert ["begin"] == seen


def test_a_trick_reaches_the_loop() -> None:
    """Settings of torch that are a thread's own among them."""
    threads: list[int] = []

    def run() -> None:
        threads.append(torch.get_num_threads())
        _loop([])()

    before = torch.get_num_threads()
    with using(("one_thread",)):
        RestingLoop(run).begin()
    RestingLoop(run).begin()

    assert [1, before] == threads
