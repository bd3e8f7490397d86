"""The rules that rows of tricks were measured under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfkit.features.experiments.records import Level
from perfkit.features.tricks.records import CheckedClaim, Equivalence, TrickCase
from perfkit.model.policies import JudgedPolicy


@dataclass(frozen=True, kw_only=True)
class TricksRun:
    """What all rows of a run of tricks share: the loop's arguments, and the tricks left out, with reasons."""

    arguments: Mapping[str, Level]
    left_out: Mapping[str, str]
    claims: tuple[CheckedClaim, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrickPolicy(JudgedPolicy):
    """The rules of one trick at one size or on a loop; ``run`` is None where the run was cut off."""

    case: TrickCase
    equivalence: Equivalence
    run: TricksRun | None = None
