"""Both sides of a comparison, opened with their benchmarks while this process holds the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from perfkit.compare.sides import OpenSides, Scope, open_sides
from perfkit.compare.survey import Survey, take_survey
from perfkit.config import Project
from perfkit.jobs.measuring import measuring
from perfkit.measure.lockstep.scout import say_nothing
from perfkit.repo.sides import SidePair


@dataclass(frozen=True, kw_only=True)
class SurveyedSides:
    """Both sides and what was found on them.

    It ``began`` at that reading of the monotonic clock, after another perfkit had kept it waiting for
    ``waited_s`` seconds.
    """

    sides: OpenSides
    survey: Survey
    began: float
    waited_s: float


@contextmanager
def surveyed_sides(
    pair: SidePair,
    project: Project,
    scope: Scope,
    *,
    margin: float | None,
    wait_s: float | None,
    say: Callable[[str], None],
    tell_stage: Callable[[str], None] = say_nothing,
) -> Iterator[SurveyedSides]:
    """Hold the machine, lay out both sides, and collect their benchmarks; all of it is removed at the end.

    ``say`` hears for whom this process waits, ``tell_stage`` which stage begins.

    Raises:
        NotMeasuredError: the machine was not let go in time, or a side's benchmarks cannot be collected.
        RepositoryError: a side cannot be laid out.
        UsageError: neither side has what was asked for, or there is nothing to compare.
    """
    with measuring(say, wait_s=wait_s) as waited_s:
        began = time.monotonic()
        tell_stage("checking out both sides")
        with open_sides(pair, project, scope) as sides:
            tell_stage("collecting benchmarks")
            survey = take_survey(sides, margin=margin, say=tell_stage)
            yield SurveyedSides(sides=sides, survey=survey, began=began, waited_s=waited_s)
