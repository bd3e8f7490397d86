"""Losses that draw embeddings of one class together and push those of different classes apart."""

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from perfkit.workloads.metric_learning.distances import precompute_pairwise_distances


class BatchHardTripletLoss(nn.Module):
    """Triplet loss of every element with its farthest fellow and its nearest stranger.

    The mean over the elements that have both of max(0, margin + d(fellow) - d(stranger)); zero when
    none has. Hermans, Beyer and Leibe (2017), "In Defense of the Triplet Loss", equation 5.

    Args:
        margin: How much farther strangers shall be than fellows, in units of the embedding.
    """

    def __init__(self, margin: float) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, embeddings: Tensor, labels: Tensor, *, distances: Tensor | None = None) -> Tensor:
        """Return the loss, 0-dim, of embeddings (N, dimension) with labels (N,).

        The distances (N, N) of the embeddings are computed unless they are passed.
        """
        if distances is None:
            distances = precompute_pairwise_distances(embeddings)
        classes = labels.tolist()
        terms = []
        for anchor in range(len(classes)):
            fellows = _fellows(anchor, classes)
            strangers = _strangers(anchor, classes)
            if fellows and strangers:
                gap = distances[anchor, fellows].max() - distances[anchor, strangers].min()
                terms.append(relu(self.margin + gap))
        return torch.stack(terms).mean() if terms else _no_loss(embeddings)


class BatchAllTripletLoss(nn.Module):
    """Triplet loss over all triplets of an anchor, a fellow of its class and a stranger.

    The mean of max(0, margin + d(anchor, fellow) - d(anchor, stranger)), zero when there is no
    triplet. Hermans, Beyer and Leibe (2017), "In Defense of the Triplet Loss", equation 6.

    Args:
        margin: How much farther strangers shall be than fellows, in units of the embedding.
        only_positive: Take the mean of those terms alone that are greater than zero, as easy
            triplets otherwise wash out the others (the same paper, section 3).
    """

    def __init__(self, margin: float, *, only_positive: bool = False) -> None:
        super().__init__()
        self.margin = margin
        self.only_positive = only_positive

    def forward(self, embeddings: Tensor, labels: Tensor, *, distances: Tensor | None = None) -> Tensor:
        """Return the loss, 0-dim, of embeddings (N, dimension) with labels (N,).

        The distances (N, N) of the embeddings are computed unless they are passed.
        """
        if distances is None:
            distances = precompute_pairwise_distances(embeddings)
        classes = labels.tolist()
        terms = [
            relu(self.margin + distances[anchor, fellow] - distances[anchor, stranger])
            for anchor in range(len(classes))
            for fellow in _fellows(anchor, classes)
            for stranger in _strangers(anchor, classes)
        ]
        if self.only_positive:
            terms = [term for term in terms if term > 0]
        return torch.stack(terms).mean() if terms else _no_loss(embeddings)


class ContrastiveLoss(nn.Module):
    """Half the squared distance of fellows, half the squared shortfall to the margin of strangers.

    The mean over all pairs, zero when there is no pair. Hadsell, Chopra and LeCun (2006),
    "Dimensionality Reduction by Learning an Invariant Mapping", equation 4.

    Args:
        margin: How far apart strangers shall be, in units of the embedding.
    """

    def __init__(self, margin: float) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, embeddings: Tensor, labels: Tensor, *, distances: Tensor | None = None) -> Tensor:
        """Return the loss, 0-dim, of embeddings (N, dimension) with labels (N,).

        The distances (N, N) of the embeddings are computed unless they are passed.
        """
        if distances is None:
            distances = precompute_pairwise_distances(embeddings)
        classes = labels.tolist()
        terms = [
            distance**2 / 2 if classes[i] == classes[j] else relu(self.margin - distance) ** 2 / 2
            for i, row in enumerate(distances)
            for j, distance in enumerate(row)
            if i != j
        ]
        return torch.stack(terms).mean() if terms else _no_loss(embeddings)


def _fellows(anchor: int, classes: list[int]) -> list[int]:
    return [other for other, name in enumerate(classes) if name == classes[anchor] and other != anchor]


def _strangers(anchor: int, classes: list[int]) -> list[int]:
    return [other for other, name in enumerate(classes) if name != classes[anchor]]


def _no_loss(embeddings: Tensor) -> Tensor:
    """Return a zero that still leads back to the embeddings, so that a backward pass works."""
    return (embeddings * 0).sum()
