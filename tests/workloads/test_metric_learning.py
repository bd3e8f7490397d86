"""The whole training run learns, repeats by seed, logs when due, and names a user's mistakes."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from workloads.image_loading import Augmenting
from workloads.images import digits_folder
from workloads.metric_learning.loggers import CompoundLogger, Part
from workloads.metric_learning.sampler import PKSampler
from workloads.metric_learning.training import (
    LossName,
    Training,
    TrainingConfig,
    TrainingResult,
    main,
    summary,
    train,
)

RECALL_LEARNT = 0.85
RECALL_UNLEARNT = 0.75


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_folder(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def quick(digits: Path) -> TrainingConfig:
    """Return a short training with small batches that still learns."""
    return TrainingConfig(data=digits, epochs=3, k=5, logging_every=100_000)


@pytest.fixture(scope="module")
def few_digits(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of fifty zeros, ones and twos each."""
    folder = tmp_path_factory.mktemp("few")
    for name in "012":
        (folder / name).mkdir()
        for path in sorted((digits / name).iterdir())[:50]:
            (folder / name / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def brief(few_digits: Path) -> TrainingConfig:
    """Return a training of four steps with thirty images each, measured on few images."""
    return TrainingConfig(data=few_digits, epochs=1, p=3, k=10, logging_every=60, logging_samples=20)


def test_training_learns(quick: TrainingConfig) -> None:
    assert train(quick).validation_recall_at_1 >= RECALL_LEARNT


def test_untrained_net_stays_below(quick: TrainingConfig) -> None:
    assert Training(quick).result().validation_recall_at_1 < RECALL_UNLEARNT


def test_shuffled_labels_teach_nothing(quick: TrainingConfig) -> None:
    assert train(replace(quick, shuffle_labels=True)).validation_recall_at_1 < RECALL_UNLEARNT


@pytest.mark.parametrize("loss", ["batch-all", "contrastive"])
def test_other_losses_fall(loss: LossName, digits: Path) -> None:
    result = train(TrainingConfig(data=digits, epochs=1, k=4, loss=loss, logging_every=100_000))
    assert all(map(math.isfinite, result.losses))
    assert sum(result.losses[-5:]) < sum(result.losses[:5])


@pytest.mark.parametrize("augmentation", ["lazy", "cached"])
def test_losses_repeat_by_seed_with_and_without_workers(
    augmentation: Augmenting, brief: TrainingConfig
) -> None:
    config = replace(brief, augmentation=augmentation)
    losses = train(config).losses
    assert len(losses) == 4
    assert losses == train(config).losses
    assert losses == train(replace(config, workers=2)).losses
    assert losses != train(replace(config, seed=1)).losses


def test_result_counts_steps_samples_and_readings(brief: TrainingConfig) -> None:
    result = train(brief)
    assert result.steps == len(result.seconds_per_step)
    assert result.steps == 4
    assert result.samples == 120
    assert result.training_s > 0
    assert result.evaluation_s > 0
    assert [60, 120] == sorted({reading.samples for reading in result.readings})
    names = {"loss", "recall_at_1"} | {
        f"{kind}_{value}"
        for kind in ("intracluster", "intercluster")
        for value in ("min", "max", "mean", "sd")
    }
    measured = [(reading.part, reading.name) for reading in result.readings if reading.samples == 60]
    assert sorted((part, name) for part in ("train", "validation") for name in names) == sorted(measured)


def test_loggers_measure_when_a_turn_is_passed() -> None:
    part = Part(name="part", images=torch.rand(6, 4), labels=torch.tensor([0, 0, 1, 1, 2, 2]))
    logger = CompoundLogger([RecordingLogger()], [part], every=10)
    for samples in (6, 6, 6, 25):
        logger.see(nn.Identity(), samples)
    assert [12, 43] == [reading.samples for reading in logger.readings]


class RecordingLogger:
    """Measures nothing but the name."""

    def measure(self, *_: object) -> dict[str, float]:
        """Return a constant."""
        return {"constant": 1.0}


def test_main_trains_as_the_command_line_states(few_digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--data", str(few_digits), "--epochs", "2", "--p", "2", "--k", "20"]
    monkeypatch.setattr("sys.argv", ["program", *arguments])
    result = main()
    assert isinstance(result, TrainingResult)
    assert (4, 160) == (result.steps, result.samples)
    assert summary(result).startswith("4 steps, 160 images; ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "many"], "invalid int value: 'many'"),
        (["--epochs", "0"], "epochs of at least 1, found 0"),
        (["--workers", "-1"], "workers of at least 0, found -1"),
        (["--loss", "hardest"], "invalid choice: 'hardest'"),
        (["--data", "/nowhere"], "/nowhere: expected a folder"),
        (["--p", "11"], "p=11"),
    ],
)
def test_mistakes_of_the_user_give_one_line(
    arguments: list[str], message: str, digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--data", str(digits), *arguments])
    assert 2 == caught.value.code
    lines = capsys.readouterr().err.splitlines()
    assert 1 == len(lines)
    assert message in lines[0]


UNBALANCED = [0] * 9 + [1] * 4 + [2] * 7 + [3] * 2 + [4] * 5


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("p", "k"), [(1, 1), (2, 2), (3, 4), (4, 3)])
def test_batches_hold_k_images_of_p_classes_without_repeats(p: int, k: int, seed: int) -> None:
    batches = list(PKSampler(UNBALANCED, p, k, seed=seed))
    for batch in batches:
        assert [k] * p == list(Counter(UNBALANCED[index] for index in batch).values())
    seen = [index for batch in batches for index in batch]
    assert len(seen) == len(set(seen))


def test_epochs_differ_and_repeat_by_seed() -> None:
    sampler, twin = PKSampler(UNBALANCED, 2, 2, seed=1), PKSampler(UNBALANCED, 2, 2, seed=1)
    first = list(sampler)
    assert first == list(sampler)
    assert first == list(twin)
    sampler.set_epoch(1)
    assert first != list(sampler)
    assert first != list(PKSampler(UNBALANCED, 2, 2, seed=2))


@pytest.mark.parametrize(
    ("p", "k", "message"), [(0, 2, "p=0"), (2, -1, "k=-1"), (6, 1, "found 5"), (2, 8, "found 1")]
)
def test_impossible_batches_are_refused(p: int, k: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PKSampler(UNBALANCED, p, k, seed=0)
