"""A vocabulary of the most frequent words, which turns texts into the numbers of their words."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

PADDING, UNKNOWN, CLASS = SPECIAL = ("[PAD]", "[UNK]", "[CLS]")
PADDING_ID = SPECIAL.index(PADDING)

# The parts of names_like_this are words of their own.
_WORD = re.compile(r"[^\W_]+")


class Vocabulary:
    """Words and their numbers.

    Args:
        words: The word of each number, the special ones first.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(words)
        self._ids = {word: number for number, word in enumerate(self._words)}

    @classmethod
    def from_texts(cls, texts: Iterable[str], *, size: int) -> "Vocabulary":
        """Return the vocabulary of the most frequent words, of equally frequent ones the first by name.

        Args:
            texts: Where to find the words.
            size: The most words to keep, special ones among them.
        """
        counts = Counter(word for text in texts for word in _words(text))
        by_frequency = sorted(counts, key=lambda word: (-counts[word], word))
        return cls([*SPECIAL, *by_frequency][:size])

    def __len__(self) -> int:
        return len(self._words)

    def encode(self, text: str, *, max_length: int) -> list[int]:
        """Return the numbers of a text's words after that of [CLS], `max_length` of them at most."""
        unknown = self._ids[UNKNOWN]
        words = (CLASS, *_words(text))[:max_length]
        return [self._ids.get(word, unknown) for word in words]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Return the words of these numbers."""
        return [self._words[number] for number in ids]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
