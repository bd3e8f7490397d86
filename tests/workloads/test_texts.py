"""Labelled texts are read from the standard library and a user's folders, and split."""

from pathlib import Path

import pytest
from workloads.text_classification.texts import (
    TOPICS,
    DataError,
    LabelledTexts,
    find_texts,
    split_stratified,
    standard_library_texts,
)


@pytest.fixture(scope="module")
def documentation() -> LabelledTexts:
    """Return the standard library's documentation, read once for this module."""
    return standard_library_texts()


def numbered(labels: list[int]) -> LabelledTexts:
    """Return texts that are their own number."""
    return LabelledTexts(
        texts=tuple(str(place) for place in range(len(labels))),
        labels=tuple(labels),
        classes=tuple(f"class-{label}" for label in sorted(set(labels))),
    )


def test_every_topic_has_documentation(documentation: LabelledTexts) -> None:
    """There are hundreds of texts of each class, none of them twice, each of several words."""
    assert tuple(sorted(TOPICS)) == documentation.classes
    assert all(documentation.labels.count(label) >= 200 for label in range(len(TOPICS)))
    assert len(documentation) == len(set(documentation.texts)) == len(documentation.labels)
    assert min(len(text.split()) for text in documentation.texts) >= 5


def test_documentation_is_that_of_the_modules(documentation: LabelledTexts) -> None:
    """Strings of a module, a class and a method are found under the module's topic."""
    topics = dict(zip(documentation.texts, documentation.labels, strict=True))
    for topic, beginning in (
        ("concurrency", "Create a queue object with a given maximum size."),
        ("network", "Simple XML-RPC server."),
        ("testing", "A class whose instances are single test cases."),
        ("text", "JSON (JavaScript Object Notation)"),
    ):
        found = {label for text, label in topics.items() if text.startswith(beginning)}
        assert {documentation.classes.index(topic)} == found


def test_documentation_repeats(documentation: LabelledTexts) -> None:
    """One Python gives the same texts in the same order."""
    assert documentation == standard_library_texts()


def test_a_python_without_its_sources_is_named(tmp_path: Path) -> None:
    """The message says which topic is missing, where, and what else can be done."""
    with pytest.raises(DataError, match=f"{tmp_path}: expected .*, found none on concurrency; pass a folder"):
        standard_library_texts(tmp_path)


def test_texts_of_any_folder_are_found_by_class(tmp_path: Path) -> None:
    """Subfolders are classes; other files than .txt are left out."""
    for name in ("cats/b.txt", "cats/a.txt", "dogs/c.txt", "dogs/c.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"On {name}: naïve", encoding="utf-8")
    assert find_texts(tmp_path) == LabelledTexts(
        texts=("On cats/a.txt: naïve", "On cats/b.txt: naïve", "On dogs/c.txt: naïve"),
        labels=(0, 0, 1),
        classes=("cats", "dogs"),
    )


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
    """The message names the place, what was found, and what to do."""
    for name in folders:
        (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=f"{tmp_path / 'data'}.*expected .*; ") as caught:
        find_texts(tmp_path / "data")
    assert found in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())


def test_texts_that_are_no_text_are_named(tmp_path: Path) -> None:
    """A file in another encoding gives one clear error that names it."""
    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"cats/a\.txt: expected a text in UTF-8, found .*; ") as caught:
        find_texts(tmp_path)
    assert 1 == len(str(caught.value).splitlines())


def test_split_keeps_every_class_in_its_share() -> None:
    """A fifth of each class goes to the test part, and every text to one part only."""
    texts = numbered([0] * 50 + [1] * 10)
    train, test = split_stratified(texts, seed=3)
    assert (10, 2) == (test.labels.count(0), test.labels.count(1))
    assert set(texts.texts) == set(train.texts) | set(test.texts)
    assert len(texts) == len(train) + len(test)


def test_split_follows_its_seed() -> None:
    """One seed gives one split, another seed another."""
    texts = numbered([0] * 50)
    assert split_stratified(texts, seed=0) == split_stratified(texts, seed=0)
    assert split_stratified(texts, seed=0) != split_stratified(texts, seed=1)


def test_a_class_of_too_few_texts_is_named() -> None:
    """Of four texts a fifth is none: such a class could not be tested."""
    with pytest.raises(DataError, match="expected at least 5 texts of class class-1, found 4; "):
        split_stratified(numbered([0] * 5 + [1] * 4), seed=0)
