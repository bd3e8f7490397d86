"""Steps of a training that runs anyway are timed, watched and counted, and torch is left as it was."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from perfkit.errors import UsageError
from perfkit.profiling.passes import balance as clock
from perfkit.profiling.passes.training import StepPlan, TrainingSteps

HOOKED = [
    (nn.Module, "__call__"),
    (torch.Tensor, "backward"),
    (torch.Tensor, "to"),
    (torch.Tensor, "item"),
    (nn.functional, "mse_loss"),
    (torch.no_grad, "__enter__"),
    (DataLoader, "__iter__"),
]


class Loop:
    """A small training loop whose forward pass takes 2 ms of the processor's time."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.model.register_forward_hook(lambda *_: _spend(0.002))
        self.batches = self._batches()

    def step(self) -> None:
        """Make a step."""
        values, goals = next(self.batches)
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.model(values), goals).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def _batches(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            yield from DataLoader(TensorDataset(torch.ones(64, 4), torch.ones(64, 1)), batch_size=8)


def _spend(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def _follow(plan: StepPlan, steps: int) -> TrainingSteps:
    loop, followed = Loop(), TrainingSteps(plan, Path.cwd())
    followed.begin()
    for _ in range(steps):
        loop.step()
        followed.end_step()
    followed.end()
    return followed


def _hooked() -> list[object]:
    return [getattr(owner, name) for owner, name in HOOKED]


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a clock that is set by hand: its only entry is the present second."""
    now = [0.0]
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return now


@pytest.mark.parametrize("wrong", [{"warmup": -1}, {"steps": 0}, {"balance": -2}])
def test_a_plan_that_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(wrong))} is a number of steps"):
        StepPlan(**wrong)  # type: ignore[arg-type]


def test_each_step_is_used_for_one_thing() -> None:
    """The plan reports how many are timed, and how many others are watched; the phases are found.

    The first step after each of the ten switches is reported of neither.
    """
    found = _follow(StepPlan(warmup=2, steps=30, balance=25), 80).findings()

    assert (30, 67) == (len(found.step_s), found.seen)
    balance = found.balance
    assert balance is not None
    assert 25 == len(balance.step_s)
    assert {"data wait", "forward", "loss", "backward", "optimizer"} <= {one.name for one in balance.phases}
    forward = next(one for one in balance.phases if one.name == "forward")
    assert min(forward.seconds) >= 0.002
    assert balance.cost is not None
    assert 5 == balance.cost.pairs


def test_torch_is_left_as_it_was() -> None:
    before = _hooked()
    loop, followed = Loop(), TrainingSteps(StepPlan(warmup=0, steps=1, balance=9), Path.cwd())
    followed.begin()
    loop.step()
    followed.end_step()
    within = _hooked()
    followed.end()

    assert not set(map(id, before)) & set(map(id, within))
    assert before == _hooked()


def test_counts_are_those_of_the_loop() -> None:
    found = _follow(StepPlan(warmup=1, steps=3, balance=0, counts=True), 8).findings()

    assert found.counts is not None
    assert found.uncounted is None
    counts = {count.metric: count for count in found.counts.counts}
    assert counts["operators"].exact
    assert 2 == len(counts["operators"].values)
    assert found.counts.training


def test_a_validation_between_counted_steps_has_them_counted_anew() -> None:
    loop, followed = Loop(), TrainingSteps(StepPlan(warmup=0, steps=3, balance=0, counts=True), Path.cwd())
    followed.begin()
    loop.step()
    followed.end_step()
    followed.pause()
    torch.ones(3).add(1)
    followed.resume()
    for _ in range(9):
        loop.step()
        followed.end_step()
    undisturbed = _follow(StepPlan(warmup=0, steps=3, balance=0, counts=True), 8).findings()

    found = followed.findings()
    assert found.counts is not None
    assert undisturbed.counts is not None
    assert undisturbed.counts.counts[0].values == found.counts.counts[0].values


def test_counts_that_are_always_disturbed_are_given_up_with_the_reason() -> None:
    followed = TrainingSteps(StepPlan(warmup=0, steps=3, balance=0, counts=True), Path.cwd())
    followed.begin()
    for _ in range(7):
        followed.restart_step()
        followed.end_step()

    found = followed.findings()
    assert found.counts is None
    assert "a validation or a checkpoint came between the steps that were counted" == found.uncounted
    assert 3 == len(found.step_s)


def test_pauses_and_what_came_before_a_restart_are_in_no_step(hand: list[float]) -> None:
    followed = TrainingSteps(StepPlan(warmup=0, steps=3, balance=0), Path.cwd())
    followed.begin()
    hand[0] += 1
    followed.pause()
    followed.pause()
    hand[0] += 100
    followed.resume()
    followed.resume()
    followed.end_step()
    hand[0] += 100
    followed.restart_step()
    hand[0] += 2
    followed.end_step()
    hand[0] += 3
    followed.end_step()

    found = followed.findings()
    assert ((1.0, 2.0, 3.0), 3) == (found.step_s, found.seen)
    assert followed.is_over


def test_a_turn_that_begins_in_a_pause_begins_paused(hand: list[float]) -> None:
    followed = TrainingSteps(StepPlan(warmup=1, steps=1, balance=0), Path.cwd())
    followed.begin()
    followed.pause()
    followed.end_step()
    hand[0] += 100
    followed.resume()
    hand[0] += 1
    followed.end_step()

    assert (1.0,) == followed.findings().step_s


def test_a_forked_worker_logs_nothing() -> None:
    loop, followed = Loop(), TrainingSteps(StepPlan(warmup=0, steps=1, balance=9), Path.cwd())
    followed.begin()
    for _ in range(2):
        loop.step()
        followed.end_step()
    child = os.fork()
    if not child:
        turn = followed._turn
        before = len(turn._clock._changes)  # type: ignore[union-attr]
        torch.ones(1).item()
        os._exit(len(turn._clock._changes) - before)  # type: ignore[union-attr]
    _, status = os.waitpid(child, 0)
    followed.end()

    assert 0 == os.waitstatus_to_exitcode(status)
