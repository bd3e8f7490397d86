"""A speed trick: the same work written without it and with it, and what is to be known of it."""

import os
import shutil
import sysconfig
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

Call = Callable[[], tuple[Tensor, ...]]
OnLoop = Callable[[], AbstractContextManager[Callable[[], bool]]]
Needs = Literal["", "cuda", "compiler"]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The same work twice: each side may be called any number of times.

    Each side owns what it changes, made from the same seed, so that both have the same state after the
    same number of calls. A call returns what has to be equal then, never empty: outputs, gradients or
    parameters. The tensors may be the side's own, which its next call changes.

    Attributes:
        without: The work as it is written by one who does not know the trick.
        with_: The work with the trick.
    """

    without: Call
    with_: Call


@dataclass(frozen=True, kw_only=True)
class Trick:
    """One trick; every text but the name, the title, the source and the unit is of whole sentences.

    Two values agree when they differ by no more than the absolute tolerance and the relative one times
    the value without the trick, together.

    Attributes:
        name: What it is chosen by.
        title: What it is called in a table.
        what: What it does, and why it may be faster.
        helps: When it does.
        caveat: What to look out for.
        source: Name and address of what it rests on.
        size_means: What a size counts.
        sizes: Sizes to try, rising; the middle one is the default.
        pair: Makes both sides for a size; the time that this takes is no part of the work.
        tolerance_why: Why the results may differ by that much, or why by nothing.
        relative_tolerance: Allowed difference as a share of the value.
        absolute_tolerance: Allowed difference in units of the value.
        loop_tolerance: By how much the gradients of a loop's first step may differ, as a share of their
            length.
        rounds: How many calls of each side are enough in one process, where calls are long; None for any.
        excludes: Names of tricks that it cannot be used together with.
        needs: What not every machine has.
        code: How it is written, as short as it can be.
        on_loop: A context in which any training loop uses the trick, with its code unchanged; at its end
            everything is as it was. It yields a function that tells whether the loop used anything that the
            trick changes. None where there is no such context.
    """

    name: str
    title: str
    what: str
    helps: str
    caveat: str
    source: str
    code: str
    size_means: str
    sizes: tuple[int, ...]
    pair: Callable[[int], Pair]
    tolerance_why: str
    relative_tolerance: float = 0.0
    absolute_tolerance: float = 0.0
    loop_tolerance: float = 0.05
    rounds: int | None = None
    excludes: tuple[str, ...] = ()
    needs: Needs = ""
    on_loop: OnLoop | None = None

    @property
    def default_size(self) -> int:
        """The middle one of the sizes."""
        return self.sizes[len(self.sizes) // 2]


def is_available(trick: Trick) -> str | None:
    """Return why a trick cannot be tried here, or None where it can."""
    if trick.needs == "cuda" and not torch.cuda.is_available():
        return "needs CUDA"
    if trick.needs == "compiler" and not _has_compiler():
        return "needs a C++ compiler and Python's headers"
    return None


def _has_compiler() -> bool:
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return headers.is_file() and shutil.which(os.environ.get("CXX", "g++")) is not None
