"""A trick at one size or on a training loop, the equivalence of its sides, and the rules of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perfkit.features.experiments.records import Level
from perfkit.model.policies import JudgedPolicy

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
