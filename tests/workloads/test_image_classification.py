"""Images are read and augmented; a residual net learns from them in the precision asked for."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from workloads.image_classification.schedule import learning_rate_share
from workloads.image_classification.training import TrainingConfig, main, summary, train
from workloads.image_loading import (
    Augmenting,
    CachedImages,
    LazyImages,
    augmented,
    batch_loader,
)
from workloads.images import DataError, ImageFiles, digits_folder, find_images, read_image, split_stratified
from workloads.metric_learning.augmentation import Augmentation, autocontrast
from workloads.metric_learning.sampler import PKSampler
from workloads.mixed_precision import Precision, ScaledOptimizer, autocast


def numbered(labels: list[int]) -> ImageFiles:
    """Return images that do not exist, named by their place."""
    return ImageFiles(
        paths=tuple(Path(str(place)) for place in range(len(labels))),
        labels=tuple(labels),
        classes=tuple(str(label) for label in sorted(set(labels))),
    )


def test_digits_are_exported_complete_even_by_two_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(digits_folder, [tmp_path, tmp_path])
    assert first == second
    images = find_images(first)
    assert 1797 == len(images)
    assert tuple("0123456789") == images.classes
    assert ["digits"] == [entry.name for entry in tmp_path.iterdir()]
    assert (8, 8) == read_image(images.paths[0]).size


def test_images_of_any_folder_tree_are_found_by_class(tmp_path: Path) -> None:
    for name in ("cats/a.png", "cats/b.JPG", "dogs/c.bmp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 3)).save(tmp_path / name)
    (tmp_path / "cats" / "notes.txt").write_text("no image")
    images = find_images(tmp_path)
    assert ["a.png", "b.JPG", "c.bmp"] == [path.name for path in images.paths]
    assert (0, 0, 1) == images.labels
    assert ("cats", "dogs") == images.classes
    assert "L" == read_image(images.paths[0]).mode


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


def test_split_keeps_every_class_in_its_share() -> None:
    images = numbered([0] * 50 + [1] * 10)
    train, validation = split_stratified(images, seed=3)
    assert (10, 2) == (validation.labels.count(0), validation.labels.count(1))
    assert set(images.paths) == set(train.paths) | set(validation.paths)
    assert len(images) == len(train) + len(validation)


AUGMENTATION = Augmentation(image_size=12)


@pytest.fixture
def images(tmp_path: Path) -> ImageFiles:
    generator = torch.Generator().manual_seed(0)
    for number in range(8):
        path = tmp_path / str(number % 2) / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        pixels = torch.randint(0, 256, (8, 8), generator=generator, dtype=torch.uint8)
        Image.fromarray(pixels.numpy()).save(path)
    return find_images(tmp_path)


def epoch_of(dataset: LazyImages | CachedImages, workers: int, labels: tuple[int, ...]) -> list[Tensor]:
    """Return the images and labels of all batches of one epoch."""
    loader = batch_loader(dataset, PKSampler(labels, 2, 2, seed=0), workers=workers, seed=0)
    return [tensor for images, labels in loader for tensor in (images, labels)]


@pytest.mark.parametrize("how", ["lazy", "cached"])
def test_workers_give_the_same_batches(how: Augmenting, images: ImageFiles) -> None:
    dataset = augmented(images, AUGMENTATION, how=how, seed=1)
    alone = epoch_of(dataset, 0, images.labels)
    assert (4, 1, 12, 12) == alone[0].shape
    assert torch.float32 == alone[0].dtype
    for expected, tensor in zip(alone, epoch_of(dataset, 2, images.labels), strict=True):
        assert torch.equal(expected, tensor)


@pytest.mark.parametrize("seed", range(3))
def test_autocontrast_equals_that_of_pil(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    darkest, brightest = sorted(torch.randint(0, 256, (2,), generator=generator).tolist())
    pixels = torch.randint(darkest, brightest + 1, (9, 7), generator=generator, dtype=torch.uint8)
    for levels in (pixels, torch.full_like(pixels, darkest)):
        image = Image.fromarray(levels.numpy())
        assert ImageOps.autocontrast(image).tobytes() == autocontrast(image).tobytes()


INPUTS = torch.linspace(-1, 1, 12).reshape(4, 3)


def seeded_linear() -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Linear(3, 2)


def stepped(precision: Precision, *, steps: int) -> nn.Linear:
    """Return the layer after some steps towards outputs of zero."""
    model = seeded_linear()
    optimizer = ScaledOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), device="cpu", precision=precision
    )
    for _ in range(steps):
        with autocast("cpu", precision):
            outputs = model(INPUTS)
        optimizer.step(outputs.float().square().mean())
    return model


def test_steps_of_the_default_are_those_of_the_bare_optimizer() -> None:
    by_hand = seeded_linear()
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        by_hand(INPUTS).square().mean().backward()
        optimizer.step()
    assert torch.equal(by_hand.weight, stepped("default", steps=3).weight)


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


def test_main_trains_as_the_command_line_states(few_digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--data", str(few_digits), "--image-size", "8", "--batch-size", "4", "--batches", "2"]
    monkeypatch.setattr("sys.argv", ["program", *arguments, "--channels-last", "--precision", "bf16"])
    assert summary(main()).startswith("2 steps (0 skipped), 8 images; ")


def shares(*, warmup_steps: int, steps: int) -> list[float]:
    """Return the shares of all steps of a run, and of the one after it."""
    return [learning_rate_share(step, warmup_steps=warmup_steps, steps=steps) for step in range(steps + 1)]


def test_rate_rises_linearly_and_falls_by_half_a_cosine() -> None:
    whole = shares(warmup_steps=4, steps=12)
    assert [0.25, 0.5, 0.75, 1] == whole[:4]
    assert pytest.approx([1, 0.853553, 0.5, 0.146447, 0], abs=1e-6) == whole[4::2]
