"""Measures how close embeddings of one class are to each other, and how far from other classes."""

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from ..images import indices_by_class
from .distances import positives_and_negatives, precompute_pairwise_distances


@dataclass(frozen=True, kw_only=True)
class ClusterMetrics:
    """A summary over clusters or over pairs of clusters, in units of the embedding.

    Attributes:
        minimum: The smallest value.
        maximum: The largest value.
        mean: The arithmetic mean.
        sd: The population standard deviation, since these clusters are all there are.
    """

    minimum: float
    maximum: float
    mean: float
    sd: float


def compute_intercluster_metrics(
    embeddings: Tensor, labels: Tensor, *, distances: Tensor | None = None
) -> ClusterMetrics:
    """Summarise the distances of every two clusters: the distance of their nearest elements.

    Args:
        embeddings: (N, dimension).
        labels: (N,), the cluster of each element.
        distances: (N, N), those of the embeddings; computed unless passed.

    Raises:
        ValueError: There are fewer than two clusters.
    """
    members = list(indices_by_class(labels.tolist()).values())
    if len(members) <= 1:
        raise ValueError(f"expected at least two clusters, found {len(members)}; pass more labels")
    if distances is None:
        distances = precompute_pairwise_distances(embeddings)
    # scatter_reduce does all clusters in one call, but took several times as long on CPU.
    to_elements = torch.stack([distances[rows].amin(dim=0) for rows in members])
    to_clusters = torch.stack([to_elements[:, columns].amin(dim=1) for columns in members])
    first, second = torch.triu_indices(len(members), len(members), offset=1)
    return _summary(to_clusters[first, second])


def compute_intracluster_metrics(
    embeddings: Tensor, labels: Tensor, *, distances: Tensor | None = None
) -> ClusterMetrics:
    """Summarise the diameters of the clusters: the distance of their farthest two elements.

    A cluster of one element has diameter zero.

    Args:
        embeddings: (N, dimension).
        labels: (N,), the cluster of each element.
        distances: (N, N), those of the embeddings; computed unless passed.

    Raises:
        ValueError: There is no element.
    """
    if not len(labels):
        raise ValueError("expected at least one element, found none; pass more embeddings")
    if distances is None:
        distances = precompute_pairwise_distances(embeddings)
    positives, _ = positives_and_negatives(labels)
    farthest = distances.masked_fill(~positives, 0).amax(dim=1)
    members = indices_by_class(labels.tolist()).values()
    return _summary(torch.stack([farthest[places].amax() for places in members]))


def recall_at_1(embeddings: Tensor, labels: Tensor, *, distances: Tensor | None = None) -> float:
    """Return the share of elements, 0 to 1, whose nearest other element is of their own class.

    A tie between classes counts as found; an element alone in its class is not.

    Args:
        embeddings: (N, dimension).
        labels: (N,), the class of each element.
        distances: (N, N), those of the embeddings; computed unless passed.

    Raises:
        ValueError: There are fewer than two elements.
    """
    if len(labels) <= 1:
        raise ValueError(f"expected at least two elements, found {len(labels)}; pass more embeddings")
    if distances is None:
        distances = precompute_pairwise_distances(embeddings)
    positives, negatives = positives_and_negatives(labels)
    nearest_positive = distances.masked_fill(~positives, inf).amin(dim=1)
    nearest_negative = distances.masked_fill(~negatives, inf).amin(dim=1)
    found = (nearest_positive <= nearest_negative) & positives.any(dim=1)
    return found.double().mean().item()


def _summary(values: Tensor) -> ClusterMetrics:
    exact = values.double()
    # All four are transferred to the host at once: each transfer would wait for an accelerator.
    minimum, maximum, mean, sd = torch.stack(
        [exact.min(), exact.max(), exact.mean(), exact.std(correction=0)]
    ).tolist()
    return ClusterMetrics(minimum=minimum, maximum=maximum, mean=mean, sd=sd)
