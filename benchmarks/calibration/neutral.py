"""Changes of the suite that add no work: what a gate finds in them is the layout of code in memory.

Each changes the suite's own files, never its benchmarks' files, which a gate takes from head for both sides.
"""

from __future__ import annotations

import ast
import itertools
import random
import re
from collections.abc import Callable, Mapping

Files = Mapping[str, str]
_WORK = "work.py"
# Local names of the works, each with names that nothing else in them has.
_LOCALS = {
    "distances": ("gaps", "distances_of_all_points"),
    "gradient": ("slope", "gradient_of_the_loss"),
    "counts": ("sums", "letters_by_word"),
    "embeddings": ("places", "embeddings_of_one_batch"),
    "weights": ("factors", "weights_of_the_regression"),
    "words": ("terms", "words_that_are_counted"),
}
_SENTENCES = (
    "Each work is done in whole units.",
    "What is made beforehand is no part of the call.",
    "A unit costs the same no matter what was done before it.",
    "The sizes are such that a call of twenty units takes less than a millisecond on most machines.",
)


def change(kind: str, files: Files, *, number: int) -> Files:
    """Return the files of the suite after a change of a kind, its details drawn from ``number``."""
    source = random.Random(number)  # noqa: S311 (a lot, not a secret)
    return KINDS[kind](source, files)


def _comment(source: random.Random, files: Files) -> Files:
    """Write a comment above one of the functions."""
    parts = _parts(files[_WORK])
    place = source.randrange(1, len(parts))
    lines = "".join(f"# {sentence}\n" for sentence in source.sample(_SENTENCES, source.randint(1, 3)))
    return {**files, _WORK: "".join((*parts[:place], lines, *parts[place:]))}


def _constant(source: random.Random, files: Files) -> Files:
    """Give the module one constant more."""
    name = f"_LIMIT_{'OF_ALL_' * source.randint(0, 3)}WORKS"
    line = f"_TENTH = 10\n{name} = {source.randint(1000, 10**9)}\n"
    return {**files, _WORK: files[_WORK].replace("_TENTH = 10\n", line, 1)}


def _unused_function(source: random.Random, files: Files) -> Files:
    """Give the module a function that nothing calls."""
    parts = _parts(files[_WORK])
    place = source.randrange(1, len(parts))
    sums = "".join(f"    total += {source.randint(2, 99)} * units\n" for _ in range(source.randint(1, 12)))
    function = f"def unused_work(units: int) -> int:\n    total = 0\n{sums}    return total\n\n\n"
    return {**files, _WORK: "".join((*parts[:place], function, *parts[place:]))}


def _renamed_local(source: random.Random, files: Files) -> Files:
    """Rename a local variable."""
    name = source.choice(list(_LOCALS))
    new = source.choice(_LOCALS[name])
    # Not what follows a point: that is another's name.
    return {**files, _WORK: re.sub(rf"(?<![.\w\"]){name}\b", new, files[_WORK])}


def _reordered_functions(source: random.Random, files: Files) -> Files:
    """Put the functions and classes of the module in another order."""
    first, *parts = _parts(files[_WORK])
    before = [part.strip("\n") for part in parts]
    after = before
    while after == before:
        after = source.sample(before, len(before))
    return {**files, _WORK: first + "\n\n\n".join(after) + "\n"}


def _new_module(source: random.Random, files: Files) -> Files:
    """Have the module import a new one."""
    name = f"described{source.randint(0, 99):02}"
    lines = "".join(f'    "work {place}": "{source.choice(_SENTENCES)}",\n' for place in range(30))
    text = f'"""What is known of the works."""\n\nDESCRIPTIONS = {{\n{lines}}}\n'
    imported = f"import {name}  # noqa: F401\nimport numpy as np\n"
    return {**files, f"{name}.py": text, _WORK: files[_WORK].replace("import numpy as np\n", imported, 1)}


def _longer_path(source: random.Random, files: Files) -> Files:
    """Make a package of a module, whose one file is then a folder deeper."""
    name = source.choice((_WORK, "doses.py"))
    others = {other: text for other, text in files.items() if other != name}
    return {**others, f"{name.removesuffix('.py')}/__init__.py": files[name]}


KINDS: Mapping[str, Callable[[random.Random, Files], Files]] = {
    "a comment": _comment,
    "a constant more": _constant,
    "an unused function": _unused_function,
    "a renamed local": _renamed_local,
    "reordered functions": _reordered_functions,
    "a new module": _new_module,
    "a longer path": _longer_path,
}


def _parts(text: str) -> list[str]:
    """Return what stands before the first function or class of a module, and each of these, as they stand."""
    lines = text.splitlines(keepends=True)
    defined = [
        node.lineno - 1 for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    begins = [0, *defined, len(lines)]
    return ["".join(lines[begin:end]) for begin, end in itertools.pairwise(begins)]
