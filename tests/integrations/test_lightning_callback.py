"""The callback for Lightning files the steps of real trainings, without their validations."""

from __future__ import annotations

import importlib
import logging
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from repositories import Repository
from torch.utils.data import DataLoader, TensorDataset

from perfkit.ledger.store import Ledger
from perfkit.model import Row

LEDGER = Path("benchmarks/ledger")


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 (the library)
    """Return Lightning under one of its two names; skip where it is not installed."""
    name = str(request.param)
    library = pytest.importorskip(name)
    for other in {"lightning.pytorch", "pytorch_lightning"} - {name}:
        monkeypatch.delitem(sys.modules, other, raising=False)
    logging.getLogger(name).setLevel(logging.ERROR)
    return library


@pytest.fixture
def callbacks(library: Any) -> Any:  # noqa: ANN401, ARG001 (a module that is imported anew for each library)
    sys.modules.pop("perfkit.integrations.lightning", None)
    return importlib.import_module("perfkit.integrations.lightning")


@pytest.fixture(autouse=True)
def _project(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.commit({"pyproject.toml": "", ".gitignore": "checkpoints\n"})
    monkeypatch.chdir(repository.root)


def _module(library: Any, *, fails_at: int | None = None) -> Any:  # noqa: ANN401 (the library's own)
    class Net(library.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:  # noqa: ANN401 (the library's own)
            if batch_idx == fails_at:
                raise ValueError("the training's own error")
            return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

        def validation_step(self, batch: Any, _: int) -> None:  # noqa: ANN401 (likewise)
            self.log("validation", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]))

        def configure_optimizers(self) -> Any:  # noqa: ANN401 (likewise)
            return torch.optim.SGD(self.parameters(), lr=0.01)

    return Net()


def _data(batches: int) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.ones(batches * 8, 4), torch.ones(batches * 8, 1)), batch_size=8)


def _trainer(library: Any, callback: Any, **settings: Any) -> Any:  # noqa: ANN401 (likewise)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return library.Trainer(accelerator="cpu", callbacks=[callback], **quiet, **settings)


def _rows() -> dict[str, Row]:
    return {row.outcome.metric.name: row for row in Ledger(LEDGER).rows()}


def test_a_training_with_validations_and_accumulated_gradients(
    library: Any,  # noqa: ANN401 (likewise)
    callbacks: Any,  # noqa: ANN401 (likewise)
    capsys: pytest.CaptureFixture[str],
) -> None:
    callback = callbacks.PerfkitCallback(warmup=2, steps=20, balance=10, counts=True)
    trainer = _trainer(
        library,
        callback,
        max_epochs=7,
        accumulate_grad_batches=2,
        val_check_interval=9,
        enable_checkpointing=False,
    )

    trainer.fit(_module(library), _data(20), _data(3))

    rows = _rows()
    assert "time in evaluation" not in rows
    assert {"time", "step_time", "time in forward", "time in backward", "operators"} <= rows.keys()
    assert 20 == len(rows["step_time"].outcome.values)
    benchmark = rows["time"].outcome.benchmark
    assert "training:Net" == benchmark.name
    assert {"accumulate": "2", "batch": "8", "precision": "32-true", "ranks": "1"} == benchmark.params
    assert rows["operators"].outcome.training
    shown = [line for line in capsys.readouterr().err.splitlines() if "perfkit: " in line]
    assert [f"-> run {rows['time'].run_id[-8:]} of the ledger"] == [
        line[line.index("->") :] for line in shown
    ]


def test_checkpoints_cost_no_step(
    library: Any,  # noqa: ANN401 (likewise)
    callbacks: Any,  # noqa: ANN401 (likewise)
) -> None:
    saving = library.callbacks.ModelCheckpoint(every_n_train_steps=4, dirpath="checkpoints")
    trainer = _trainer(library, callbacks.PerfkitCallback(warmup=0, balance=0), max_epochs=1)
    trainer.callbacks.append(saving)

    trainer.fit(_module(library), _data(10))

    assert 10 == len(_rows()["step_time"].outcome.values)


def test_a_training_that_fails_files_what_it_had(
    library: Any,  # noqa: ANN401 (likewise)
    callbacks: Any,  # noqa: ANN401 (likewise)
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = torch.nn.Module.__call__
    callback = callbacks.PerfkitCallback("mine", warmup=0, steps=5, balance=5)
    trainer = _trainer(library, callback, max_epochs=1, enable_checkpointing=False)

    with pytest.raises(ValueError, match="the training's own error"):
        trainer.fit(_module(library, fails_at=7), _data(10))

    assert before is torch.nn.Module.__call__
    assert 5 == len(_rows()["step_time"].outcome.values)
    assert "perfkit: training:mine: 5 steps" in capsys.readouterr().err


def test_without_lightning_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning", "perfkit.integrations.lightning"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def find_nothing(name: str, *_: object) -> types.ModuleType:
        raise ModuleNotFoundError(f"No module named {name}", name=name.partition(".")[0])

    real = importlib.import_module
    monkeypatch.setattr(
        importlib, "import_module", lambda name: real(name) if "perfkit" in name else find_nothing(name)
    )

    with pytest.raises(ModuleNotFoundError, match=r"pip install 'perfkit\[lightning\]'"):
        importlib.import_module("perfkit.integrations.lightning")
