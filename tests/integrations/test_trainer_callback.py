"""The callback for the Trainer of transformers files the steps of a real training of a tiny model."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from repositories import Repository

from perfkit.ledger.store import Ledger

pytest.importorskip("accelerate", reason="the Trainer needs accelerate")
transformers: Any = pytest.importorskip("transformers")
LEDGER = Path("benchmarks/ledger")


@pytest.fixture(autouse=True)
def _project(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.commit({"pyproject.toml": "", ".gitignore": "out\n"})
    monkeypatch.chdir(repository.root)


def _trainer(callback: Any, **settings: Any) -> Any:  # noqa: ANN401 (the library's own)
    """Return a Trainer of a model that is built from its configuration: nothing is downloaded."""
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=16, **shape)
    rows = [{"input_ids": torch.arange(8), "labels": torch.tensor(row % 2)} for row in range(64)]
    arguments = transformers.TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=4,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **settings,
    )
    return transformers.Trainer(
        model=transformers.BertForSequenceClassification(config),
        args=arguments,
        train_dataset=rows,
        eval_dataset=rows[:8],
        callbacks=[callback],
    )


def _callback(**settings: Any) -> Any:  # noqa: ANN401 (settings of all kinds)
    return importlib.import_module("perfkit.integrations.transformers").PerfkitCallback(**settings)


def test_a_training_with_evaluations_checkpoints_and_accumulated_gradients(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trainer = _trainer(
        _callback(warmup=2, steps=12, balance=10, counts=True),
        max_steps=50,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=6,
        save_steps=15,
    )

    trainer.train()

    rows = {row.outcome.metric.name: row for row in Ledger(LEDGER).rows()}
    assert {"time", "step_time", "time in forward", "time in backward", "operators"} <= rows.keys()
    assert 12 == len(rows["step_time"].outcome.values)
    assert "time in evaluation" not in rows
    benchmark = rows["time"].outcome.benchmark
    assert "training:BertForSequenceClassification" == benchmark.name
    assert {"accumulate": "2", "batch": "4", "precision": "32", "ranks": "1"} == benchmark.params
    (shown,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("perfkit: ")]
    assert shown.endswith(f"-> run {rows['time'].run_id[-8:]} of the ledger")


def test_a_training_that_is_too_short_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = _trainer(_callback(name="mine"), max_steps=5, save_strategy="no")

    trainer.train()

    assert 5 == trainer.state.global_step
    shown = [line for line in capsys.readouterr().err.splitlines() if line.startswith("perfkit: ")]
    assert 1 == len(shown)
    assert "nothing was filed of training:mine: it made 5 steps" in shown[0]
