"""Images are read and augmented; a residual net learns from them in the precision asked for."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from workloads.image_classification.training import TrainingConfig, main, summary, train
from workloads.images import DataError, ImageFiles, digits_folder, find_images
from workloads.mixed_precision import Precision, ScaledOptimizer, autocast


@pytest.mark.parametrize(
    ("folders", "found"),
    [([], "found no folder"), (["data"], "found no subfolder"), (["data", "data/cats"], "found none")],
)
def test_missing_images_are_named_in_one_line(tmp_path: Path, folders: list[str], found: str) -> None:
    for name in folders:
        (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=f"{tmp_path / 'data'}.*: expected .*{found}.*; ") as caught:
        find_images(tmp_path / "data")
    assert 1 == len(str(caught.value).splitlines())


@pytest.fixture
def images(tmp_path: Path) -> ImageFiles:
    generator = torch.Generator().manual_seed(0)
    for number in range(8):
        path = tmp_path / str(number % 2) / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        pixels = torch.randint(0, 256, (8, 8), generator=generator, dtype=torch.uint8)
        Image.fromarray(pixels.numpy()).save(path)
    return find_images(tmp_path)


INPUTS = torch.linspace(-1, 1, 12).reshape(4, 3)


def seeded_linear() -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(3, 2)


def test_steps_are_skipped_and_counted_until_the_scale_fits() -> None:
    model = seeded_linear()
    optimizer = ScaledOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), device="cpu", precision="fp16")
    skipped = []
    for _ in range(5):
        before = model.weight.detach().clone()
        optimizer.step(overflowing_loss(model))
        skipped.append(torch.equal(before, model.weight))
    assert [True, True, True, False, False] == skipped
    assert (5, 3) == (optimizer.steps, optimizer.skipped)


def overflowing_loss(model: nn.Linear) -> Tensor:
    """Return a loss of one row whose gradient is four for every output, in fp16."""
    with autocast("cpu", "fp16"):
        outputs: Tensor = model(INPUTS[:1])
    return 4 * outputs.float().sum()


ACCURACY_LEARNT = 0.8  # By chance it is 0.5.


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
    return _some(digits, tmp_path_factory.mktemp("few"), "012", 10)


def _some(digits: Path, folder: Path, names: str, count: int) -> Path:
    for name in names:
        (folder / name).mkdir()
        for path in sorted((digits / name).iterdir())[:count]:
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


def test_training_learns(digits: Path, tmp_path: Path) -> None:
    data = _some(digits, tmp_path, "01", 60)
    result = train(TrainingConfig(data=data, image_size=8, batch_size=16, epochs=3))
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


def test_main_trains_as_the_command_line_states(few_digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--data", str(few_digits), "--image-size", "8", "--batch-size", "4", "--batches", "2"]
    monkeypatch.setattr("sys.argv", ["program", *arguments, "--channels-last", "--precision", "bf16"])
    assert summary(main()).startswith("2 steps (0 skipped), 8 images; ")
