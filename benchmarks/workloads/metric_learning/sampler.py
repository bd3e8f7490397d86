"""Draws batches of P classes with K images each."""

from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Sampler

from ..images import indices_by_class


class PKSampler(Sampler[list[int]]):
    """Batches of P classes, K images of each, drawn without replacement within an epoch.

    A class with fewer than K images left is dropped; the epoch ends when fewer than P classes
    remain. The order depends on the seed and on the epoch only. Batches of this form are those of
    Hermans, Beyer and Leibe (2017), "In Defense of the Triplet Loss", section 2.

    Args:
        labels: The class of every image.
        p: Classes per batch.
        k: Images per class in a batch.
        seed: The same seed gives the same epochs.

    Raises:
        ValueError: Fewer than P classes have K images, or P or K is not positive.
    """

    def __init__(self, labels: Sequence[int], p: int, k: int, *, seed: int) -> None:
        if min(p, k) < 1:
            raise ValueError(f"expected p and k of at least 1, found p={p} and k={k}; raise them")
        self._members = indices_by_class(labels)
        self._p, self._k, self._seed = p, k, seed
        self._epoch = 0
        large_enough = sum(len(members) >= k for members in self._members.values())
        if large_enough < p:
            raise ValueError(
                f"expected at least p={p} classes of k={k} images or more, found {large_enough}; lower p or k"
            )

    def set_epoch(self, epoch: int) -> None:
        """Choose which epoch's batches the next iteration yields."""
        self._epoch = epoch

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self._epoch)
        left = {label: _shuffled(members, generator) for label, members in self._members.items()}
        while True:
            left = {label: members for label, members in left.items() if len(members) >= self._k}
            if len(left) < self._p:
                return
            chosen = _shuffled(list(left), generator)[: self._p]
            yield [left[label].pop() for label in chosen for _ in range(self._k)]


def _shuffled(items: list[int], generator: torch.Generator) -> list[int]:
    return [items[place] for place in torch.randperm(len(items), generator=generator).tolist()]
