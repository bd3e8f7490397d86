"""Texts with the class of each, and their split into a training and a test part."""

import ast
import math
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

# These are modules of the standard library by topic; some have a leading underscore in newer Pythons.
TOPICS = {
    "concurrency": ("concurrent", "multiprocessing", "queue", "threading"),
    "files": ("bz2", "gzip", "lzma", "pathlib", "shutil", "tarfile", "zipfile"),
    "network": ("imaplib", "ipaddress", "smtplib", "socketserver", "xmlrpc"),
    "numbers": ("_pydatetime", "_pydecimal", "calendar", "datetime", "numbers", "random", "statistics"),
    "testing": ("bdb", "doctest", "pdb", "unittest"),
    "text": ("codecs", "configparser", "csv", "json", "xml"),
}
LEAST_WORDS = 5
LEAST_PER_CLASS = 5

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class DataError(ValueError):
    """The texts asked for are missing or unusable; the message names the place and the next step."""


@dataclass(frozen=True, kw_only=True)
class LabelledTexts:
    """Texts with the number of the class of each.

    Attributes:
        texts: The texts themselves.
        labels: The class of each text, an index into `classes`.
        classes: The names of the classes, sorted.
    """

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def subset(self, indices: Sequence[int]) -> "LabelledTexts":
        """Return the texts at these indices, in this order; all classes are kept."""
        return LabelledTexts(
            texts=tuple(self.texts[index] for index in indices),
            labels=tuple(self.labels[index] for index in indices),
            classes=self.classes,
        )


def standard_library_texts(library: Path | None = None) -> LabelledTexts:
    """Return documentation strings of the standard library; the class is the topic of their module.

    Strings of fewer than five words are left out, since they hardly show their topic.

    Args:
        library: The folder of the modules' source files; None for that of the running Python.

    Raises:
        DataError: The source files of a whole topic are missing.
    """
    folder = library or Path(sysconfig.get_path("stdlib"))
    topics: dict[str, str] = {}
    for topic, modules in TOPICS.items():
        for text in _documentation(folder, modules):
            # A text that occurs twice is kept once, so that none is in both parts of a split.
            topics.setdefault(text, topic)
    if missing := sorted(TOPICS.keys() - topics.values()):
        raise DataError(
            f"{folder}: expected the source files of the standard library, found none on {missing[0]}; "
            "pass a folder of texts as data"
        )
    return _labelled(topics.items(), classes=sorted(TOPICS))


def _documentation(folder: Path, modules: Iterable[str]) -> Iterator[str]:
    for module in modules:
        for path in (*folder.glob(f"{module}.py"), *sorted(folder.glob(f"{module}/**/*.py"))):
            # Older Pythons keep the tests of a package inside it.
            if "test" not in path.relative_to(folder).parts:
                for definition in _definitions(ast.parse(path.read_bytes())):
                    text = ast.get_docstring(definition) or ""
                    if len(text.split()) >= LEAST_WORDS:
                        yield text


def _definitions(outer: Definition) -> Iterator[Definition]:
    yield outer
    for statement in outer.body:
        if isinstance(statement, Definition):
            yield from _definitions(statement)


def find_texts(folder: Path) -> LabelledTexts:
    """Read the .txt files of a folder that holds one subfolder per class.

    Raises:
        DataError: There is no such folder, it holds fewer than two classes or a class without texts, or
            a file is not UTF-8.
    """
    if not folder.is_dir():
        raise DataError(
            f"{folder}: expected a folder with one subfolder of .txt files per class, found no folder; "
            "pass an existing folder as data, or none for the standard library's documentation"
        )
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if len(classes) < 2:
        raise DataError(
            f"{folder}: expected at least 2 subfolders, one per class, found {len(classes)}; "
            "put the .txt files of each class into a subfolder of its own"
        )
    return _labelled(
        ((text, name) for name in classes for text in _class_texts(folder / name)), classes=classes
    )


def _class_texts(folder: Path) -> list[str]:
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        raise DataError(
            f"{folder}: expected .txt files, found none; add texts of this class, or remove the folder"
        )
    return [_read(path) for path in paths]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: expected a text in UTF-8, found {error}; replace the file or remove it"
        ) from error


def _labelled(found: Iterable[tuple[str, str]], *, classes: Sequence[str]) -> LabelledTexts:
    pairs = list(found)
    return LabelledTexts(
        texts=tuple(text for text, _ in pairs),
        labels=tuple(classes.index(name) for _, name in pairs),
        classes=tuple(classes),
    )


def split_stratified(
    texts: LabelledTexts, *, test_fraction: float = 0.2, seed: int
) -> tuple[LabelledTexts, LabelledTexts]:
    """Split into a training and a test part with about the same share of every class.

    Args:
        texts: What to split.
        test_fraction: Share of each class that goes to the test part, rounded down.
        seed: The same seed gives the same split.

    Raises:
        DataError: A class has fewer than five texts.
    """
    generator = torch.Generator().manual_seed(seed)
    train: list[int] = []
    test: list[int] = []
    for label, name in enumerate(texts.classes):
        members = [index for index, other in enumerate(texts.labels) if label == other]
        if len(members) < LEAST_PER_CLASS:
            raise DataError(
                f"expected at least {LEAST_PER_CLASS} texts of class {name}, found {len(members)}; "
                "add some, or leave the class out"
            )
        held_out = math.floor(len(members) * test_fraction)
        shuffled = [members[place] for place in torch.randperm(len(members), generator=generator).tolist()]
        test += sorted(shuffled[:held_out])
        train += sorted(shuffled[held_out:])
    return texts.subset(train), texts.subset(test)
