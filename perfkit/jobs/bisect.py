"""``perfkit bisect``: find the commit that changed a benchmark, by measuring as little as will do."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from perfkit.agent.callgrind import INSTRUCTIONS
from perfkit.compare.bisected import TIME, Question, bisect_count, bisect_time
from perfkit.compare.counts import check_valgrind
from perfkit.compare.pairs import PairMeter, Wanted
from perfkit.config import COUNTS, Project, nearest_key
from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_PASS, NotMeasuredError, RunInterruptedError, UsageError
from perfkit.jobs.history import HistoryRequest, read_history
from perfkit.jobs.measuring import measuring
from perfkit.ledger.store import Ledger
from perfkit.measure.clock import utc_now
from perfkit.records.bisection import BisectionReport, BisectProgress
from perfkit.records.history import ChangePoint
from perfkit.repo.ranges import CommitRange, changes_of, commit_range, find_benchmark
from perfkit.temporary import temporary_folder


@dataclass(frozen=True, kw_only=True)
class BisectRequest:
    """The range and the benchmark to bisect, and how sure to be in how many seconds.

    Where ``point`` is set, the range, the benchmark and the metric are those of a change point of the
    history. ``wait_s`` is how long to wait for another perfkit, None for as long as it takes.
    """

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


def run_bisect(request: BisectRequest, *, project: Project, progress: BisectProgress) -> BisectionReport:
    """Find the commits that changed a benchmark; every launch and count is recorded, interrupted or not.

    Raises:
        RepositoryError: git does not know one of the commits.
        UsageError: the range, the benchmark or the metric is none.
        LedgerError: the ledger cannot be read or written.
        NotMeasuredError: no two commits of the range can be measured.
        RunInterruptedError: the person stopped it; the same command goes on.
    """
    good, bad, benchmark, metric = _asked(request, project)
    commits = commit_range(project.root, good, bad, all_parents=request.all_parents)
    source = find_benchmark(commits, benchmark, preferred=project.config.benchmarks)
    ledger = Ledger(request.ledger)
    ledger.check_writable()
    steps = _known_steps(project, request.ledger, commits, benchmark, metric)
    try:
        with measuring(progress.say, wait_s=request.wait_s), temporary_folder() as folder:
            began = time.monotonic()
            progress.begin(commits.commits, benchmark)
            wanted = Wanted.laid(project, commits, benchmark, source, folder, alpha=1 - request.confidence)
            question = Question(
                wanted=wanted,
                metric=metric,
                confidence=request.confidence,
                deadline=began + request.budget_s,
                changes=changes_of(commits),
                steps=steps,
            )
            with PairMeter(wanted, ledger, say=progress.say) as meter:
                found = (bisect_time if metric == TIME else bisect_count)(question, meter, progress)
    except KeyboardInterrupt:
        raise RunInterruptedError("interrupted; the same command goes on where it stood") from None
    except RunInterruptedError as error:
        raise RunInterruptedError(f"{error}; the same command goes on with them") from None
    assert meter.benchmark is not None  # noqa: S101 (a pair was opened)
    return BisectionReport(
        recorded_at=utc_now(),
        good=commits.commits[0],
        bad=commits.commits[-1],
        benchmark=meter.benchmark,
        metric=found.metric,
        confidence=request.confidence,
        answer=found.answer,
        why=found.why,
        steps=found.steps,
        left=found.left,
        commits=commits.last,
        measured=found.measured,
        launches=found.launches,
        earlier=found.earlier,
        skipped=found.skipped,
        runs=tuple(meter.runs),
        machine=meter.machine,
        environment=meter.environment,
        budget_s=request.budget_s,
        wall_s=time.monotonic() - began,
        exit_code=EXIT_INCONCLUSIVE if found.answer == "undecided" else EXIT_PASS,
        notes=found.notes,
    )


def _asked(request: BisectRequest, project: Project) -> tuple[str, str, str, str]:
    """Return the range, the benchmark and the metric that are asked for, as given or of a change point."""
    named = (request.good, request.bad, request.benchmark)
    if request.point is not None:
        if any(named):
            raise UsageError("--from-history names range and benchmark: leave GOOD, BAD and --benchmark out")
        point = _point(request.point, project, request.ledger)
        return point.last_before, point.first_after, point.benchmark, _known_metric(point.metric.name)
    if not (request.good and request.bad and request.benchmark):
        raise UsageError("name GOOD, BAD and --benchmark ID, or --from-history POINT")
    return request.good, request.bad, request.benchmark, _known_metric(request.metric)


def _known_metric(metric: str) -> str:
    if metric != TIME and metric not in COUNTS:
        raise UsageError(f'--metric: there is no "{metric}"; {nearest_key(metric, [TIME, *COUNTS])}')
    if metric == INSTRUCTIONS:
        check_valgrind()
    return metric


def _point(text: str, project: Project, ledger: Path) -> ChangePoint:
    reports = (read_history(project, ledger, HistoryRequest(metric=metric)) for metric in _metrics(ledger))
    found = {
        one.point_id: one for report in reports for one in report.points if one.point_id.startswith(text)
    }
    if len(found) != 1:
        several = f"it could mean {', '.join(sorted(found))}" if found else "`perfkit history` lists them"
        raise UsageError(f'--from-history: "{text}" names no one change point; {several}')
    return next(iter(found.values()))


def _metrics(ledger: Path) -> list[str]:
    """Return the metrics that a ledger has, of those that can be bisected."""
    found = set(Ledger(ledger).sql("SELECT DISTINCT metric FROM ledger")["metric"])
    return [metric for metric in (TIME, *COUNTS) if metric in found]


def _known_steps(
    project: Project, ledger: Path, commits: CommitRange, benchmark: str, metric: str
) -> list[tuple[int, int]]:
    """Return the ranges of places in which the ledger has a step of the benchmark."""
    places = commits.places()
    try:
        points = read_history(project, ledger, HistoryRequest(benchmarks=(benchmark,), metric=metric)).points
    except NotMeasuredError:
        return []
    ranges = [(places.get(one.last_before), places.get(one.first_after)) for one in points]
    return [(low, high) for low, high in ranges if low is not None and high is not None and low < high]
