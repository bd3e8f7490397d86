"""Labelled texts are read, split, turned into numbers and back, and batched."""

from pathlib import Path

import pytest
import torch
from torch.utils.data import SequentialSampler
from workloads.text_classification.batches import EncodedTexts, batch_loader, collate
from workloads.text_classification.texts import (
    TOPICS,
    DataError,
    LabelledTexts,
    find_texts,
    standard_library_texts,
)
from workloads.text_classification.tokens import SPECIAL, Vocabulary


@pytest.fixture(scope="module")
def documentation() -> LabelledTexts:
    """Return the standard library's documentation, read once for this module."""
    return standard_library_texts()


def test_every_topic_has_documentation(documentation: LabelledTexts) -> None:
    assert tuple(sorted(TOPICS)) == documentation.classes
    assert all(documentation.labels.count(label) >= 200 for label in range(len(TOPICS)))
    assert len(documentation) == len(set(documentation.texts)) == len(documentation.labels)
    assert min(len(text.split()) for text in documentation.texts) >= 5


def test_a_python_without_its_sources_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path}: expected .*, found none on concurrency; pass a folder"):
        standard_library_texts(tmp_path)


@pytest.mark.parametrize(
    ("folders", "found"),
    [
        ([], "found no folder"),
        (["data"], "at least 2 subfolders, one per class, found 0"),
        (["data", "data/cats"], "found 1"),
        (["data", "data/cats", "data/dogs"], "cats: expected .txt files, found none"),
    ],
)
def test_missing_texts_are_named_in_one_line(tmp_path: Path, folders: list[str], found: str) -> None:
    for name in folders:
        (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=f"{tmp_path / 'data'}.*expected .*; ") as caught:
        find_texts(tmp_path / "data")
    assert found in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())


TEXTS = ("Close the file.", "Open the file, the SOCKET or the http_server!", "")


def test_words_come_back_from_their_numbers() -> None:
    vocabulary = Vocabulary.from_texts(TEXTS, size=100)
    words = vocabulary.decode(vocabulary.encode(TEXTS[1], max_length=100))
    assert "[CLS] open the file the socket or the http server" == " ".join(words)
    assert ["[CLS]"] == vocabulary.decode(vocabulary.encode(TEXTS[2], max_length=100))


def test_vocabulary_keeps_the_most_frequent_words() -> None:
    vocabulary = Vocabulary.from_texts(TEXTS, size=6)
    assert len(vocabulary) == 6
    assert [*SPECIAL, "the", "file", "close"] == vocabulary.decode(range(6))
    assert ["[CLS]", "[UNK]", "the", "file"] == vocabulary.decode(
        vocabulary.encode("Read the file", max_length=9)
    )


def encoded() -> EncodedTexts:
    """Return the texts above, of four, ten and one tokens."""
    labelled = LabelledTexts(texts=TEXTS, labels=(0, 1, 0), classes=("files", "network"))
    return EncodedTexts(labelled, Vocabulary.from_texts(TEXTS, size=100), max_length=64)


def test_a_batch_is_as_long_as_its_longest_text() -> None:
    texts = encoded()
    batch = collate([texts[index] for index in range(3)])
    assert (3, 10) == tuple(batch.tokens.shape)
    assert [4, 10, 1] == batch.mask.sum(dim=1).tolist()
    assert [True, True, True, True, False] == batch.mask[0, :5].tolist()
    assert {0} == set(batch.tokens[~batch.mask].tolist())
    assert [0, 1, 0] == batch.labels.tolist()
    assert (1, 4) == tuple(collate([texts[0]]).tokens.shape)


def test_a_loader_gives_the_same_batches_with_any_number_of_workers() -> None:
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
