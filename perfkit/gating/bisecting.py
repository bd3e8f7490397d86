"""The search for the commit that changed a benchmark: what to measure next, until it is known or time is up.

It starts no process, and reads no clock itself: a meter and a clock are passed to it.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_PASS, NotMeasuredError
from perfkit.gating.exact import NEWS_OF_INSTRUCTIONS, compare_count
from perfkit.gating.pairs import PairMeter, Wanted
from perfkit.model import WALL_TIME, Metric
from perfkit.model.bisection import (
    Answer,
    BisectionReport,
    BisectProgress,
    FoundStep,
    LeftRange,
    Level,
    SearchState,
    SkippedCommit,
    Suspect,
)
from perfkit.model.differences import Section
from perfkit.repo.ranges import CommitChange, CommitRange, author_of, changes_of, diff_stat
from perfkit.runner.agent.callgrind import INSTRUCTIONS
from perfkit.runner.agent.reach import may_run
from perfkit.runner.clock import utc_now
from perfkit.stats.bisection import (
    Conclusion,
    Costs,
    Measure,
    MeasuredPair,
    Rules,
    Step,
    next_move,
    posterior,
)

# How much a commit is suspected beforehand: one that changes no code, one that does, one that changes
# functions which the benchmark may run. The last two findings multiply that.
_NO_CODE, _CODE, _REACHED = 0.1, 1.0, 10.0
_OF_ALL_GROWTH, _IN_A_STEP = 9.0, 5.0
# Until a pair has been opened and launched, it is taken to cost so many seconds.
_USUAL_COSTS = Costs(opening_s=8.0, launch_s=0.5)
# So many steps of a count are sought.
_MOST_STEPS = 3


class Meter(Protocol):
    """Measures pairs of places; one pair is open at a time."""

    @property
    def open_pair(self) -> tuple[int, int] | None:
        """The places of the open pair."""

    def open(self, base: int, head: int) -> Mapping[int, str]:
        """Open a pair, and return why places of it cannot be measured."""

    def launch(self) -> float | Mapping[int, str]:
        """Return ln(head / base) of a launch of the open pair, or why places of it cannot be measured."""

    def count(self, places: Sequence[int], metric: str) -> Mapping[int, float | str]:
        """Return the counts of one or two places, or why one cannot be counted."""


def weigh(
    changes: Sequence[CommitChange],
    *,
    reached: Iterable[tuple[str, str]] = (),
    grown: Mapping[tuple[str, str], float] | None = None,
    steps: Iterable[tuple[int, int]] = (),
) -> list[float]:
    """Return how much each place from 1 on is suspected before anything is measured; none of them is 0.

    ``reached`` are the functions that the benchmark may run, by file and qualified name. ``grown`` has the
    share of the growth between both ends that functions have, by file and bare name. ``steps`` are ranges
    (after the first place, up to the second) in which the ledger has a step.
    """
    reached = frozenset(reached)
    weights = []
    for place, change in enumerate(changes, start=1):
        weight = _CODE if change.touches_code else _NO_CODE
        if may_run(change.code, reached):
            weight = _REACHED
        share = sum(part for (file, name), part in (grown or {}).items() if _changes(change, file, name))
        weight *= 1 + _OF_ALL_GROWTH * min(share, 1.0)
        weights.append(weight * (_IN_A_STEP if any(low < place <= high for low, high in steps) else 1.0))
    return weights


def _changes(change: CommitChange, file: str, name: str) -> bool:
    """Tell whether a commit changes a function that a profile knows by its bare name."""
    if file not in change.code:
        return False
    names = change.code[file]
    return names is None or any(one.rpartition(".")[2] == name for one in names)


def growth(section: Section) -> dict[tuple[str, str], float]:
    """Return the share that each function has of what took longer on head, by file and bare name."""
    grown: dict[tuple[str, str], float] = {}
    for part in section.parts:
        if part.kind == "own code" and part.place and part.amount.moved_s > 0:
            key = part.place.rpartition(":")[0], part.name.rpartition(".")[2]
            grown[key] = grown.get(key, 0.0) + part.amount.moved_s
    whole = math.fsum(grown.values())
    return {key: moved / whole for key, moved in grown.items()}


@dataclass(kw_only=True)
class _End:
    """One end of a range on its way inward: past what failed, then back by halves to the outermost place."""

    place: int
    inward: int
    settled: bool = False
    _failed: int | None = None
    _stride: int = 1
    _good: int | None = None

    def hear(self, *, failed: bool, sure: bool, room: int) -> None:
        """Move after the place was tried; where it neither failed nor is ``sure``, it is tried again.

        ``room`` is how far away the other end is.
        """
        if failed:
            self._failed = self.place
        elif sure:
            self._good = self.place
        else:
            return
        if self._good is None:
            self.place += self.inward * max(min(self._stride, room // 2), 1)
            self._stride *= 2
        elif self._failed is None or abs(self._good - self._failed) == 1:
            self.place, self.settled = self._good, True
        else:
            self.place = self._failed + self.inward * (abs(self._good - self._failed) // 2)


@dataclass(kw_only=True)
class Search:
    """A search between two places, which move inward where they cannot be measured.

    ``deadline`` is a reading of ``clock``, a monotonic clock in seconds. ``tell`` hears what is measured
    next. ``unusable`` says why places cannot be measured.
    """

    meter: Meter
    last: int
    deadline: float
    tell: Callable[[SearchState], None]
    clock: Callable[[], float] = time.monotonic
    first: int = 0
    unusable: dict[int, str] = field(default_factory=dict)
    remembered: set[int] = field(default_factory=set)

    def open_ends(self) -> None:
        """Open the outermost places that can be measured; at first they are sought in growing strides.

        Raises:
            NotMeasuredError: no two places can be, or the time is up before two are found.
        """
        self._move_inward()
        low, high = _End(place=self.first, inward=1), _End(place=self.last, inward=-1)
        while not (low.settled and high.settled):
            if low.place >= high.place:
                raise NotMeasuredError(self._nothing("no two of the commits that were tried can be measured"))
            if self.unusable and self.clock() >= self.deadline:
                raise NotMeasuredError(self._nothing("the time was up before two commits could be measured"))
            failed = self.meter.open(low.place, high.place)
            self.unusable |= failed
            room = high.place - low.place
            for end in (low, high):
                end.hear(failed=end.place in failed, sure=not failed, room=room)
        self.first, self.last = low.place, high.place
        self.meter.open(self.first, self.last)

    def _move_inward(self) -> None:
        while self.first in self.unusable:
            self.first += 1
        while self.last in self.unusable:
            self.last -= 1
        if self.first >= self.last:
            raise NotMeasuredError(self._nothing("no two commits of this range can be measured"))

    def _nothing(self, what: str) -> str:
        return f"{what}: {next(reversed(self.unusable.values()), 'none was tried')}"

    def _remember(self, unusable: Mapping[int, str]) -> None:
        """Take over which places earlier runs could not measure; the ends were tried anew, and can be."""
        self.remembered = {place for place in unusable if self.first < place < self.last}
        self.unusable |= {place: unusable[place] for place in self.remembered if place not in self.unusable}

    def _try_again(self, places: Iterable[int]) -> bool:
        """Forget that suspected places failed in earlier runs, as the cause may be gone; tell if any had."""
        again = self.remembered.intersection(places)
        self.remembered -= again
        for place in again:
            del self.unusable[place]
        return bool(again)

    def _tell(self, places: tuple[int, int], launches: int, left: int) -> None:
        left_s = max(self.deadline - self.clock(), 0.0)
        base, head = places
        self.tell(SearchState(base=base, head=head, launches=launches, left=left, left_s=left_s))


@dataclass(kw_only=True)
class TimeSearch(Search):
    """Seeks the steps of a benchmark's time: ``pairs`` are the log ratios of launches, by places."""

    rules: Rules
    pairs: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    _opening_s: list[float] = field(default_factory=list)
    _launch_s: list[float] = field(default_factory=list)

    def know(self, pairs: Iterable[MeasuredPair], unusable: Mapping[int, str]) -> None:
        """Take over what earlier runs have measured."""
        for one in pairs:
            self.pairs.setdefault((one.base, one.head), []).extend(one.log_ratios)
        self._remember(unusable)

    def begin(self) -> None:
        """Make a launch of both ends, unless there are some."""
        while not self.pairs.get((self.first, self.last)):
            self.open_ends()
            self._launch()

    def run(self, weights: Sequence[float]) -> Conclusion:
        """Measure until the commit is known or the time is up; ``weights`` are those of places from 1 on."""
        while True:
            self._move_inward()
            move = next_move(
                self._known(),
                weights=weights[self.first : self.last],
                unusable=self._unusable_inside(),
                costs=self._costs(),
                rules=self.rules,
                open_pair=self._moved(self.meter.open_pair),
            )
            if isinstance(move, Conclusion):
                found = self._outside(move)
                if not self._try_again(place for step in found.steps for place in step.places):
                    return found
                continue
            if not self._measure(move, weights):
                return Conclusion(steps=(), status="undecided", why="the budget is spent")

    def left(self, weights: Sequence[float]) -> tuple[int, int, int, float]:
        """Return the first and last place that are suspected, how many are, and how probable they are.

        They are the fewest places that together are as probable as the confidence that is asked for.
        """
        shares = posterior(
            self._known(),
            weights=weights[self.first : self.last],
            unusable=self._unusable_inside(),
            rules=self.rules,
        )
        places = sorted(range(len(shares)), key=lambda place: -shares[place])
        sums = list(itertools.accumulate(shares[place] for place in places))
        many = next((size for size, whole in enumerate(sums, 1) if whole >= self.rules.confidence), len(sums))
        likely, begin = places[:many], self.first + 1
        return begin + min(likely), begin + max(likely), many, sums[many - 1]

    def _measure(self, move: Measure, weights: Sequence[float]) -> bool:
        """Make launches of a pair while there is time; return whether there was any."""
        base, head = move.base + self.first, move.head + self.first
        left = self.left(weights)[2] if self.pairs else self.last - self.first
        for number in range(move.launches):
            if self.clock() >= self.deadline:
                return number > 0
            self._tell((base, head), len(self.pairs.get((base, head), ())), left)
            if self.meter.open_pair != (base, head):
                begun = self.clock()
                failed = self.meter.open(base, head)
                self._opening_s.append(self.clock() - begun)
                if failed:
                    self.unusable |= failed
                    return True
            if not self._launch():
                return True
        return True

    def _launch(self) -> bool:
        """Make a launch of the open pair, and return whether it was complete."""
        places = self.meter.open_pair
        begun = self.clock()
        found = self.meter.launch()
        if isinstance(found, float) and places is not None:
            self._launch_s.append(self.clock() - begun)
            self.pairs.setdefault(places, []).append(found)
            return True
        if isinstance(found, Mapping):
            self.unusable |= found
        return False

    def _costs(self) -> Costs:
        """Return what opening and launching took so far; a first launch also finds the pace."""
        launches = self._launch_s[1:] or self._launch_s
        return Costs(
            opening_s=_mean(self._opening_s) or _USUAL_COSTS.opening_s,
            launch_s=_mean(launches) or _USUAL_COSTS.launch_s,
        )

    def _known(self) -> list[MeasuredPair]:
        """Return the pairs between both ends, with places that begin at the first of them.

        Those are left out that are neither pairs with that place nor neighbours among what was measured: such
        were left behind by an end that moved, or by a place that could not be measured at first.
        """
        inside = {
            pair: logs
            for pair, logs in self.pairs.items()
            if self.first <= pair[0] and pair[1] <= self.last and logs
        }
        places = sorted({self.first, self.last}.union(*inside))
        neighbours = frozenset(itertools.pairwise(places))
        return [
            MeasuredPair(base=base - self.first, head=head - self.first, log_ratios=tuple(logs))
            for (base, head), logs in inside.items()
            if base == self.first or (base, head) in neighbours
        ]

    def _unusable_inside(self) -> frozenset[int]:
        return frozenset(place - self.first for place in self.unusable if self.first < place < self.last)

    def _moved(self, pair: tuple[int, int] | None) -> tuple[int, int] | None:
        return None if pair is None else (pair[0] - self.first, pair[1] - self.first)

    def _outside(self, found: Conclusion) -> Conclusion:
        steps = tuple(
            replace(step, places=tuple(place + self.first for place in step.places)) for step in found.steps
        )
        return replace(found, steps=tuple(sorted(steps, key=lambda one: -abs(one.log_ratio))))


@dataclass(frozen=True, kw_only=True)
class CountedStep:
    """A step of a count between two places that were counted, with nothing between them that can be."""

    base: int
    head: int
    before: float
    after: float

    @property
    def moved(self) -> float:
        """By how much it moved, in either direction."""
        return abs(self.after - self.before)


@dataclass(kw_only=True)
class CountSearch(Search):
    """Seeks the steps of a count by counting as few commits as will do, each of them once.

    Counts that differ by no more than the share ``tolerance`` are taken for equal.
    """

    metric: str
    tolerance: float
    counts: dict[int, float] = field(default_factory=dict)
    status: Literal["found", "no change", "undecided"] = "undecided"
    why: str = ""

    def know(self, counts: Mapping[int, float], unusable: Mapping[int, str]) -> None:
        """Take over what earlier runs have counted."""
        self.counts = {**counts, **self.counts}
        self._remember(unusable)

    def run(self, weights: Sequence[float]) -> list[CountedStep]:
        """Count until the largest steps are known or the time is up, and return those that are known."""
        while places := self._next(weights):
            if self.clock() >= self.deadline:
                self.status, self.why = "undecided", "the budget is spent"
                break
            self._tell((places[0], places[-1]), 0, self.candidates())
            for place, found in self.meter.count(places, self.metric).items():
                if isinstance(found, str):
                    self.unusable[place] = found
                else:
                    self.counts[place] = found
        return [step for step in self._largest() if not self._inside(step)]

    def candidates(self) -> int:
        """Return how many commits may have made the largest step."""
        steps = self._steps()
        return steps[0].head - steps[0].base if steps else self.last - self.first

    def left(self) -> CountedStep | None:
        """Return the largest step that commits still lie in that can be counted, None where there is none."""
        return next((step for step in self._largest() if self._inside(step)), None)

    def more(self) -> int:
        """Return how many smaller steps were not sought."""
        return len(self._steps()[_MOST_STEPS:])

    def _next(self, weights: Sequence[float]) -> tuple[int, ...]:
        """Return the one or two places to count next, none where all is known."""
        self._move_inward()
        ends = tuple(place for place in (self.first, self.last) if place not in self.counts)
        if ends:
            return ends
        if not self._differ(self.counts[self.first], self.counts[self.last]):
            self.status, self.why = "no change", "both ends have the same count"
            return ()
        if self.left() is None:
            self._try_again(place for one in self._largest() for place in range(one.base + 1, one.head))
        step = self.left()
        if step is None:
            self.status, self.why = "found", "no commit that can be counted is left between the last two"
            return ()
        return _thirds(step, self._inside(step), weights)

    def _steps(self) -> list[CountedStep]:
        """Return the steps between neighbours among the counted places, the largest first."""
        known = sorted(place for place in self.counts if self.first <= place <= self.last)
        found = (
            CountedStep(base=base, head=head, before=self.counts[base], after=self.counts[head])
            for base, head in itertools.pairwise(known)
            if self._differ(self.counts[base], self.counts[head])
        )
        return sorted(found, key=lambda step: -step.moved)

    def _largest(self) -> list[CountedStep]:
        return self._steps()[:_MOST_STEPS]

    def _differ(self, one: float, other: float) -> bool:
        return abs(one - other) > self.tolerance * max(abs(one), abs(other))

    def _inside(self, step: CountedStep) -> list[int]:
        return [place for place in range(step.base + 1, step.head) if place not in self.unusable]


def _thirds(step: CountedStep, inside: Sequence[int], weights: Sequence[float]) -> tuple[int, ...]:
    """Return the two places inside a step that part its weights into thirds, or the one that there is."""
    before = [math.fsum(weights[step.base : place]) for place in inside]
    whole = math.fsum(weights[step.base : step.head])

    def off(at: int, share: float) -> float:
        return abs(before[at] - share * whole)

    first = min(range(len(inside)), key=lambda at: off(at, 1 / 3))
    others = [at for at in range(len(inside)) if at != first]
    second = min(others, key=lambda at: off(at, 2 / 3)) if others else first
    return tuple(inside[at] for at in sorted({first, second}))


def _mean(seconds: Sequence[float]) -> float:
    return math.fsum(seconds) / len(seconds) if seconds else 0.0


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
