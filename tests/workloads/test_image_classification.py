"""A residual net trained on images learns, repeats by seed, and runs in the precision asked for."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from workloads.image_classification.model import PIXELS_PER_PLACE, ResNet18, Stem
from workloads.image_classification.schedule import learning_rate_share
from workloads.image_classification.training import TrainingConfig, main, summary, train
from workloads.images import digits_folder
from workloads.mixed_precision import Precision

ACCURACY_LEARNT = 0.5  # By chance it is 0.1.


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Leave the other processors to the tests that run meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_folder(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def few_digits(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of ten zeros, ones and twos each."""
    folder = tmp_path_factory.mktemp("few")
    for name in "012":
        (folder / name).mkdir()
        for path in sorted((digits / name).iterdir())[:10]:
            (folder / name / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def brief(few_digits: Path) -> TrainingConfig:
    """Return a training of two steps with eight images each, tested with six."""
    return TrainingConfig(data=few_digits, image_size=8, batch_size=8, batches=2)


@pytest.fixture(scope="module")
def careful(brief: TrainingConfig) -> TrainingConfig:
    """Return a training with so small steps that the losses depend on the arithmetic alone.

    The images' channels come last: without instructions for it, a processor takes seconds longer for
    half precision otherwise.
    """
    return replace(brief, learning_rate=1e-6, channels_last=True)


@pytest.fixture(scope="module")
def careful_losses(careful: TrainingConfig) -> tuple[float, ...]:
    """Return the losses of the careful training in the default precision."""
    return train(careful).losses


def test_training_learns(digits: Path) -> None:
    result = train(TrainingConfig(data=digits, image_size=8, batch_size=16, batches=40))
    assert result.test_accuracy > ACCURACY_LEARNT
    assert result.last_loss < result.losses[0] / 2


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_half_precision_gives_about_the_losses_of_the_default(
    precision: Precision, dtype: torch.dtype, careful: TrainingConfig, careful_losses: tuple[float, ...]
) -> None:
    found: set[torch.dtype] = set()

    def note_dtype(module: nn.Module, _: object, output: Tensor) -> None:
        if isinstance(module, nn.Conv2d):
            found.add(output.dtype)

    with register_module_forward_hook(note_dtype):
        result = train(replace(careful, precision=precision))
    assert {dtype} == found
    assert pytest.approx(careful_losses, abs=0.05) == result.losses


def test_losses_repeat_by_seed_with_and_without_workers(brief: TrainingConfig) -> None:
    losses = train(brief).losses
    assert losses == train(brief).losses
    assert losses == train(replace(brief, workers=2)).losses
    assert losses != train(replace(brief, seed=1)).losses


@pytest.mark.parametrize(("batches", "steps"), [(2, 2), (0, 3), (100, 3)])
def test_batches_are_limited_per_epoch(batches: int, steps: int, brief: TrainingConfig) -> None:
    result = train(replace(brief, batches=batches))
    assert (steps, steps * 8, 0) == (result.steps, result.samples, result.skipped_steps)
    assert steps == len(result.seconds_per_step)
    assert 0 < sum(result.seconds_per_step) <= result.training_s
    assert result.validation_s > 0


def test_updates_have_the_scheduled_rate(brief: TrainingConfig) -> None:
    rates: list[float] = []

    def note_rate(optimizer: Optimizer, *_: object) -> None:
        rates.append(optimizer.param_groups[0]["lr"])

    handle = register_optimizer_step_pre_hook(note_rate)
    try:
        train(replace(brief, epochs=2, warmup_share=0.5, learning_rate=0.01))
    finally:
        handle.remove()
    assert pytest.approx([0.005, 0.01, 0.01, 0.005]) == rates


def test_main_trains_as_the_command_line_states(few_digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--data", str(few_digits), "--image-size", "8", "--batch-size", "4", "--batches", "2"]
    monkeypatch.setattr("sys.argv", ["program", *arguments, "--channels-last", "--precision", "bf16"])
    assert summary(main()).startswith("2 steps (0 skipped), 8 images; ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "many"], "invalid int value: 'many'"),
        (["--batch-size", "0"], "batch_size of at least 1, found 0"),
        (["--batch-size", "25"], "batch_size=25 images to train with, found 24"),
        (["--batch-size", "1", "--image-size", "8"], "batch_size of at least 2 for images of 8 pixels"),
        (["--batches", "-1"], "batches of at least 0, found -1"),
        (["--precision", "int8"], "invalid choice: 'int8'"),
        (["--learning-rate", "0"], "learning_rate above 0, found 0.0"),
        (["--warmup-share", "2"], "warmup_share from 0 to 1, found 2.0"),
        (["--data", "/nowhere"], "/nowhere: expected a folder"),
    ],
)
def test_mistakes_of_the_user_give_one_line(
    arguments: list[str], message: str, few_digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--data", str(few_digits), *arguments])
    assert 2 == caught.value.code
    lines = capsys.readouterr().err.splitlines()
    assert 1 == len(lines)
    assert message in lines[0]


@pytest.mark.parametrize(
    ("stem", "classes", "parameters"), [("imagenet", 1000, 11_689_512), ("small", 10, 11_173_962)]
)
def test_parameters_are_those_of_the_published_layout(stem: Stem, classes: int, parameters: int) -> None:
    model = ResNet18(classes, stem=stem)
    assert parameters == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("size", [(64, 64), (33, 47)])
@pytest.mark.parametrize("stem", ["imagenet", "small"])
def test_any_image_gets_one_logit_per_class(stem: Stem, size: tuple[int, int]) -> None:
    model = ResNet18(7, stem=stem).eval()
    with torch.inference_mode():
        features = model.stages(model.stem(torch.rand(2, 3, *size)))
        assert (2, 7) == model(torch.rand(2, 3, *size)).shape
    places = tuple(math.ceil(side / PIXELS_PER_PLACE[stem]) for side in size)
    assert (2, 512, *places) == features.shape


def shares(*, warmup_steps: int, steps: int) -> list[float]:
    """Return the shares of all steps of a run, and of the one after it."""
    return [learning_rate_share(step, warmup_steps=warmup_steps, steps=steps) for step in range(steps + 1)]


def test_rate_rises_linearly_and_falls_by_half_a_cosine() -> None:
    whole = shares(warmup_steps=4, steps=12)
    assert [0.25, 0.5, 0.75, 1] == whole[:4]
    assert pytest.approx([1, 0.853553, 0.5, 0.146447, 0], abs=1e-6) == whole[4::2]
