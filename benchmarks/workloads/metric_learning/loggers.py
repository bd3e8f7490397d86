"""Measures a model while it trains, each time that it has seen a given number of images."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from .distances import precompute_pairwise_distances
from .metrics import (
    ClusterMetrics,
    compute_intercluster_metrics,
    compute_intracluster_metrics,
    recall_at_1,
)


@dataclass(frozen=True, kw_only=True)
class Part:
    """Images of the training or the validation part that a model is measured on.

    Attributes:
        name: Which part they are of.
        images: (N, 1, height, width).
        labels: (N,).
    """

    name: str
    images: Tensor
    labels: Tensor


@dataclass(frozen=True, kw_only=True)
class EmbeddedPart:
    """A model's embeddings of a part, computed once for all loggers.

    Attributes:
        embeddings: (N, dimension).
        labels: (N,).
        distances: (N, N), between the embeddings.
    """

    embeddings: Tensor
    labels: Tensor
    distances: Tensor


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One value measured while training.

    Attributes:
        samples: Images the model had been trained with by then.
        part: Name of the part it was measured on.
        name: What was measured.
        value: Its value.
    """

    samples: int
    part: str
    name: str
    value: float


class Logger(Protocol):
    """Measures some values of the embeddings of a part of the data."""

    def measure(self, part: EmbeddedPart) -> dict[str, float]:
        """Return values by name."""
        ...


@dataclass(frozen=True)
class LossLogger:
    """Logs the loss."""

    loss: nn.Module

    def measure(self, part: EmbeddedPart) -> dict[str, float]:
        """Return the loss of the whole part as one batch."""
        loss: Tensor = self.loss(part.embeddings, part.labels, distances=part.distances)
        return {"loss": loss.item()}


@dataclass(frozen=True)
class IntraclusterLogger:
    """Logs how wide the classes are."""

    def measure(self, part: EmbeddedPart) -> dict[str, float]:
        """Return the summary of the classes' diameters."""
        metrics = compute_intracluster_metrics(part.embeddings, part.labels, distances=part.distances)
        return _named("intracluster", metrics)


@dataclass(frozen=True)
class InterclusterLogger:
    """Logs how far apart the classes are."""

    def measure(self, part: EmbeddedPart) -> dict[str, float]:
        """Return the summary of the distances between classes."""
        metrics = compute_intercluster_metrics(part.embeddings, part.labels, distances=part.distances)
        return _named("intercluster", metrics)


@dataclass(frozen=True)
class RecallLogger:
    """Logs recall at 1."""

    def measure(self, part: EmbeddedPart) -> dict[str, float]:
        """Return the share of images whose nearest neighbour within the part is of their class."""
        return {"recall_at_1": recall_at_1(part.embeddings, part.labels, distances=part.distances)}


def _named(prefix: str, metrics: ClusterMetrics) -> dict[str, float]:
    return {
        f"{prefix}_min": metrics.minimum,
        f"{prefix}_max": metrics.maximum,
        f"{prefix}_mean": metrics.mean,
        f"{prefix}_sd": metrics.sd,
    }


class CompoundLogger:
    """Has several loggers measure a model on every part, once in every so many images.

    Args:
        loggers: What to measure.
        parts: What to measure it on.
        every: Images seen between two measurements.
    """

    def __init__(self, loggers: Sequence[Logger], parts: Sequence[Part], *, every: int) -> None:
        self._loggers = tuple(loggers)
        self._parts = tuple(parts)
        self._every = every
        self._samples = 0
        self.readings: list[Reading] = []

    def see(self, model: nn.Module, samples: int) -> None:
        """Count images that the model was just trained with, and measure when enough were seen."""
        turns_before = self._samples // self._every
        self._samples += samples
        if self._samples // self._every > turns_before:
            self._measure(model)

    def _measure(self, model: nn.Module) -> None:
        with evaluating(model):
            for part in self._parts:
                embedded = _embedded(model, part)
                self.readings += [
                    Reading(samples=self._samples, part=part.name, name=name, value=value)
                    for logger in self._loggers
                    for name, value in logger.measure(embedded).items()
                ]


def _embedded(model: nn.Module, part: Part) -> EmbeddedPart:
    embeddings = model(part.images)
    distances = precompute_pairwise_distances(embeddings)
    return EmbeddedPart(embeddings=embeddings, labels=part.labels, distances=distances)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model in evaluation mode without gradients, and back in its former mode at the end."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)
