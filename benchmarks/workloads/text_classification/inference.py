"""Classifies texts by a model, and times each batch."""

from dataclasses import dataclass
from time import perf_counter

import torch
from torch import nn
from torch.utils.data import DataLoader

from ..mixed_precision import Device, Precision, autocast
from .batches import Item


@dataclass(frozen=True, kw_only=True)
class Classification:
    """A model's classification of texts.

    Attributes:
        predictions: The class of each text as the model sees it.
        accuracy: Share of the texts that it puts in their class.
        seconds_per_batch: Time of every batch: waiting for it, transfer, forward, and reading the
            predictions.
    """

    predictions: tuple[int, ...]
    accuracy: float
    seconds_per_batch: tuple[float, ...]


def classify(
    model: nn.Module, loader: DataLoader[Item], *, device: Device, precision: Precision
) -> Classification:
    """Classify all texts of a loader; the model stays in evaluation mode."""
    predictions: list[int] = []
    labels: list[int] = []
    seconds_per_batch: list[float] = []
    model.eval()
    start = perf_counter()
    with torch.inference_mode(), autocast(device, precision):
        for batch in loader:
            on_device = batch.to(device)
            predictions += model(on_device.tokens, on_device.mask).argmax(dim=1).tolist()
            labels += batch.labels.tolist()
            end = perf_counter()
            seconds_per_batch.append(end - start)
            start = end
    hits = sum(found == label for found, label in zip(predictions, labels, strict=True))
    return Classification(
        predictions=tuple(predictions),
        accuracy=hits / len(labels),
        seconds_per_batch=tuple(seconds_per_batch),
    )
