"""Phases are found in loops that pass a step to the optimizer as a closure, themselves or by a library."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from pass_specs import pass_spec

from perfkit.model import Balance
from perfkit.profiling.passes.launch import PassLauncher, run_pass

STEPS = 8
PARTS = f"""
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class Busy(torch.autograd.Function):
    '''Takes 4 ms there and 4 ms back, far more than the rest of a step.'''

    @staticmethod
    def forward(context, values):
        spend(0.004)
        return values.clone()

    @staticmethod
    def backward(context, gradient):
        spend(0.004)
        return gradient


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, values):
        return Busy.apply(self.linear(values))


def spend(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def parts():
    torch.manual_seed(0)
    rows = torch.randn({STEPS} * 2, 4)
    return Net(), DataLoader(TensorDataset(rows, rows.sum(1, keepdim=True)), batch_size=2)
"""
LBFGS = """
from parts import functional, parts, torch

def main():
    model, loader = parts()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
    for inputs, wanted in loader:
        def closure():
            optimizer.zero_grad()
            loss = functional.mse_loss(model(inputs), wanted)
            loss.backward()
            return loss
        optimizer.step(closure)
"""
# As Lightning's automatic optimisation does: a partial, by name, which holds all of the training step.
AUTOMATIC = """
import functools
from parts import functional, parts, spend, torch

def training_step(model, optimizer, batch):
    inputs, wanted = batch
    loss = functional.mse_loss(model(inputs), wanted)
    spend(0.002)  # what no hook sees
    optimizer.zero_grad()
    loss.backward()
    return loss

def main():
    model, loader = parts()
    optimizer = torch.optim.Adam(model.parameters())
    for batch in loader:
        optimizer.step(closure=functools.partial(training_step, model, optimizer, batch))
"""
LIGHTNING = """
import lightning
from parts import functional, parts, torch

class Regression(lightning.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def training_step(self, batch, _):
        inputs, wanted = batch
        return functional.mse_loss(self.model(inputs), wanted)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

def main():
    model, loader = parts()
    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    lightning.Trainer(max_epochs=1, accelerator="cpu", **quiet).fit(Regression(model), loader)
"""
ACCELERATE = """
from accelerate import Accelerator
from parts import functional, parts, torch

def main():
    model, loader = parts()
    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters()), loader)
    for inputs, wanted in loader:
        optimizer.zero_grad()
        accelerator.backward(functional.mse_loss(model(inputs), wanted))
        optimizer.step()
"""
TRAINER = """
from parts import functional, nn, parts
from transformers import Trainer, TrainingArguments

class Regressing(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs, labels):
        return {"loss": functional.mse_loss(self.model(inputs), labels)}

def main():
    model, loader = parts()
    arguments = TrainingArguments(
        output_dir="out", per_device_train_batch_size=2, num_train_epochs=1, report_to=[], use_cpu=True,
        disable_tqdm=True, save_strategy="no", logging_strategy="no",
    )
    rows = [{"inputs": inputs, "labels": wanted} for inputs, wanted in loader.dataset]
    Trainer(model=Regressing(model), args=arguments, train_dataset=rows).train()
"""


def _balance(folder: Path, launcher: PassLauncher, text: str) -> Balance:
    """Make a balance pass of a loop in a process of its own, and return its phases."""
    (folder / "pass").mkdir()
    (folder / "parts.py").write_text(PARTS)
    (folder / "loop.py").write_text(text)
    spec = pass_spec(folder, "loop:main", folder / "pass", name="balance", known_steps=STEPS)
    result = run_pass(spec, lambda _: None, launcher)
    assert result.problem is None, result.problem
    assert result.balance is not None
    return result.balance


def _typical(balance: Balance) -> dict[str, float]:
    """Return the seconds of each phase in a typical step; parts of a step add up to it."""
    for step, whole_s in enumerate(balance.step_s):
        seen_s = sum(phase.seconds[step] for phase in balance.phases)
        assert pytest.approx(whole_s) == seen_s + balance.residual_s[step]
    return {phase.name: statistics.median(phase.seconds) for phase in balance.phases}


@pytest.mark.parametrize(
    ("text", "libraries", "times"),
    [
        pytest.param(LBFGS, (), 2, id="lbfgs"),
        pytest.param(AUTOMATIC, (), 1, id="automatic"),
        pytest.param(LIGHTNING, ("lightning",), 1, id="lightning"),
        pytest.param(ACCELERATE, ("accelerate",), 1, id="accelerate"),
        pytest.param(TRAINER, ("transformers", "accelerate"), 1, id="trainer"),
    ],
)
def test_phases_inside_a_step_are_found(
    tmp_path: Path, launcher: PassLauncher, text: str, libraries: tuple[str, ...], times: int
) -> None:
    for library in libraries:
        pytest.importorskip(library)

    balance = _balance(tmp_path, launcher, text)
    typical = _typical(balance)

    assert STEPS == len(balance.step_s)
    assert min(typical["forward"], typical["backward"]) >= times * 0.004
    assert 0 < typical["optimizer"] < typical["forward"]
    # In a Trainer the model itself computes the loss.
    assert "transformers" in libraries or typical["loss"] > 0
    if text == AUTOMATIC:
        # What no hook sees in a closure is not the optimizer's.
        assert statistics.median(balance.residual_s) >= 0.002 > typical["optimizer"]
