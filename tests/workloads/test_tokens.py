"""Words become numbers and back, and batches are cut, padded and masked."""

import torch
from torch.utils.data import SequentialSampler
from workloads.text_classification.batches import EncodedTexts, batch_loader, collate
from workloads.text_classification.texts import LabelledTexts
from workloads.text_classification.tokens import SPECIAL, Vocabulary

TEXTS = ("Close the file.", "Open the file, the SOCKET or the http_server!", "")


def test_words_come_back_from_their_numbers() -> None:
    """A known text survives but for its case and its punctuation, after the token of the class."""
    vocabulary = Vocabulary.from_texts(TEXTS, size=100)
    words = vocabulary.decode(vocabulary.encode(TEXTS[1], max_length=100))
    assert "[CLS] open the file the socket or the http server" == " ".join(words)
    assert ["[CLS]"] == vocabulary.decode(vocabulary.encode(TEXTS[2], max_length=100))


def test_vocabulary_keeps_the_most_frequent_words() -> None:
    """The special words come first, then others by their number, then by name; the rest is unknown."""
    vocabulary = Vocabulary.from_texts(TEXTS, size=6)
    assert len(vocabulary) == 6
    assert [*SPECIAL, "the", "file", "close"] == vocabulary.decode(range(6))
    assert ["[CLS]", "[UNK]", "the", "file"] == vocabulary.decode(
        vocabulary.encode("Read the file", max_length=9)
    )


def test_long_texts_are_cut() -> None:
    """The token of the class counts as one of the words."""
    vocabulary = Vocabulary.from_texts(TEXTS, size=100)
    assert ["[CLS]", "open", "the"] == vocabulary.decode(vocabulary.encode(TEXTS[1], max_length=3))


def test_words_of_any_script_are_words() -> None:
    """Letters with accents and of other alphabets stay inside their words."""
    text = "Größe naïve слово 语言"
    vocabulary = Vocabulary.from_texts([text], size=100)
    assert ["[CLS]", "größe", "naïve", "слово", "语言"] == vocabulary.decode(
        vocabulary.encode(text, max_length=9)
    )


def encoded() -> EncodedTexts:
    """Return the texts above, of four, ten and one tokens."""
    labelled = LabelledTexts(texts=TEXTS, labels=(0, 1, 0), classes=("files", "network"))
    return EncodedTexts(labelled, Vocabulary.from_texts(TEXTS, size=100), max_length=64)


def test_a_batch_is_as_long_as_its_longest_text() -> None:
    """Shorter texts are padded, and the mask covers exactly the words."""
    texts = encoded()
    batch = collate([texts[index] for index in range(3)])
    assert (3, 10) == tuple(batch.tokens.shape)
    assert [4, 10, 1] == batch.mask.sum(dim=1).tolist()
    assert [True, True, True, True, False] == batch.mask[0, :5].tolist()
    assert {0} == set(batch.tokens[~batch.mask].tolist())
    assert [0, 1, 0] == batch.labels.tolist()
    assert (1, 4) == tuple(collate([texts[0]]).tokens.shape)


def test_a_loader_gives_the_same_batches_with_any_number_of_workers() -> None:
    """Two processes load what one does, in the same order, the last batch with what is left."""
    texts = encoded()
    alone, with_workers = (
        list(
            batch_loader(
                texts, SequentialSampler(texts), batch_size=2, workers=workers, seed=0, pin_memory=False
            )
        )
        for workers in (0, 2)
    )
    assert [2, 1] == [len(batch.labels) for batch in alone]
    for batch, other in zip(alone, with_workers, strict=True):
        assert all(map(torch.equal, batch, other))
