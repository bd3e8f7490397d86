"""Both kinds of bisection from their opened range to what is reported of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_PASS
from perfkit.gating.bisecting import CountedStep, CountSearch, TimeSearch, growth, weigh
from perfkit.gating.counter_verdicts import compare_count
from perfkit.gating.pairs import PairMeter, Wanted
from perfkit.identity import utc_now
from perfkit.model import WALL_TIME, Metric
from perfkit.model.bisection import (
    Answer,
    BisectionReport,
    BisectProgress,
    FoundStep,
    LeftRange,
    Level,
    SkippedCommit,
    Suspect,
)
from perfkit.model.counters import NEWS_OF_INSTRUCTIONS
from perfkit.model.counting import INSTRUCTIONS
from perfkit.repo.ranges import CommitRange, author_of, changes_of, diff_stat
from perfkit.stats.bisection import Rules, Step

TIME = WALL_TIME.name
# A count that does not repeat to the digit has moved where it did so by more than this share.
_NEWS_OF_INEXACT = 0.05
_INEXACT = frozenset({"resident", "python_peak"})
# So many launches are made of a found commit beside the one before it.
_CONFIRMING = 4
# With fewer commits, asking the ends for their profiles takes longer than it saves.
_WORTH_PROFILING = 8


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a range: its metric and confidence, and when the search has to end.

    ``deadline`` is a reading of the monotonic clock. ``steps`` are the ranges of places in which the ledger
    has a step.
    """

    wanted: Wanted
    metric: str
    confidence: float
    deadline: float
    steps: Sequence[tuple[int, int]]

    @property
    def commits(self) -> CommitRange:
        """The range."""
        return self.wanted.commits


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a search found, as a report tells it."""

    answer: Answer
    why: str
    metric: Metric
    steps: tuple[FoundStep, ...]
    left: LeftRange | None
    measured: int
    launches: int
    earlier: int
    skipped: tuple[SkippedCommit, ...]
    notes: tuple[str, ...]


def bisect_time(question: Question, meter: PairMeter, progress: BisectProgress) -> Outcome:
    """Seek the commits that changed a benchmark's time.

    Raises:
        NotMeasuredError: no two commits can be measured, or other code was measured than a commit's own.
        RecordingError: the ledger cannot be written any more.
    """
    search = TimeSearch(
        meter=meter,
        last=question.commits.last,
        deadline=question.deadline,
        tell=progress.update,
        clock=time.monotonic,
        rules=Rules(confidence=question.confidence, confirming=_CONFIRMING),
    )
    search.open_ends()
    earlier = meter.earlier(TIME)
    search.know(earlier.pairs, earlier.unusable)
    search.begin()
    weights = _weights(question, meter, _growth(search, meter, progress))
    found = search.run(weights)
    # Where it is undecided, the steps are only where one is likely.
    sure = found.steps if found.status == "found" else ()
    if sure and meter.profiles:
        progress.info("profiling what was found")
    steps = tuple(
        _timed_step(step, search, meter, question.commits, explained=number == 0)
        for number, step in enumerate(sure)
    )
    places = {place for pair in search.pairs for place in pair}
    return Outcome(
        answer=found.status,
        why=found.why,
        metric=WALL_TIME,
        steps=steps,
        left=_left_of_time(search, weights, question.commits) if found.status == "undecided" else None,
        measured=len(places),
        launches=sum(map(len, search.pairs.values())),
        earlier=sum(len(one.log_ratios) for one in earlier.pairs),
        skipped=_skipped(question.commits, search.unusable),
        notes=(*_moved_ends(search.first, search.last, question.commits), *meter.notes),
    )


def bisect_count(question: Question, meter: PairMeter, progress: BisectProgress) -> Outcome:
    """Seek the commits that changed a count of a benchmark, the largest step first.

    Raises:
        NotMeasuredError: no two commits can be counted, or other code was counted than a commit's own.
        RecordingError: the ledger cannot be written any more.
    """
    metric = question.metric
    search = CountSearch(
        meter=meter,
        last=question.commits.last,
        deadline=question.deadline,
        tell=progress.update,
        clock=time.monotonic,
        metric=metric,
        tolerance=_tolerance(metric),
    )
    search.open_ends()
    earlier = meter.earlier(metric)
    search.know(earlier.counts, earlier.unusable)
    found = search.run(_weights(question, meter, {}))
    notes = [*_moved_ends(search.first, search.last, question.commits), *meter.notes]
    if search.more():
        notes.append(f"{search.more()} smaller steps of the count were not sought")
    units = (one.unit for counts in meter.counts.values() for one in counts.counts if one.metric == metric)
    return Outcome(
        answer=search.status,
        why=search.why,
        metric=Metric(name=metric, unit=next(units, "1"), exact=metric not in _INEXACT),
        steps=tuple(_counted_step(one, search, meter, question.commits) for one in found),
        left=_left_of_count(search, question.commits) if search.status == "undecided" else None,
        measured=len(search.counts),
        launches=0,
        earlier=len(earlier.counts),
        skipped=_skipped(question.commits, search.unusable),
        notes=tuple(notes),
    )


def report_of(
    question: Question, found: Outcome, meter: PairMeter, *, budget_s: float, wall_s: float
) -> BisectionReport:
    """Return what is reported of a search."""
    assert meter.benchmark is not None  # noqa: S101 (a search opens a pair at least)
    return BisectionReport(
        recorded_at=utc_now(),
        good=question.commits.commits[0],
        bad=question.commits.commits[-1],
        benchmark=meter.benchmark,
        metric=found.metric,
        confidence=question.confidence,
        answer=found.answer,
        why=found.why,
        steps=found.steps,
        left=found.left,
        commits=question.commits.last,
        measured=found.measured,
        launches=found.launches,
        earlier=found.earlier,
        skipped=found.skipped,
        runs=tuple(meter.runs),
        machine=meter.machine,
        environment=meter.environment,
        budget_s=budget_s,
        wall_s=wall_s,
        exit_code=EXIT_INCONCLUSIVE if found.answer == "undecided" else EXIT_PASS,
        notes=(*_source_note(question), *found.notes),
    )


def _source_note(question: Question) -> Iterable[str]:
    """Yield a note where the benchmark is not the bad commit's own."""
    source = question.wanted.source
    if source.kind != "bad":
        place = "GOOD" if source.kind == "good" else "the working tree"
        yield f"BAD has no such benchmark: that of {place}, {source.file}, was measured at all commits"


def _tolerance(metric: str) -> float:
    if metric == INSTRUCTIONS:
        return NEWS_OF_INSTRUCTIONS
    return _NEWS_OF_INEXACT if metric in _INEXACT else 0.0


def _weights(question: Question, meter: PairMeter, grown: dict[tuple[str, str], float]) -> Sequence[float]:
    """Return how much each commit is suspected; only files are read whose functions the benchmark may run."""
    changes = changes_of(question.commits, read={file for file, _ in (*meter.reached, *grown)})
    return weigh(changes, reached=meter.reached, grown=grown, steps=question.steps)


def _growth(search: TimeSearch, meter: PairMeter, progress: BisectProgress) -> dict[tuple[str, str], float]:
    """Return which functions' times grew between the ends, where it is worth asking and there is time."""
    few = search.last - search.first < _WORTH_PROFILING
    if few or not meter.profiles or search.clock() >= search.deadline:
        return {}
    progress.info("profiling both ends")
    found = meter.explain(search.first, search.last)
    return growth(found.section) if found is not None and found.section is not None else {}


def _timed_step(
    step: Step, search: TimeSearch, meter: PairMeter, commits: CommitRange, *, explained: bool
) -> FoundStep:
    base, head = _around(step.places, search.unusable)
    before, after = meter.levels(base, head)
    return FoundStep(
        suspects=_suspects(commits, step.places, search.unusable),
        last_before=commits.commits[base],
        ratio=math.exp(step.log_ratio),
        low=math.exp(step.low),
        high=math.exp(step.high),
        probability=step.probability,
        before=before,
        after=after,
        explanation=meter.explain(base, head) if explained else None,
    )


def _around(places: Sequence[int], unusable: Iterable[int]) -> tuple[int, int]:
    """Return the nearest two places around suspected ones that can be measured."""
    barred = frozenset(unusable)
    base, head = min(places) - 1, max(places)
    while base in barred and base > 0:
        base -= 1
    while head in barred:
        head += 1
    return base, head


def _counted_step(
    step: CountedStep, search: CountSearch, meter: PairMeter, commits: CommitRange
) -> FoundStep:
    old, new = (
        next(one for one in meter.counts[place].counts if one.metric == search.metric)
        for place in (step.base, step.head)
    )
    assert meter.benchmark is not None  # noqa: S101 (it is known from the first pair on)
    places = range(step.base + 1, step.head + 1)
    return FoundStep(
        suspects=_suspects(commits, places, search.unusable),
        last_before=commits.commits[step.base],
        ratio=step.after / step.before if step.before else None,
        low=None,
        high=None,
        probability=1.0,
        before=Level(mean=step.before, sd=None, launches=1),
        after=Level(mean=step.after, sd=None, launches=1),
        counted=compare_count(meter.benchmark, old, new, margin=search.tolerance, gating=False),
    )


def _suspects(commits: CommitRange, places: Sequence[int], unusable: dict[int, str]) -> tuple[Suspect, ...]:
    return tuple(_suspect(commits, place, unusable.get(place)) for place in places)


def _suspect(commits: CommitRange, place: int, skipped: str | None) -> Suspect:
    stat = diff_stat(commits.root, commits.sha(place - 1), commits.sha(place))
    return Suspect(
        commit=commits.commits[place],
        author=author_of(commits.root, commits.sha(place)),
        files=stat.files,
        added=stat.added,
        removed=stat.removed,
        skipped=skipped,
    )


def _left_of_time(search: TimeSearch, weights: Sequence[float], commits: CommitRange) -> LeftRange:
    begin, end, many, share = search.left(weights)
    return LeftRange(
        last_before=commits.commits[begin - 1], bad=commits.commits[end], commits=many, probability=share
    )


def _left_of_count(search: CountSearch, commits: CommitRange) -> LeftRange | None:
    step = search.left()
    if step is None:
        return None
    return LeftRange(
        last_before=commits.commits[step.base],
        bad=commits.commits[step.head],
        commits=step.head - step.base,
        probability=1.0,
    )


def _skipped(commits: CommitRange, unusable: dict[int, str]) -> tuple[SkippedCommit, ...]:
    return tuple(
        SkippedCommit(commit=commits.commits[place], reason=why) for place, why in sorted(unusable.items())
    )


def _moved_ends(first: int, last: int, commits: CommitRange) -> Iterable[str]:
    """Yield a note on each end that could not be measured, since what it changed is not known then."""
    for name, place, end in (("GOOD", first, 0), ("BAD", last, commits.last)):
        if place != end:
            yield (
                f"{name} cannot be measured: the search {'began' if end == 0 else 'ended'} at"
                f" {commits.sha(place)[:10]}, and of the commits beyond it nothing is known"
            )
