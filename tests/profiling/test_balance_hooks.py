"""The phases and steps of loops that are unlike most: public training scripts in miniature."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import nn

from perfkit.agent.training import StepEnds
from perfkit.profiling.passes.balance import PhaseClock, hook_libraries, hook_torch


class Stopwatch:
    """Lets time pass, and knows how much."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wait(self) -> None:
        """Let some time pass."""
        begun = time.perf_counter()
        time.sleep(0.02)
        self.seconds += time.perf_counter() - begun


@pytest.fixture
def watch() -> Stopwatch:
    """Return a stopwatch for the part of a step that is of interest."""
    return Stopwatch()


def _phases(train: Callable[[], object]) -> dict[str, float]:
    clock = PhaseClock()
    with hook_torch(clock):
        libraries = hook_libraries(clock)
        clock.start_step()
        train()
        clock.end_step()
        libraries.undo()
    found = clock.balance()
    seconds = {phase.name: phase.seconds[0] for phase in found.phases}
    return seconds | {"residual": found.residual_s[0]}


def test_a_module_whose_forward_is_called_by_name_is_forward(watch: Stopwatch) -> None:
    class Layer(nn.Linear):
        """A layer that trains itself."""

        relu = nn.ReLU()

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            watch.wait()
            return self.relu(torch.mm(batch, self.weight.T) + self.bias)  # type: ignore[no-any-return]

    layer, batch = Layer(4, 4), torch.rand(8, 4)
    method = Layer.forward

    def train() -> None:
        # This is seen from the first call on that has shown it.
        layer.forward(batch)
        watch.seconds = 0.0
        good, bad = layer.forward(batch), layer.forward(batch)
        (good - bad).exp().mean().backward()  # type: ignore[no-untyped-call]

    found = _phases(train)

    assert found["forward"] >= watch.seconds
    assert found["loss"] < watch.seconds
    assert method is Layer.forward


def test_what_follows_a_metric_is_no_loss(watch: Stopwatch) -> None:
    class Accuracy(nn.Module):
        """A metric that is a module."""

        def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return (logits.argmax(1) == labels).float().mean()

    model, accuracy = nn.Linear(4, 2), Accuracy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    labels = torch.zeros(8, dtype=torch.long)

    def train() -> None:
        logits = model(torch.rand(8, 4))
        loss = nn.functional.cross_entropy(logits, labels)
        accuracy(logits.softmax(1), labels)
        watch.wait()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    found = _phases(train)

    assert 0.0 < found["loss"] < watch.seconds <= found["residual"]


def test_a_loss_begins_after_the_turn_of_an_environment(
    watch: Stopwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Env:
        """The base class of the library."""

    class Pole(Env):
        """An environment."""

        def step(self, action: int) -> float:
            watch.wait()
            return float(action)

    library = ModuleType("gymnasium.core")
    vars(library)["Env"] = Env
    monkeypatch.setitem(sys.modules, library.__name__, library)
    policy, env = nn.Linear(4, 2), Pole()
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)

    def train() -> None:
        scores, rewards = [], []
        for _ in range(3):
            found = policy(torch.rand(4)).log_softmax(0)
            action = found.argmax()
            scores.append(found[action])
            rewards.append(env.step(action.item()))
        returns = [reward - sum(rewards) for reward in rewards]
        parts = [-score * reward for score, reward in zip(scores, returns, strict=True)]
        optimizer.zero_grad()
        torch.stack(parts).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    found = _phases(train)

    assert found["environment"] >= watch.seconds
    assert 0.0 < found["loss"] < watch.seconds / 3


def test_what_a_wrapped_optimizer_does_around_the_step_is_optimizer(watch: Stopwatch) -> None:
    class Wrapped(torch.optim.Optimizer):
        """An optimizer around another one."""

        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer

        def step(self) -> None:  # type: ignore[override]
            watch.wait()
            self.optimizer.step()

    model = nn.Linear(4, 2)
    optimizer = Wrapped(torch.optim.SGD(model.parameters(), lr=0.1))

    def train() -> None:
        model(torch.rand(8, 4)).mean().backward()
        optimizer.step()

    assert _phases(train)["optimizer"] >= watch.seconds


class Optimizer:
    """What steps."""


@pytest.mark.parametrize(
    ("order", "steps"),
    [
        pytest.param("ABABABAB", 4, id="two in a step"),
        pytest.param("AAAABBBB", 8, id="layer by layer"),
        pytest.param("AAAAABAAAAABAAAAA", 15, id="one in five"),
    ],
)
def test_without_batches_an_optimizer_that_repeats_ends_each_step(order: str, steps: int) -> None:
    found: list[str] = []
    ends = StepEnds(lambda: found.append("end"), lambda: found.append("extended"))
    optimizers = {name: Optimizer() for name in set(order)}
    for name in order:
        ends.begin_update(optimizers[name])
        ends.end_update(optimizers[name])

    assert found.count("end") == steps
