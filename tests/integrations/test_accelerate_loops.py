"""``perfkit.training`` takes from an Accelerator what it knows of the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from repositories import Repository
from torch.utils.data import DataLoader, TensorDataset

import perfkit
from perfkit.ledger.store import Ledger

accelerate: Any = pytest.importorskip("accelerate")


def test_a_loop_of_accelerate(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.commit({"pyproject.toml": ""})
    monkeypatch.chdir(repository.root)
    accelerator = accelerate.Accelerator(gradient_accumulation_steps=2, cpu=True)
    model = torch.nn.Linear(4, 1)
    rows = TensorDataset(torch.ones(96, 4), torch.ones(96, 1))
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.01), DataLoader(rows, batch_size=8)
    )
    run = perfkit.training("linear", accelerator=accelerator, warmup=1, steps=9, balance=5)

    for _ in range(4):
        for values, goals in run(loader):
            with accelerator.accumulate(model):
                accelerator.backward(torch.nn.functional.mse_loss(model(values), goals))
                optimizer.step()
                optimizer.zero_grad()
    run.finish()

    filed = {row.outcome.metric.name: row.outcome for row in Ledger(Path("benchmarks/ledger")).rows()}
    assert {"time", "step_time", "time in forward", "time in backward"} <= filed.keys()
    assert 9 == len(filed["step_time"].values)
    assert {"accumulate": "2", "batch": "8", "precision": "no", "ranks": "1"} == filed[
        "time"
    ].benchmark.params
