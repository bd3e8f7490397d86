"""A speed trick: the same work without it and with it, its cases, their rules, and the choice of tricks."""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from perfkit.errors import UsageError
from perfkit.features.experiments.records import Level
from perfkit.model.policies import JudgedPolicy

if TYPE_CHECKING:
    from torch import Tensor

# This joins the names of tricks that are used together.
TOGETHER = "+"


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A user's target and its arguments; it runs in ``folder`` of the project at ``root``."""

    name: str
    place: str
    arguments: Mapping[str, Level] = field(default_factory=dict)
    root: str
    folder: str


@dataclass(frozen=True, kw_only=True)
class TrickCase:
    """One trick at one size, or one or several on the loop that ``loop`` names.

    ``trick`` joins the names of tricks that are used together. ``title`` and ``size_means`` are for reports.
    """

    trick: str
    size: int = 0
    loop: str = ""
    title: str
    size_means: str = ""

    @property
    def name(self) -> str:
        """What it is called in tables: "channels_last[16]" or "channels_last on train"."""
        return f"{self.trick} on {self.loop}" if self.loop else f"{self.trick}[{self.size}]"

    @property
    def tricks(self) -> tuple[str, ...]:
        """The names of its tricks."""
        return tuple(self.trick.split(TOGETHER))


@dataclass(frozen=True, kw_only=True)
class Equivalence:
    """Whether both sides give the same; ``largest`` is the largest difference as a share of what is allowed.

    Where nothing may differ, ``largest`` is 0 or infinite. ``problem`` is why it could not be checked.
    ``used`` is false where a loop uses nothing that the trick changes.
    """

    equal: bool
    largest: float | None = None
    problem: str = ""
    used: bool = True


@dataclass(frozen=True, kw_only=True)
class CheckedClaim:
    """A statement about a trick and its check, in runs of earlier versions; none is checked any more."""

    name: str
    statement: str
    answer: str
    evidence: str


@dataclass(frozen=True, kw_only=True)
class TricksRun:
    """What all rows of a run of tricks share: the loop's arguments, and the tricks left out, with reasons.

    ``patches`` are the lines of the loop's source that a trick is written into, as a diff without context.
    """

    arguments: Mapping[str, Level]
    left_out: Mapping[str, str]
    patches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    claims: tuple[CheckedClaim, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrickPolicy(JudgedPolicy):
    """The rules of one trick at one size or on a loop; ``run`` is None where the run was cut off."""

    case: TrickCase
    equivalence: Equivalence
    run: TricksRun | None = None


Call = Callable[[], "tuple[Tensor, ...]"]
OnLoop = Callable[[], AbstractContextManager[Callable[[], bool]]]
Needs = Literal["", "cuda", "compiler"]
_MOST_LINES = 9


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The same work ``without`` the trick and ``with_`` it, each with its own state from the same seed.

    A call returns what has to be equal after as many calls: outputs, gradients or parameters.
    """

    without: Call
    with_: Call


@dataclass(frozen=True, kw_only=True)
class Trick:
    """One trick; texts are whole sentences but for the name, the title, the source and ``size_means``.

    Results agree within the ``tolerance``: a share of the value without the trick, plus an amount.
    ``loop_tolerance`` is the largest distance of a loop's first gradients, as a share of their length.
    ``sizes`` rise, the middle one is the default; ``rounds`` are enough where calls are long. ``on_loop`` is
    a context in which any loop uses the trick; it yields whether anything that the trick changes was used.
    What matters ``between_steps``, as in an evaluation, is measured over whole runs. ``rewrite`` is a line
    of source without the trick, as an expression, and what takes its place.
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
    tolerance: tuple[float, float] = (0.0, 0.0)
    loop_tolerance: float = 0.05
    rounds: int | None = None
    excludes: tuple[str, ...] = ()
    needs: Needs = ""
    on_loop: OnLoop | None = None
    between_steps: bool = False
    rewrite: tuple[str, str] | None = None

    @property
    def default_size(self) -> int:
        """The middle one of the sizes."""
        return self.sizes[len(self.sizes) // 2]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The cases to measure, and why other tricks are not tried here: {"pinned_memory": "needs CUDA"}."""

    cases: tuple[TrickCase, ...]
    left_out: Mapping[str, str]


def is_available(trick: Trick) -> str | None:
    """Return why a trick cannot be tried here, or None where it can."""
    import torch

    if trick.needs == "cuda" and not torch.cuda.is_available():
        return "needs CUDA"
    if trick.needs == "compiler":
        headers = Path(sysconfig.get_path("include")) / "Python.h"
        if not headers.is_file() or shutil.which(os.environ.get("CXX", "g++")) is None:
            return "needs a C++ compiler and Python's headers"
    return None


def trick_named(name: str) -> Trick:
    """Return a trick of the catalogue, or the pair that is no trick at all."""
    from perfkit.features.tricks.catalogue import find

    return find(name)


def every_name() -> list[str]:
    """Return the names of all tricks."""
    from perfkit.features.tricks.catalogue import catalogue

    return [trick.name for trick in catalogue()]


def choose(only: Sequence[str], sizes: Sequence[int], *, sweep: bool) -> Choice:
    """Return the named tricks, or all, at these sizes, at all of their own, or at their default."""
    found, left_out = _available(only)
    cases = [
        TrickCase(trick=trick.name, size=size, title=trick.title, size_means=trick.size_means)
        for trick in found
        for size in sizes or (trick.sizes if sweep else (trick.default_size,))
    ]
    return Choice(cases=tuple(cases), left_out=left_out)


def choose_for_loop(only: Sequence[str], loop: str) -> Choice:
    """Return the named tricks, all without names, that can be applied to a loop from outside."""
    for name in only:
        if trick_named(name).on_loop is None:
            raise UsageError(f"{name} cannot be applied to a loop from outside; write it into the code")
    found, left_out = _available(only)
    cases = [TrickCase(trick=trick.name, loop=loop, title=trick.title) for trick in found if trick.on_loop]
    return Choice(cases=tuple(cases), left_out=left_out)


def patch_of(trick: Trick, source: str, name: str) -> tuple[str, ...]:
    """Return the lines of a source that a trick is written into, old and new, of the first few places."""
    if trick.rewrite is None:
        return ()
    pattern, replacement = trick.rewrite
    found: list[str] = []
    for number, line in enumerate(map(str.strip, source.splitlines()), start=1):
        new = re.sub(pattern, replacement, line)
        if new != line and not line.startswith("#") and len(found) < _MOST_LINES:
            found += [f"{name}:{number}", f"- {line}", f"+ {new}"]
    return tuple(found)


def best_pair(cases: Sequence[TrickCase]) -> tuple[TrickCase, TrickCase] | None:
    """Return the first case and the first other one that it can be joined with; None without such."""
    for other in cases[1:]:
        if other.trick not in trick_named(cases[0].trick).excludes:
            return cases[0], other
    return None


def together(cases: Sequence[TrickCase]) -> TrickCase:
    """Return the case of several tricks on the same loop at once."""
    return TrickCase(
        trick=TOGETHER.join(case.trick for case in cases),
        loop=cases[0].loop,
        title=" and ".join(case.title for case in cases),
    )


def _available(only: Sequence[str]) -> tuple[list[Trick], dict[str, str]]:
    """Return the tricks that can be tried here, and why others cannot."""
    from perfkit.features.tricks.catalogue import catalogue

    found: list[Trick] = []
    left_out: dict[str, str] = {}
    for trick in [trick_named(name) for name in only] or catalogue():
        reason = is_available(trick)
        # Compiling takes longer than all other tricks together.
        if reason is None and not only and trick.needs == "compiler":
            reason = "compiles: tried where it is named with --only"
        if reason is None:
            found.append(trick)
        else:
            left_out[trick.name] = reason
    return found, left_out
