"""Distances between the embeddings of a batch."""

from itertools import combinations

import torch
from torch import Tensor


def precompute_pairwise_distances(embeddings: Tensor) -> dict[tuple[int, int], Tensor]:
    """Compute the Euclidean distance of every two different elements.

    The distance of an element to itself is left out: it is zero whatever the embedding.

    Args:
        embeddings: (N, dimension).

    Returns:
        The distance of elements i and j, a 0-dim tensor, at (i, j) and at (j, i).
    """
    distances = {}
    for (i, first), (j, second) in combinations(enumerate(embeddings), 2):
        distances[i, j] = distances[j, i] = torch.dist(first, second)
    return distances
