"""``perfkit bisect``: find the commit that changed a benchmark, by measuring as little as possible."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from perfkit.agent.counters.model import INSTRUCTIONS
from perfkit.commands.history import HistoryRequest, point_named, step_ranges
from perfkit.commands.tasks import HERE, EngineChoice, PairPlan, open_pairs
from perfkit.config import Project, nearest_key
from perfkit.errors import RunInterruptedError, UsageError
from perfkit.gating.bisecting import TIME, Bisection
from perfkit.gating.counters import check_valgrind
from perfkit.gating.packages import PackageMeter, PackageSearch, group_name, packages_report
from perfkit.gating.pairs import Wanted
from perfkit.ledger.store import Ledger
from perfkit.model import Side
from perfkit.model.bisection import BisectionReport, BisectProgress, PackagesReport
from perfkit.model.counters import COUNTS
from perfkit.repo.commits import (
    CommitRange,
    commit_range,
    find_benchmark,
    open_repository,
    read_commit,
    resolve,
)
from perfkit.repo.environments import check_wanted, side_environments
from perfkit.repo.mixed import Mixtures
from perfkit.runner.lock import measuring
from perfkit.temporary import temporary_folder
from perfkit.units import counted

_SHOWN_DIGITS = 10


@dataclass(frozen=True, kw_only=True)
class BisectRequest:
    """The range and the benchmark to bisect, or a change ``point`` of the history that has both."""

    good: str | None
    bad: str | None
    benchmark: str | None
    point: str | None = None
    metric: str = TIME
    confidence: float = 0.95
    budget_s: float = 1200.0
    all_parents: bool = False
    ledger: Path
    wait_s: float | None = None
    engine: EngineChoice = HERE


def run_bisect(request: BisectRequest, *, project: Project, progress: BisectProgress) -> BisectionReport:
    """Find the commits that changed a benchmark; every launch and count is recorded, even if interrupted."""
    good, bad, benchmark, metric = _asked(request, project)
    commits = commit_range(project.root, good, bad, all_parents=request.all_parents)
    source = find_benchmark(commits, benchmark, preferred=project.config.benchmarks)
    ledger = Ledger(request.ledger)
    ledger.check_writable()
    known = HistoryRequest(benchmarks=(benchmark,), metric=metric)
    steps = step_ranges(project, request.ledger, known, places=commits.places())
    with _going_on():
        held = measuring(progress.info, wait_s=request.wait_s) if request.engine.is_local else nullcontext()
        with held, temporary_folder() as folder:
            began = time.monotonic()
            progress.begin(
                [one.sha[:_SHOWN_DIGITS] for one in commits.commits],
                f"bisecting {benchmark}: {counted(commits.last, 'commit')} after"
                f" {commits.sha(0)[:_SHOWN_DIGITS]} up to {commits.sha(commits.last)[:_SHOWN_DIGITS]}",
            )
            wanted = Wanted.laid(project, commits, benchmark, source, folder, alpha=1 - request.confidence)
            bisection = Bisection(
                wanted=wanted,
                metric=metric,
                confidence=request.confidence,
                budget_s=request.budget_s,
                began=began,
                steps=steps,
            )
            plan = PairPlan(wanted=wanted, metric=metric, all_parents=request.all_parents)
            with open_pairs(request.engine, plan, ledger, log=progress.info) as meter:
                report = bisection.run(meter, progress)
    return replace(report, wall_s=time.monotonic() - began)


@dataclass(frozen=True, kw_only=True)
class PackagesRequest:
    """Two environments and the benchmark whose change between them is looked for, at HEAD."""

    wanted: Mapping[Side, Sequence[str]]
    benchmark: str | None
    confidence: float = 0.95
    budget_s: float = 1200.0
    ledger: Path
    wait_s: float | None = None


def run_package_bisect(
    request: PackagesRequest, *, project: Project, progress: BisectProgress
) -> PackagesReport:
    """Find the packages that changed a benchmark; every launch is recorded, even if interrupted."""
    if not request.benchmark:
        raise UsageError("name the benchmark that changed: --benchmark ID")
    check_wanted(request.wanted)
    head = resolve(open_repository(project.root), "HEAD")
    commits = CommitRange(root=project.root, commits=(head, head))
    source = find_benchmark(commits, request.benchmark, preferred=project.config.benchmarks)
    ledger = Ledger(request.ledger)
    ledger.check_writable()
    with _going_on(), measuring(progress.info, wait_s=request.wait_s), temporary_folder() as folder:
        mixtures = Mixtures(side_environments(request.wanted, log=progress.info), project.root)
        if not mixtures.names:
            raise UsageError(
                "no package differs between the two; `perfkit gate --base-with` compares environments"
            )
        began = time.monotonic()
        wanted = Wanted.laid(
            project, commits, request.benchmark, source, folder, alpha=1 - request.confidence
        )

        def opening(groups: Sequence[frozenset[str]]) -> PackageMeter:
            names = [group_name(group, mixtures.names) for group in groups]
            text = f"{request.benchmark}: {counted(len(groups) - 1, 'package')} may have changed it"
            progress.begin(names, text, "package")
            known = search.meter.benchmark if search.meter else None
            return PackageMeter(
                wanted,
                ledger,
                mixtures=mixtures,
                groups=groups,
                budget_s=request.budget_s,
                log=progress.info,
                benchmark=known,
            )

        search = PackageSearch(
            mixtures=mixtures,
            opening=opening,
            confidence=request.confidence,
            deadline=began + request.budget_s,
            progress=progress,
        )
        report = packages_report(
            search, wanted=wanted, confidence=request.confidence, budget_s=request.budget_s
        )
    dirty = read_commit(project.root, ignored=project.output_paths).dirty
    notes = (*report.notes, *(("HEAD is measured, without uncommitted changes",) if dirty else ()))
    return replace(report, wall_s=time.monotonic() - began, notes=notes)


@contextmanager
def _going_on() -> Iterator[None]:
    """Add to an interruption that the same command goes on."""
    try:
        yield
    except KeyboardInterrupt:
        raise RunInterruptedError("interrupted; the same command goes on") from None
    except RunInterruptedError as error:
        raise RunInterruptedError(f"{error}; the same command goes on") from None


def _asked(request: BisectRequest, project: Project) -> tuple[str, str, str, str]:
    """Return the range, the benchmark and the metric, as given or of a change point."""
    request.engine.check()
    named = (request.good, request.bad, request.benchmark)
    if request.point is not None:
        if any(named):
            raise UsageError("--from-history names range and benchmark: leave GOOD, BAD and --benchmark out")
        point = point_named(request.point, project=project, ledger=request.ledger, metrics=(TIME, *COUNTS))
        return (
            point.last_before,
            point.first_after,
            point.benchmark,
            _known_metric(point.metric.name, request),
        )
    if not (request.good and request.bad and request.benchmark):
        raise UsageError("name GOOD, BAD and --benchmark ID, or --from-history POINT")
    return request.good, request.bad, request.benchmark, _known_metric(request.metric, request)


def _known_metric(metric: str, request: BisectRequest) -> str:
    if metric != TIME and metric not in COUNTS:
        raise UsageError(f'--metric: there is no "{metric}"; {nearest_key(metric, [TIME, *COUNTS])}')
    if metric == INSTRUCTIONS and request.engine.is_local:
        check_valgrind()
    return metric
