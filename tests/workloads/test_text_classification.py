"""Texts are read and batched; a transformer trained on them learns, repeats by seed and names errors."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from workloads.classification import TrainingResult
from workloads.text_classification.model import EncoderClassifier
from workloads.text_classification.texts import LabelledTexts, standard_library_texts
from workloads.text_classification.training import (
    InferenceResult,
    Training,
    TrainingConfig,
    infer,
    main,
    summary,
    train,
)

CHANCE = 0.5


@pytest.fixture(scope="module")
def documentation() -> LabelledTexts:
    """Return the standard library's documentation, read once for this module."""
    return standard_library_texts()


@pytest.fixture(scope="module")
def few_texts(documentation: LabelledTexts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of twenty texts each on files and on numbers."""
    return _texts(documentation, tmp_path_factory.mktemp("few"), 20)


def _texts(documentation: LabelledTexts, folder: Path, count: int) -> Path:
    for name in ("files", "numbers"):
        (folder / name).mkdir()
        label = documentation.classes.index(name)
        members = [
            text
            for text, other in zip(documentation.texts, documentation.labels, strict=True)
            if label == other
        ]
        for number, text in enumerate(members[:count]):
            (folder / name / f"{number:02d}.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def brief(few_texts: Path) -> TrainingConfig:
    """Return a training of four steps with eight short texts each, and a small encoder."""
    return TrainingConfig(data=few_texts, batch_size=8, hidden_size=32, max_length=16)


@pytest.fixture(scope="module")
def model() -> EncoderClassifier:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return EncoderClassifier(
            vocabulary=50, classes=3, hidden_size=32, layers=2, heads=2, max_length=20
        ).eval()


def test_training_learns(documentation: LabelledTexts, brief: TrainingConfig, tmp_path: Path) -> None:
    quick = replace(brief, data=_texts(documentation, tmp_path, 60), learning_rate=4e-3, epochs=4)
    untrained = Training(quick).result()
    trained = train(quick)
    assert untrained.test_accuracy < 1.5 * CHANCE
    assert trained.test_accuracy > 1.7 * CHANCE
    assert trained.last_loss < trained.losses[0] / 2


def test_losses_repeat_by_seed_with_and_without_workers(brief: TrainingConfig) -> None:
    losses = train(brief).losses
    assert 4 == len(losses)
    assert losses == train(brief).losses
    assert losses == train(replace(brief, workers=2)).losses
    assert losses != train(replace(brief, seed=1)).losses


def test_trained_inference_predicts_what_training_measured(brief: TrainingConfig) -> None:
    config = replace(brief, epochs=3, trained=True)
    once, twice = infer(config), infer(replace(config, repeats=2))
    assert train(config).test_accuracy == once.test_accuracy == twice.test_accuracy
    assert once.predictions == twice.predictions
    assert (1, 8) == (once.steps, once.samples)
    assert (2, 16) == (twice.steps, twice.samples)
    assert sum(twice.seconds_per_batch) == twice.inference_s


def test_main_runs_as_the_command_line_states(few_texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--data", str(few_texts), "--hidden-size", "32", "--batch-size", "8", "--precision", "bf16"]
    monkeypatch.setattr("sys.argv", ["program", *arguments])
    trained = main()
    assert isinstance(trained, TrainingResult)
    assert summary(trained).startswith("4 steps (0 skipped), 32 texts; ")
    monkeypatch.setattr("sys.argv", ["program", *arguments, "--task", "inference", "--repeats", "3"])
    classified = main()
    assert isinstance(classified, InferenceResult)
    assert summary(classified).startswith("3 batches, 24 texts; ")
