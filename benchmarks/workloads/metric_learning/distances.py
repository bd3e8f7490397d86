"""Computes the distances between the embeddings of a batch, and which of them are of one class."""

import torch
from torch import Tensor


def precompute_pairwise_distances(embeddings: Tensor) -> Tensor:
    """Compute the Euclidean distances between all elements.

    The gradient of a zero distance, on the diagonal and between duplicates, is zero; the square root has no
    derivative there.

    Args:
        embeddings: (N, dimension).

    Returns:
        (N, N), symmetric, with zeros on the diagonal.
    """
    # From 26 elements on the default mode computes |a|^2 - 2ab + |b|^2, which loses digits for points that
    # are near each other and far from the origin, and gives a diagonal that is not zero.
    return torch.cdist(embeddings, embeddings, compute_mode="donot_use_mm_for_euclid_dist")


def positives_and_negatives(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return of every two elements whether they are positives, of one class, or negatives.

    An element is neither a positive nor a negative of itself.

    Args:
        labels: (N,), the class of each element.

    Returns:
        Two boolean masks, (N, N) each.
    """
    same = labels.unsqueeze(1) == labels
    return same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device), ~same
