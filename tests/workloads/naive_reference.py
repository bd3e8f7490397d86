"""These losses and metrics are written element by element from their definitions, to compare with.

Nothing here comes from the package: elements are rows of a tensor, classes a list of integers.
"""

from itertools import combinations, permutations, product
from statistics import fmean, pstdev

import torch
from torch import Tensor


def distance(first: Tensor, second: Tensor) -> Tensor:
    """Return the Euclidean distance of two points, with a zero gradient where they are equal."""
    if torch.equal(first, second):
        return (first - second).sum() * 0
    return ((first - second) ** 2).sum().sqrt()


def hinge(value: Tensor) -> Tensor:
    """Return the value where it is positive, else zero."""
    return value if value > 0 else value * 0


def mean_or_zero(terms: list[Tensor], embeddings: Tensor) -> Tensor:
    """Return the mean, or a zero that leads back to the embeddings where there is no term."""
    return torch.stack(terms).mean() if terms else embeddings.sum() * 0


def batch_hard(embeddings: Tensor, classes: list[int], *, margin: float) -> Tensor:
    """Return the batch-hard triplet loss."""
    terms = []
    for anchor, own in enumerate(classes):
        others = [other for other in range(len(classes)) if other != anchor]
        positives = [distance(embeddings[anchor], embeddings[o]) for o in others if classes[o] == own]
        negatives = [distance(embeddings[anchor], embeddings[o]) for o in others if classes[o] != own]
        if positives and negatives:
            terms.append(hinge(margin + torch.stack(positives).max() - torch.stack(negatives).min()))
    return mean_or_zero(terms, embeddings)


def batch_all(embeddings: Tensor, classes: list[int], *, margin: float, only_positive: bool) -> Tensor:
    """Return the triplet loss over all triplets, or over those that cost something."""
    terms = [
        hinge(
            margin
            + distance(embeddings[anchor], embeddings[positive])
            - distance(embeddings[anchor], embeddings[negative])
        )
        for anchor, positive, negative in permutations(range(len(classes)), 3)
        if classes[anchor] == classes[positive] != classes[negative]
    ]
    return mean_or_zero([term for term in terms if term > 0 or not only_positive], embeddings)


def contrastive(embeddings: Tensor, classes: list[int], *, margin: float) -> Tensor:
    """Return the contrastive loss over all pairs."""
    terms = []
    for i, j in combinations(range(len(classes)), 2):
        apart = distance(embeddings[i], embeddings[j])
        short = apart if classes[i] == classes[j] else hinge(margin - apart)
        terms.append(short * short / 2)
    return mean_or_zero(terms, embeddings)


def summary(values: list[float]) -> tuple[float, float, float, float]:
    """Return minimum, maximum, mean and population standard deviation."""
    return min(values), max(values), fmean(values), pstdev(values)


def members(classes: list[int]) -> list[list[int]]:
    """Return the indices of the elements of every class."""
    return [[i for i, own in enumerate(classes) if own == name] for name in sorted(set(classes))]


def intercluster(embeddings: Tensor, classes: list[int]) -> tuple[float, float, float, float]:
    """Summarise the distances of the nearest elements of every two classes."""
    return summary(
        [
            min(distance(embeddings[i], embeddings[j]).item() for i, j in product(first, second))
            for first, second in combinations(members(classes), 2)
        ]
    )


def intracluster(embeddings: Tensor, classes: list[int]) -> tuple[float, float, float, float]:
    """Summarise the distances of the farthest two elements of every class."""
    return summary(
        [
            max(distance(embeddings[i], embeddings[j]).item() for i, j in product(group, group))
            for group in members(classes)
        ]
    )


def recall_at_1(embeddings: Tensor, classes: list[int]) -> float:
    """Return the share of elements with one of their own class among their nearest others."""
    found = 0
    for anchor, own in enumerate(classes):
        apart = {
            other: distance(embeddings[anchor], embeddings[other]).item()
            for other in range(len(classes))
            if other != anchor
        }
        nearest = [other for other, value in apart.items() if value == min(apart.values())]
        found += any(classes[other] == own for other in nearest)
    return found / len(classes)
