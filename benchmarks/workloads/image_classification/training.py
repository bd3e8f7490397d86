"""The training loop: batches of augmented images, one optimiser step each, and the accuracy at the end."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import get_args

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from ..classification import TrainingResult, check_choices
from ..command_line import OneLineParser
from ..image_loading import (
    Augmenting,
    CachedImages,
    Item,
    LazyImages,
    augmented,
    batch_loader,
)
from ..images import DataError, ImageFiles, digits_folder, find_images, split_stratified
from ..mixed_precision import Device, Precision, ScaledOptimizer, autocast
from .augmentation import Augmentation
from .model import PIXELS_PER_PLACE, ResNet18, Stem
from .schedule import warmup_cosine

TEST_BATCH = 64

_LEAST = {"image_size": 1, "batch_size": 1, "epochs": 1, "batches": 0, "workers": 0}
_CHOICES = {"stem": Stem, "augmentation": Augmenting, "precision": Precision, "device": Device}


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """All choices of one training run.

    Attributes:
        data: Folder with one subfolder of images per class, grey or coloured, of any size; None for the
            bundled digits.
        image_size: Height and width of the images the net sees, in pixels.
        stem: The net's first layers: for images of many pixels ("imagenet") or of few ("small").
        batch_size: Images per batch.
        epochs: Passes over the training part.
        batches: Most batches per epoch; 0 for all.
        workers: Processes that load batches; 0 loads in the training process.
        augmentation: Anew at every access ("lazy"), or once and kept ("cached").
        precision: That of the matrix products and convolutions; "default" is the parameters' own.
        channels_last: Keep the channels of a pixel side by side in memory, not the pixels of a channel.
        learning_rate: Adam's largest step size.
        warmup_share: Share of all steps in which the learning rate rises, before it falls to zero.
        device: Where the net trains.
        seed: The same seed gives the same losses.

    Raises:
        ValueError: There is no such choice, CUDA is asked for where there is none, a number is out of its
            range, or batches are too small for batch normalisation.
    """

    data: Path | None = None
    image_size: int = 32
    stem: Stem = "small"
    batch_size: int = 32
    epochs: int = 1
    batches: int = 0
    workers: int = 0
    augmentation: Augmenting = "lazy"
    precision: Precision = "default"
    channels_last: bool = False
    learning_rate: float = 1e-3
    warmup_share: float = 0.1
    device: Device = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        check_choices(self, _CHOICES, _LEAST)
        if self.learning_rate <= 0:
            raise ValueError(f"expected a learning_rate above 0, found {self.learning_rate}; raise it")
        if not 0 <= self.warmup_share <= 1:
            raise ValueError(f"expected a warmup_share from 0 to 1, found {self.warmup_share}; change it")
        if self.batch_size == 1 and self.image_size <= PIXELS_PER_PLACE[self.stem]:
            raise ValueError(
                f"expected a batch_size of at least 2 for images of {self.image_size} pixels, found 1: batch "
                "normalisation would have one value per channel; raise batch_size or image_size"
            )
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("expected a CUDA device, found none that torch can use; train on device cpu")


class Training:
    """A net in training: call `run_epoch` for each epoch, then `result`.

    Args:
        config: All choices.

    Raises:
        DataError: The images are missing, unusable or too few.
    """

    def __init__(self, config: TrainingConfig) -> None:
        train, test = _parts(config)
        self._config = config
        self._memory_format = torch.channels_last if config.channels_last else torch.contiguous_format
        self._model = _seeded_model(config, classes=len(train.classes))
        # torch documents this call and leaves it out of its types.
        self._model.to(config.device, memory_format=self._memory_format)  # type: ignore[call-overload]
        self._dataset = _augmented(train, config)
        sampler = _shuffled_batches(len(train), config)
        self._optimizer = _optimizer(self._model, config, steps=config.epochs * len(sampler))
        self._loader = _loader(self._dataset, sampler, config)
        self._test_loader = _test_loader(test, config)
        self._test_samples = len(test)
        self._losses: list[float] = []
        self._seconds_per_step: list[float] = []
        self._training_s = 0.0

    def run_epoch(self, epoch: int) -> None:
        """Train with the batches of one epoch."""
        self._dataset.set_epoch(epoch)
        self._model.train()
        losses: list[Tensor] = []
        epoch_start = step_start = perf_counter()
        for images, labels in self._on_device(self._loader):
            losses.append(self._step(images, labels))
            step_end = perf_counter()
            self._seconds_per_step.append(step_end - step_start)
            step_start = step_end
        # Reading a loss waits until the device has done all its work. That is done once an epoch, so that
        # the host can prepare a step while the device computes the one before.
        self._losses += torch.stack(losses).tolist()
        self._training_s += perf_counter() - epoch_start

    def _on_device(self, loader: DataLoader[Item]) -> Iterator[tuple[Tensor, Tensor]]:
        device = self._config.device
        for images, labels in loader:
            moved = images.to(device, memory_format=self._memory_format, non_blocking=True)
            yield moved, labels.to(device, non_blocking=True)

    def _step(self, images: Tensor, labels: Tensor) -> Tensor:
        with self._autocast():
            loss = functional.cross_entropy(self._model(images), labels)
        self._optimizer.step(loss)
        return loss.detach()

    def _autocast(self) -> torch.autocast:
        return autocast(self._config.device, self._config.precision)

    def result(self) -> TrainingResult:
        """Measure the accuracy on all images held out, and return the results so far."""
        start = perf_counter()
        accuracy = self._test_accuracy()
        return TrainingResult(
            losses=tuple(self._losses),
            test_accuracy=accuracy,
            samples=len(self._losses) * self._config.batch_size,
            skipped_steps=self._optimizer.skipped,
            seconds_per_step=tuple(self._seconds_per_step),
            training_s=self._training_s,
            validation_s=perf_counter() - start,
        )

    def _test_accuracy(self) -> float:
        self._model.eval()
        with torch.inference_mode(), self._autocast():
            correct = [
                (self._model(images).argmax(dim=1) == labels).sum()
                for images, labels in self._on_device(self._test_loader)
            ]
        return torch.stack(correct).sum().item() / self._test_samples


def train(config: TrainingConfig) -> TrainingResult:
    """Train a net from scratch; the same configuration gives the same losses on the same processor.

    Raises:
        DataError: The images are missing, unusable or too few.
    """
    training = Training(config)
    for epoch in range(config.epochs):
        training.run_epoch(epoch)
    return training.result()


def _parts(config: TrainingConfig) -> tuple[ImageFiles, ImageFiles]:
    folder = config.data or digits_folder()
    train, test = split_stratified(find_images(folder), seed=config.seed)
    if len(train) < config.batch_size:
        raise DataError(
            f"{folder}: expected at least batch_size={config.batch_size} images to train with, "
            f"found {len(train)}; lower batch_size or add images"
        )
    if not test:
        raise DataError(
            f"{folder}: expected a class of at least 5 images, to hold out a fifth of them, found none; "
            "add images"
        )
    return train, test


def _seeded_model(config: TrainingConfig, *, classes: int) -> ResNet18:
    # The caller's generators are left as they were. A GPU's is not used: weights are drawn on the host.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        return ResNet18(classes, stem=config.stem)


def _optimizer(model: ResNet18, config: TrainingConfig, *, steps: int) -> ScaledOptimizer:
    adam = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    schedule = warmup_cosine(adam, warmup_steps=round(config.warmup_share * steps), steps=steps)
    # The rate changes with updates only, so that a skipped step does not change it.
    adam.register_step_post_hook(lambda *_: schedule.step())
    return ScaledOptimizer(adam, device=config.device, precision=config.precision)


def _augmented(images: ImageFiles, config: TrainingConfig) -> LazyImages | CachedImages:
    augmentation = Augmentation(image_size=config.image_size)
    return augmented(images, augmentation, how=config.augmentation, seed=config.seed, mode="RGB")


def _shuffled_batches(images: int, config: TrainingConfig) -> BatchSampler:
    batches = images // config.batch_size
    if config.batches:
        batches = min(batches, config.batches)
    # Images beyond the limit are not drawn, so that no worker reads them.
    order = RandomSampler(
        range(images),
        num_samples=batches * config.batch_size,
        generator=torch.Generator().manual_seed(config.seed),
    )
    return BatchSampler(order, config.batch_size, drop_last=True)


def _test_loader(images: ImageFiles, config: TrainingConfig) -> DataLoader[Item]:
    only_resized = Augmentation(image_size=config.image_size, flip_probability=0)
    dataset = LazyImages(images, only_resized, seed=config.seed, mode="RGB")
    batches = BatchSampler(SequentialSampler(range(len(images))), TEST_BATCH, drop_last=False)
    return _loader(dataset, batches, config)


def _loader(
    dataset: LazyImages | CachedImages, sampler: BatchSampler, config: TrainingConfig
) -> DataLoader[Item]:
    return batch_loader(
        dataset, sampler, workers=config.workers, seed=config.seed, pin_memory=config.device == "cuda"
    )


def main(argv: Sequence[str] | None = None) -> TrainingResult:
    """Train as the command line asks, by default with the default configuration.

    Args:
        argv: The arguments; None for those of the process.

    Raises:
        SystemExit: With status 2 after one line on standard error, for a mistake of the user's.
    """
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        return train(TrainingConfig(**vars(options)))
    except ValueError as error:
        # A loader's worker hands its error on as a whole traceback; the last line has what happened.
        parser.error(str(error).strip().splitlines()[-1])


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="image_classification", description=__doc__, argument_default=argparse.SUPPRESS
    )
    parser.add_argument("--data", type=Path, help="folder with one subfolder of images per class")
    parser.add_argument("--channels-last", action="store_true")
    for name, choices in _CHOICES.items():
        parser.add_argument(f"--{name}", choices=get_args(choices))
    default = TrainingConfig()
    for name in (*_LEAST, "seed", "learning_rate", "warmup_share"):
        value = getattr(default, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), help=f"default {value}")
    return parser


def summary(result: TrainingResult) -> str:
    """Return the result in one line."""
    return (
        f"{result.steps} steps ({result.skipped_steps} skipped), {result.samples} images; "
        f"training {result.training_s:.1f} s, validation {result.validation_s:.1f} s; "
        f"last loss {result.last_loss:.3f}, test accuracy {result.test_accuracy:.3f}"
    )


if __name__ == "__main__":
    sys.stdout.write(summary(main()) + "\n")
