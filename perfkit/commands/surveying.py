"""What a gate is asked for, and both sides opened with their benchmarks while it holds the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from perfkit.choices import RulesOf
from perfkit.commands.measuring import measuring
from perfkit.config import Project
from perfkit.gating.engine import Terms
from perfkit.gating.sides import OpenSides, Scope, check_selection, open_sides
from perfkit.gating.survey import Rules, Survey, finding_on, take_survey, under_rules
from perfkit.gating.target_benchmark import TargetBenchmark
from perfkit.model import Benchmark, Side
from perfkit.model.progress import ComparisonProgress
from perfkit.repo.environments import check_wanted, side_environments
from perfkit.repo.sides import SidePair, resolve_same, resolve_sides
from perfkit.report.gate.wording import told_changes
from perfkit.runner.lockstep.scout import ignore_log


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    """What to compare, and how; what is None follows from the configuration.

    A ``target`` is compared alone, in place of benchmarks. With ``exact_only`` nothing is timed; with
    ``instructions`` callgrind counts, too. ``wait_s`` is how long to wait for another perfkit, in seconds,
    None for as long as it takes. ``environments`` are those of the sides: requirements, files of them, or
    folders; nothing stands for the present environment. ``rules`` are the side whose configuration and
    markers decide, ``changed_rules`` those that head changes without effect on this gate, and
    ``dropped_targets`` the targets that base counts and head has no more, or defines otherwise.
    """

    base: str | None
    head: str | None
    benchmarks: str | None
    select: str | None
    terms: Terms
    as_is: bool
    ledger: Path
    seed: int
    exact_only: bool = False
    instructions: bool = False
    wait_s: float | None = None
    environments: Mapping[Side, Sequence[str]] = field(default_factory=dict)
    target: TargetBenchmark | None = None
    rules: RulesOf = "base"
    changed_rules: tuple[str, ...] = ()
    dropped_targets: tuple[str, ...] = ()

    @property
    def of_environments(self) -> bool:
        """Whether a side is measured in another environment than the present one."""
        return any(self.environments.values())


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
    log: Callable[[str], None],
    tell_stage: Callable[[str], None] = ignore_log,
    environments: Mapping[Side, Sequence[str]] = MappingProxyType({}),
    rules: RulesOf = "base",
) -> Iterator[SurveyedSides]:
    """Hold the machine, lay out both sides, and collect their benchmarks; all of it is removed at the end.

    ``log`` hears for whom this process waits, ``tell_stage`` which stage begins.

    Raises:
        NotMeasuredError: the machine was not let go in time, or a side's benchmarks cannot be collected.
        RepositoryError: a side cannot be laid out.
        UsageError: neither side has what was asked for, there is nothing to compare, or an environment cannot
            be built.
    """
    with measuring(log, wait_s=wait_s) as waited_s:
        built = side_environments(environments, log=tell_stage)
        # Building an environment may take minutes, which are no part of the budget.
        began = time.monotonic()
        tell_stage("checking out both sides")
        with open_sides(pair, project, scope, environments=built) as sides:
            tell_stage("collecting benchmarks")
            survey = take_survey(sides, margin=margin, rules=rules, log=tell_stage)
            yield SurveyedSides(sides=sides, survey=survey, began=began, waited_s=waited_s)


def resolve_request(request: GateRequest, project: Project) -> SidePair:
    """Return the sides that are asked for, once the selection is known to be valid.

    Raises:
        RepositoryError: a side cannot be found.
        UsageError: pytest does not accept the selection, or an environment that is asked for cannot be one.
    """
    check_selection(request.select, project)
    check_wanted(request.environments)
    ignored = (*project.output_paths, request.ledger)
    resolve = resolve_same if request.of_environments else resolve_sides
    return resolve(project.root, base=request.base, head=request.head, ignored=ignored)


@contextmanager
def requested_sides(
    request: GateRequest, pair: SidePair, project: Project, *, seed: int, progress: ComparisonProgress
) -> Iterator[SurveyedSides]:
    """Tell which sides are compared, and open them as they are asked for.

    Raises:
        NotMeasuredError: the machine was not let go in time, or a side's benchmarks cannot be collected.
        RepositoryError: a side cannot be laid out.
        UsageError: neither side has what was asked for, or there is nothing to compare.
    """
    scope = Scope(
        benchmarks=request.benchmarks,
        select=request.select,
        as_is=request.as_is,
        seed=seed,
        target=request.target,
    )
    progress.begin("\n".join((*told_changes(request.changed_rules), *pair.remarks, pair.title)))
    with surveyed_sides(
        pair,
        project,
        scope,
        margin=request.terms.margin,
        wait_s=request.wait_s,
        log=progress.info,
        tell_stage=progress.info,
        environments=request.environments,
        rules=request.rules,
    ) as opened:
        rules = Rules.of(project.config, margin=request.terms.margin)
        dropped = (
            finding_on(
                under_rules(Benchmark(name=name, version=""), rules),
                "MISSING",
                "head has no such target in tool.perfkit.targets, or defines it otherwise",
            )
            for name in request.dropped_targets
        )
        survey = replace(opened.survey, findings=(*opened.survey.findings, *dropped))
        yield replace(opened, survey=survey)
