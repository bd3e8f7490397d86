"""The whole run on texts learns, repeats by seed, casts as asked, and names a user's mistakes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from workloads.classification import TrainingResult
from workloads.mixed_precision import Precision
from workloads.text_classification.model import EncoderClassifier
from workloads.text_classification.texts import TOPICS, standard_library_texts
from workloads.text_classification.training import (
    InferenceResult,
    Training,
    TrainingConfig,
    infer,
    main,
    summary,
    train,
)

CHANCE = 1 / len(TOPICS)


@pytest.fixture(scope="module")
def few_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of twenty texts each on files and on numbers."""
    folder = tmp_path_factory.mktemp("few")
    documentation = standard_library_texts()
    for name in ("files", "numbers"):
        (folder / name).mkdir()
        label = documentation.classes.index(name)
        members = [
            text
            for text, other in zip(documentation.texts, documentation.labels, strict=True)
            if label == other
        ]
        for number, text in enumerate(members[:20]):
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


def test_training_learns() -> None:
    quick = TrainingConfig(hidden_size=64, max_length=32, learning_rate=2e-3)
    untrained = Training(quick).result()
    trained = train(quick)
    assert untrained.test_accuracy < 2 * CHANCE
    assert trained.test_accuracy > 3 * CHANCE
    assert trained.last_loss < trained.losses[0]


def test_padding_changes_nothing(model: EncoderClassifier) -> None:
    tokens = torch.arange(1, 9)[None]
    mask = torch.ones_like(tokens, dtype=torch.bool)
    padded = nn.functional.pad(tokens, (0, 12))
    logits = model(tokens, mask)
    assert (1, 3) == tuple(logits.shape)
    torch.testing.assert_close(logits, model(padded, padded != 0))
    assert not torch.allclose(logits, model(padded, torch.ones_like(padded, dtype=torch.bool)))


@pytest.mark.parametrize(
    ("precision", "dtype"), [("default", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_linear_layers_run_in_the_precision_of_choice(
    precision: Precision, dtype: torch.dtype, brief: TrainingConfig
) -> None:
    config = replace(brief, precision=precision)
    with linear_types() as types:
        result = train(config)
        infer(config)
    assert {dtype} == types
    assert train(brief).losses == pytest.approx(result.losses, abs=0.02)


@contextmanager
def linear_types() -> Iterator[set[torch.dtype]]:
    """Collect the types that linear layers give, wherever they are."""
    types: set[torch.dtype] = set()

    def collect(module: nn.Module, _inputs: object, output: torch.Tensor) -> None:
        if isinstance(module, nn.Linear):
            types.add(output.dtype)

    handle = register_module_forward_hook(collect)
    yield types
    handle.remove()


def test_losses_repeat_by_seed_with_and_without_workers(brief: TrainingConfig) -> None:
    config = replace(brief, epochs=2)
    losses = train(config).losses
    assert 8 == len(losses)
    assert losses == train(config).losses
    assert losses == train(replace(config, workers=2)).losses
    assert losses != train(replace(config, seed=1)).losses


def test_result_counts_steps_samples_and_times(brief: TrainingConfig) -> None:
    result = train(brief)
    assert (4, 32, 0) == (result.steps, result.samples, result.skipped_steps)
    assert result.steps == len(result.seconds_per_step)
    assert 0 < sum(result.seconds_per_step) <= result.training_s
    assert result.validation_s > 0
    limited = train(replace(brief, batches=3, epochs=2))
    assert (6, 48) == (limited.steps, limited.samples)
    uneven = train(replace(brief, batch_size=20))
    assert (2, 32) == (uneven.steps, uneven.samples)


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "many"], "invalid int value: 'many'"),
        (["--epochs", "0"], "epochs of at least 1, found 0"),
        (["--task", "sleeping"], "invalid choice: 'sleeping'"),
        (["--precision", "int8"], "invalid choice: 'int8'"),
        (["--max-length", "1"], "max_length of at least 2, found 1"),
        (["--hidden-size", "30", "--heads", "4"], "hidden_size that 4 heads can share evenly, found 30"),
        (["--learning-rate", "0"], "learning_rate above 0, found 0.0"),
        (["--weight-decay", "-1"], "weight_decay of at least 0, found -1.0"),
        (["--data", "/nowhere"], "/nowhere: expected a folder"),
    ],
)
def test_mistakes_of_the_user_give_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in line_of_mistake(arguments, capsys)


def line_of_mistake(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the only line that main writes before it ends with status 2."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert 2 == caught.value.code
    (line,) = capsys.readouterr().err.splitlines()
    return line
