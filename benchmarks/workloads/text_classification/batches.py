"""Joins encoded texts to batches, each padded to its longest text."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

from .texts import LabelledTexts
from .tokens import PADDING_ID, Vocabulary

Item = tuple[Tensor, int]


class Batch(NamedTuple):
    """The texts of one batch; it is a named tuple, so that the loader can pin its tensors.

    Attributes:
        tokens: (N, length) numbers of words.
        mask: (N, length) whether there is a word, not padding.
        labels: (N,) numbers of classes.
    """

    tokens: Tensor
    mask: Tensor
    labels: Tensor

    def to(self, device: str) -> "Batch":
        """Return the batch on another device; from pinned memory the host does not wait for the copy."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


class EncodedTexts(Dataset[Item]):
    """Texts as numbers of words, encoded once.

    Args:
        texts: What to encode.
        vocabulary: The numbers of the words.
        max_length: Where to cut a text, in words.
    """

    def __init__(self, texts: LabelledTexts, vocabulary: Vocabulary, *, max_length: int) -> None:
        self._tokens = [torch.tensor(vocabulary.encode(text, max_length=max_length)) for text in texts.texts]
        self._labels = texts.labels

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, index: int) -> Item:
        return self._tokens[index], self._labels[index]


def collate(items: Sequence[Item]) -> Batch:
    """Join texts to a batch as long as the longest of them."""
    tokens = pad_sequence([tokens for tokens, _ in items], batch_first=True, padding_value=PADDING_ID)
    return Batch(tokens, mask=tokens != PADDING_ID, labels=torch.tensor([label for _, label in items]))


def batch_loader(
    texts: EncodedTexts, order: Sampler[int], *, batch_size: int, workers: int, seed: int, pin_memory: bool
) -> DataLoader[Item]:
    """Return a loader of batches in this order, which reads with this many processes (0: in this one)."""
    return DataLoader(
        texts,
        batch_size=batch_size,
        sampler=order,
        collate_fn=collate,
        num_workers=workers,
        pin_memory=pin_memory,
        generator=torch.Generator().manual_seed(seed),
    )
