"""How well embeddings of one class keep together and apart from others."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf
from statistics import fmean, pstdev

from torch import Tensor

from perfkit.workloads.metric_learning.data import indices_by_class
from perfkit.workloads.metric_learning.distances import precompute_pairwise_distances


@dataclass(frozen=True, kw_only=True)
class ClusterMetrics:
    """A summary over clusters or over pairs of clusters, in units of the embedding.

    Attributes:
        minimum: The smallest value.
        maximum: The largest value.
        mean: The arithmetic mean.
        sd: The population standard deviation: the clusters at hand are all there are.
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
    clusters = list(indices_by_class(labels.tolist()).values())
    if len(clusters) <= 1:
        raise ValueError(f"expected at least two clusters, found {len(clusters)}; pass more labels")
    if distances is None:
        distances = precompute_pairwise_distances(embeddings)
    return _summary(
        [
            min(distances[i, j].item() for i in first for j in second)
            for first, second in combinations(clusters, 2)
        ]
    )


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
    clusters = indices_by_class(labels.tolist()).values()
    if not clusters:
        raise ValueError("expected at least one element, found none; pass more embeddings")
    if distances is None:
        distances = precompute_pairwise_distances(embeddings)
    return _summary(
        [
            max((distances[i, j].item() for i, j in combinations(members, 2)), default=0.0)
            for members in clusters
        ]
    )


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
    classes = labels.tolist()
    if len(classes) <= 1:
        raise ValueError(f"expected at least two elements, found {len(classes)}; pass more embeddings")
    if distances is None:
        distances = precompute_pairwise_distances(embeddings)
    found = 0
    for anchor in range(len(classes)):
        nearest = {True: inf, False: inf}
        for other in range(len(classes)):
            if other != anchor:
                fellow = classes[other] == classes[anchor]
                nearest[fellow] = min(nearest[fellow], distances[anchor, other].item())
        found += nearest[True] < inf and nearest[True] <= nearest[False]
    return found / len(classes)


def _summary(values: Sequence[float]) -> ClusterMetrics:
    return ClusterMetrics(minimum=min(values), maximum=max(values), mean=fmean(values), sd=pstdev(values))
