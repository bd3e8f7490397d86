"""The training loop: P-K batches of augmented images, one optimiser step each, measured as it goes."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ..command_line import OneLineParser
from ..image_loading import Augmenting, augmented, batch_loader, plain_images
from ..images import (
    ImageFiles,
    digits_folder,
    find_images,
    split_stratified,
    spread,
)
from .augmentation import Augmentation
from .loggers import (
    CompoundLogger,
    InterclusterLogger,
    IntraclusterLogger,
    Logger,
    LossLogger,
    Part,
    Reading,
    RecallLogger,
    evaluating,
)
from .losses import (
    BatchAllTripletLoss,
    BatchHardTripletLoss,
    ContrastiveLoss,
)
from .metrics import recall_at_1
from .model import EmbeddingNet
from .sampler import PKSampler

LossName = Literal["batch-hard", "batch-all", "contrastive"]
Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """All choices of one training run.

    Attributes:
        data: Folder with one subfolder of images per class; None for the bundled digits.
        p: Classes per batch.
        k: Images per class in a batch.
        epochs: Passes over the training part.
        learning_rate: Adam's step size.
        embedding_dimension: Dimension of the embedding space.
        image_size: Height and width of the images the net sees, in pixels.
        loss: Which loss to minimise.
        margin: The loss's margin, in units of the embedding.
        augmentation: Anew at every access ("lazy"), or once and kept ("cached").
        workers: Processes that load batches; 0 loads in the training process.
        device: Where the net trains.
        seed: The same seed gives the same losses.
        logging_every: Images seen between two measurements.
        logging_samples: Images of each part that are measured.
        shuffle_labels: Train with labels in random order, so that nothing can be learnt.

    Raises:
        ValueError: CUDA is asked for where there is none, or a count is not positive.
    """

    data: Path | None = None
    p: int = 10
    k: int = 20
    epochs: int = 15
    learning_rate: float = 3e-3
    embedding_dimension: int = 5
    image_size: int = 16
    loss: LossName = "batch-hard"
    margin: float = 0.2
    augmentation: Augmenting = "lazy"
    workers: int = 0
    device: Device = "cpu"
    seed: int = 0
    logging_every: int = 600
    logging_samples: int = 200
    shuffle_labels: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "embedding_dimension", "image_size", "logging_every", "logging_samples"):
            if getattr(self, name) < 1:
                raise ValueError(f"expected {name} of at least 1, found {getattr(self, name)}; raise it")
        if self.workers < 0:
            raise ValueError(f"expected workers of at least 0, found {self.workers}; raise it")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("expected a CUDA device, found none that torch can use; train on device cpu")


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """The results of a training run.

    Attributes:
        losses: The loss of every step.
        readings: What the loggers measured, in order.
        validation_recall_at_1: Over the whole validation part, after training.
        samples: Images trained with.
        seconds_per_step: Time of every step: waiting for its batch, forward, backward and update.
        evaluation_s: Time of all measurements, which `seconds_per_step` leaves out.
    """

    losses: tuple[float, ...]
    readings: tuple[Reading, ...]
    validation_recall_at_1: float
    samples: int
    seconds_per_step: tuple[float, ...]
    evaluation_s: float

    @property
    def steps(self) -> int:
        """Optimiser steps taken."""
        return len(self.losses)

    @property
    def training_s(self) -> float:
        """Time of all steps together."""
        return sum(self.seconds_per_step)


class Training:
    """A net in training: call `run_epoch` for each epoch, then `result`.

    Args:
        config: All choices.

    Raises:
        DataError: The images are missing or unusable.
        ValueError: There are too few images for batches of p classes and k images each.
    """

    def __init__(self, config: TrainingConfig) -> None:
        train, validation = _parts(config)
        self._model = _seeded_model(config).to(config.device)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=config.learning_rate)
        self._loss = _loss(config)
        augmentation = Augmentation(image_size=config.image_size)
        self._dataset = augmented(train, augmentation, how=config.augmentation, seed=config.seed)
        self._sampler = PKSampler(train.labels, config.p, config.k, seed=config.seed)
        self._loader = batch_loader(self._dataset, self._sampler, workers=config.workers, seed=config.seed)
        self._logger = _logger(self._loss, train, validation, config)
        self._validation = _part("validation", validation, config)
        self._device = torch.device(config.device)
        self._losses: list[float] = []
        self._seconds_per_step: list[float] = []
        self._samples = 0
        self._evaluation_s = 0.0

    def run_epoch(self, epoch: int) -> None:
        """Train with every batch of one epoch; the loggers measure when their turn comes."""
        self._sampler.set_epoch(epoch)
        self._dataset.set_epoch(epoch)
        self._model.train()
        start = perf_counter()
        for images, labels in self._loader:
            # Reading the loss makes the host wait for the device, once a step.
            self._losses.append(self._step(images.to(self._device), labels.to(self._device)).item())
            self._seconds_per_step.append(perf_counter() - start)
            self._samples += len(labels)
            self._log(len(labels))
            start = perf_counter()

    def _step(self, images: Tensor, labels: Tensor) -> Tensor:
        self._optimizer.zero_grad()
        loss: Tensor = self._loss(self._model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return loss.detach()

    def _log(self, samples: int) -> None:
        start = perf_counter()
        self._logger.see(self._model, samples)
        self._evaluation_s += perf_counter() - start

    def result(self) -> TrainingResult:
        """Measure recall at 1 on the whole validation part, and return the results so far."""
        start = perf_counter()
        with evaluating(self._model):
            recall = recall_at_1(self._model(self._validation.images), self._validation.labels)
        self._evaluation_s += perf_counter() - start
        return TrainingResult(
            losses=tuple(self._losses),
            readings=tuple(self._logger.readings),
            validation_recall_at_1=recall,
            samples=self._samples,
            seconds_per_step=tuple(self._seconds_per_step),
            evaluation_s=self._evaluation_s,
        )


def train(config: TrainingConfig) -> TrainingResult:
    """Train a net from scratch; the same configuration gives the same losses on the same machine.

    Raises:
        DataError: The images are missing or unusable.
        ValueError: There are too few images for batches of p classes and k images each.
    """
    training = Training(config)
    for epoch in range(config.epochs):
        training.run_epoch(epoch)
    return training.result()


def _parts(config: TrainingConfig) -> tuple[ImageFiles, ImageFiles]:
    images = find_images(config.data or digits_folder())
    train, validation = split_stratified(images, seed=config.seed)
    return (_with_shuffled_labels(train, config.seed) if config.shuffle_labels else train), validation


def _with_shuffled_labels(images: ImageFiles, seed: int) -> ImageFiles:
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed)).tolist()
    return ImageFiles(
        paths=tuple(images.paths[place] for place in order), labels=images.labels, classes=images.classes
    )


def _seeded_model(config: TrainingConfig) -> EmbeddingNet:
    # The caller's random generators are left as they were.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = EmbeddingNet(config.embedding_dimension)
    # Activations get the weights' layout, in which convolutions compute, so that none has to be rearranged.
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _loss(config: TrainingConfig) -> nn.Module:
    if config.loss == "batch-hard":
        return BatchHardTripletLoss(config.margin)
    if config.loss == "batch-all":
        return BatchAllTripletLoss(config.margin, only_positive=True)
    return ContrastiveLoss(config.margin)


def _logger(
    loss: nn.Module, train: ImageFiles, validation: ImageFiles, config: TrainingConfig
) -> CompoundLogger:
    parts = [
        _part(name, images.subset(list(spread(config.logging_samples, over=len(images)))), config)
        for name, images in (("train", train), ("validation", validation))
    ]
    loggers: list[Logger] = [LossLogger(loss), IntraclusterLogger(), InterclusterLogger(), RecallLogger()]
    return CompoundLogger(loggers, parts, every=config.logging_every)


def _part(name: str, images: ImageFiles, config: TrainingConfig) -> Part:
    return Part(
        name=name,
        images=plain_images(images, image_size=config.image_size).to(config.device),
        labels=torch.tensor(images.labels, device=config.device),
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
    default = TrainingConfig()
    parser = OneLineParser(prog="metric_learning", description=__doc__, argument_default=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help="folder with one subfolder of images per class")
    parser.add_argument("--augmentation", choices=get_args(Augmenting))
    parser.add_argument("--loss", choices=get_args(LossName))
    parser.add_argument("--device", choices=get_args(Device))
    for name in ("epochs", "workers", "seed", "p", "k"):
        parser.add_argument(f"--{name}", type=int, help=f"default {getattr(default, name)}")
    return parser


def summary(result: TrainingResult) -> str:
    """Return the result in one line."""
    return (
        f"{result.steps} steps, {result.samples} images; training {result.training_s:.1f} s, "
        f"evaluation {result.evaluation_s:.1f} s; last loss {result.losses[-1]:.3f}, "
        f"validation recall@1 {result.validation_recall_at_1:.3f}"
    )


if __name__ == "__main__":
    sys.stdout.write(summary(main()) + "\n")
