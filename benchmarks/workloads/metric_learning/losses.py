"""Losses that draw embeddings of one class together and push those of different classes apart."""

from math import inf

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from .distances import positives_and_negatives, precompute_pairwise_distances


class BatchHardTripletLoss(nn.Module):
    """Triplet loss of every element with its farthest positive and its nearest negative.

    The mean over the elements that have both of max(0, margin + d(positive) - d(negative)); zero when
    none has. Hermans, Beyer and Leibe (2017), "In Defense of the Triplet Loss", equation 5.

    Args:
        margin: How much farther negatives shall be than positives, in units of the embedding.
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
        positives, negatives = positives_and_negatives(labels)
        # amax and amin divide the gradient evenly among equal extremes, as the definition does.
        farthest = distances.masked_fill(~positives, -inf).amax(dim=1)
        nearest = distances.masked_fill(~negatives, inf).amin(dim=1)
        complete = positives.any(dim=1) & negatives.any(dim=1)
        return _mean(relu(self.margin + farthest - nearest)[complete], embeddings)


class BatchAllTripletLoss(nn.Module):
    """Triplet loss over all triplets of an anchor, a positive of its class and a negative.

    The mean of max(0, margin + d(anchor, positive) - d(anchor, negative)), zero when there is no
    triplet. Hermans, Beyer and Leibe (2017), "In Defense of the Triplet Loss", equation 6.

    Args:
        margin: How much farther negatives shall be than positives, in units of the embedding.
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
        positives, negatives = positives_and_negatives(labels)
        # There is a row for each anchor and positive: N K rows of N values instead of N^2 rows.
        anchors, others = positives.nonzero(as_tuple=True)
        gaps = self.margin + distances[anchors, others].unsqueeze(1) - distances[anchors]
        terms = relu(gaps)[negatives[anchors]]
        return _mean(terms[terms > 0] if self.only_positive else terms, embeddings)


class ContrastiveLoss(nn.Module):
    """Half the squared distance of positives, half the squared shortfall to the margin of negatives.

    The mean over all pairs, zero when there is no pair. Hadsell, Chopra and LeCun (2006),
    "Dimensionality Reduction by Learning an Invariant Mapping", equation 4.

    Args:
        margin: How far apart negatives shall be, in units of the embedding.
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
        positives, negatives = positives_and_negatives(labels)
        terms = torch.where(positives, distances, relu(self.margin - distances)) ** 2 / 2
        return _mean(terms[positives | negatives], embeddings)


def _mean(terms: Tensor, embeddings: Tensor) -> Tensor:
    """Return the mean, or, without terms, a zero through which a backward pass reaches the embeddings."""
    return terms.mean() if len(terms) else (embeddings * 0).sum()
