"""The search for the commit that changed a benchmark, from an opened range to a report.

It starts no process itself: a meter measures pairs of places, and the clock is passed in.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from perfkit.agent.counters.model import INSTRUCTIONS, Count
from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_PASS, NotMeasuredError
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
    SearchState,
    SkippedCommit,
    Suspect,
)
from perfkit.model.counters import NEWS_OF_INSTRUCTIONS
from perfkit.model.profiles import Section
from perfkit.repo.commits import CommitChange, CommitRange, author_of, changes_of, diff_stat
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

TIME = WALL_TIME.name
# Prior weights of commits: without code, with code, with what the benchmark runs, and where that is known, of
# those that change Python alone and nothing of it. The growth of a changed function's time, and a change
# point in the ledger, multiply them.
_NO_CODE, _CODE, _RUN, _NOT_RUN = 0.1, 1.0, 10.0, 0.01
_OF_ALL_GROWTH, _IN_A_STEP = 9.0, 5.0
# Assumed until a pair has been opened and launched.
_USUAL_COSTS = Costs(opening_s=8.0, launch_s=0.5)
# This many steps of a counter are sought.
_MOST_STEPS = 3
# Inexact counters that differ by less are taken as equal.
_NEWS_OF_INEXACT = 0.05
_INEXACT = frozenset({"resident", "python_peak"})
# This many launches are made of a found commit beside the one before it.
_CONFIRMING = 4
# With fewer commits, profiling the ends takes longer than it saves.
_WORTH_PROFILING = 8
# With fewer, so does tracing what the benchmark runs.
_WORTH_TRACING = 4


class Meter(Protocol):
    """Measures pairs of places; one pair is open at a time."""

    @property
    def open_pair(self) -> tuple[int, int] | None:
        """The places of the open pair."""

    def open(self, base: int, head: int) -> Mapping[int, str]:
        """Open a pair; return the places that cannot be measured, with the reason."""

    def launch(self) -> float | Mapping[int, str]:
        """Return ln(head / base) of a launch of the open pair, or the places that cannot be measured."""

    def count(self, places: Sequence[int], metric: str) -> Mapping[int, float | str]:
        """Return a counter of one or two places, or why one cannot be counted."""


def weigh(
    changes: Sequence[CommitChange],
    *,
    ran: Collection[tuple[str, str]] = (),
    grown: Mapping[tuple[str, str], float] | None = None,
    steps: Iterable[tuple[int, int]] = (),
) -> list[float]:
    """Return the prior weight of each place from 1 on; none is 0.

    Args:
        changes: What each commit changed.
        ran: The functions that the benchmark ran at either end, by file and qualified name, if known.
        grown: The share of the growth between both ends by function, by file and bare name.
        steps: The ranges (after the first place, up to the second) in which the ledger has a change point.
    """
    weights = []
    for place, change in enumerate(changes, start=1):
        weight = _CODE if change.touches_code else _NO_CODE
        if any(_changes_function(change, *one) for one in ran):
            weight = _RUN
        elif ran and not change.touches_more:
            weight = _NOT_RUN
        share = sum(part for (file, name), part in (grown or {}).items() if _changes(change, file, name))
        weight *= 1 + _OF_ALL_GROWTH * min(share, 1.0)
        weights.append(weight * (_IN_A_STEP if any(low < place <= high for low, high in steps) else 1.0))
    return weights


def _changes(change: CommitChange, file: str, name: str) -> bool:
    """Return whether a commit changes a function that a profile lists by its bare name."""
    if file not in change.code:
        return False
    names = change.code[file]
    return names is None or any(one.rpartition(".")[2] == name for one in names)


def _changes_function(change: CommitChange, file: str, name: str) -> bool:
    names = change.code.get(file, ())
    return names is None or name in names


def growth(section: Section) -> dict[tuple[str, str], float]:
    """Return the share of each function in the time that head takes longer, by file and bare name."""
    grown: dict[tuple[str, str], float] = {}
    for part in section.parts:
        if part.kind == "own code" and part.place and part.amount.moved_s > 0:
            key = part.place.rpartition(":")[0], part.name.rpartition(".")[2]
            grown[key] = grown.get(key, 0.0) + part.amount.moved_s
    whole = math.fsum(grown.values())
    return {key: moved / whole for key, moved in grown.items()}


@dataclass(kw_only=True)
class _End:
    """One end of a range, moved inward past failures in growing strides, then back out by halves."""

    place: int
    inward: int
    done: bool = False
    _failed: int | None = None
    _stride: int = 1
    _good: int | None = None

    def move(self, *, failed: bool, sure: bool, room: int) -> None:
        """Move after the place was tried; a place that neither failed nor is ``sure`` is tried again.

        ``room`` is the distance to the other end.
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
            self.place, self.done = self._good, True
        else:
            self.place = self._failed + self.inward * (abs(self._good - self._failed) // 2)


@dataclass(kw_only=True)
class Search:
    """A search between two places, which move inward where they cannot be measured.

    Attributes:
        deadline: A reading of ``clock``, a monotonic clock in seconds.
        on_state: Receives what is measured next.
        unusable: The places that cannot be measured, with the reason.
        remembered: Those of them that only earlier runs have tried.
    """

    meter: Meter
    last: int
    deadline: float
    on_state: Callable[[SearchState], None]
    clock: Callable[[], float] = time.monotonic
    first: int = 0
    unusable: dict[int, str] = field(default_factory=dict)
    remembered: set[int] = field(default_factory=set)

    def open_ends(self) -> None:
        """Open the outermost places that can be measured.

        Raises:
            NotMeasuredError: no two places can be, or the time is up before two are found.
        """
        self._move_inward()
        low, high = _End(place=self.first, inward=1), _End(place=self.last, inward=-1)
        while not (low.done and high.done):
            if low.place >= high.place:
                raise self._nothing("no two of the commits that were tried can be measured")
            if self.unusable and self.clock() >= self.deadline:
                raise self._nothing("the time was up before two commits could be measured")
            failed = self.meter.open(low.place, high.place)
            self.unusable |= failed
            room = high.place - low.place
            for end in (low, high):
                end.move(failed=end.place in failed, sure=not failed, room=room)
        self.first, self.last = low.place, high.place
        self.meter.open(self.first, self.last)

    def _move_inward(self) -> None:
        while self.first in self.unusable:
            self.first += 1
        while self.last in self.unusable:
            self.last -= 1
        if self.first >= self.last:
            raise self._nothing("no two commits of this range can be measured")

    def _nothing(self, what: str) -> NotMeasuredError:
        return NotMeasuredError(f"{what}: {next(reversed(self.unusable.values()), 'none was tried')}")

    def _remember(self, unusable: Mapping[int, str]) -> None:
        """Take over which places earlier runs could not measure, except the ends, just opened."""
        self.remembered = {place for place in unusable if self.first < place < self.last}
        self.unusable |= {place: unusable[place] for place in self.remembered if place not in self.unusable}

    def _try_again(self, places: Iterable[int]) -> bool:
        """Forget that suspected places failed in earlier runs; return whether any had."""
        again = self.remembered.intersection(places)
        self.remembered -= again
        for place in again:
            del self.unusable[place]
        return bool(again)

    def _report(self, places: tuple[int, int], launches: int, left: int) -> None:
        left_s = max(self.deadline - self.clock(), 0.0)
        base, head = places
        self.on_state(SearchState(base=base, head=head, launches=launches, left=left, left_s=left_s))


@dataclass(kw_only=True)
class TimeSearch(Search):
    """A search for steps of a benchmark's time; ``pairs`` holds the log ratios of launches by places."""

    rules: Rules
    pairs: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    _opening_s: list[float] = field(default_factory=list)
    _launch_s: list[float] = field(default_factory=list)

    def resume(self, pairs: Iterable[MeasuredPair], unusable: Mapping[int, str]) -> None:
        """Take over the launches of earlier runs."""
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
            pair = self.meter.open_pair
            move = next_move(
                self._known(),
                weights=weights[self.first : self.last],
                unusable=self._unusable_inside(),
                costs=self._costs(),
                rules=self.rules,
                open_pair=None if pair is None else (pair[0] - self.first, pair[1] - self.first),
            )
            if isinstance(move, Measure):
                if not self._measure(move, weights):
                    return Conclusion(steps=(), status="undecided", why="the budget is spent")
                continue
            steps = [
                replace(step, places=tuple(place + self.first for place in step.places))
                for step in move.steps
            ]
            if not self._try_again(place for step in steps for place in step.places):
                return replace(move, steps=tuple(sorted(steps, key=lambda one: -abs(one.log_ratio))))

    def left(self, weights: Sequence[float]) -> tuple[int, int, int, float]:
        """Return the first and last suspected place, how many there are, and how probable they are.

        They are the fewest places that together are as probable as the confidence.
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
            self._report((base, head), len(self.pairs.get((base, head), ())), left)
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
        """Return the mean costs so far; a first launch also calibrates the number of iterations."""
        launches = self._launch_s[1:] or self._launch_s
        return Costs(
            opening_s=_mean(self._opening_s) or _USUAL_COSTS.opening_s,
            launch_s=_mean(launches) or _USUAL_COSTS.launch_s,
        )

    def _known(self) -> list[MeasuredPair]:
        """Return the pairs between both ends, with places that count from the first of them.

        A pair has to contain the first place or be of neighbours among the measured places. Others were left
        behind by an end that moved, or by a place that could not be measured at first.
        """
        inside = {
            pair: logs
            for pair, logs in self.pairs.items()
            if self.first <= pair[0] and pair[1] <= self.last and logs
        }
        neighbours = frozenset(itertools.pairwise(sorted({self.first, self.last}.union(*inside))))
        return [
            MeasuredPair(base=base - self.first, head=head - self.first, log_ratios=tuple(logs))
            for (base, head), logs in inside.items()
            if base == self.first or (base, head) in neighbours
        ]

    def _unusable_inside(self) -> frozenset[int]:
        return frozenset(place - self.first for place in self.unusable if self.first < place < self.last)


@dataclass(frozen=True, kw_only=True)
class CountedStep:
    """A step of a counter between two counted places, with nothing between them that can be counted."""

    base: int
    head: int
    before: float
    after: float


@dataclass(kw_only=True)
class CountSearch(Search):
    """A search for the steps of a counter that counts as few commits as possible, each of them once.

    Counts that differ by no more than the share ``tolerance`` are taken as equal.
    """

    metric: str
    tolerance: float
    counts: dict[int, float] = field(default_factory=dict)
    status: Literal["found", "no change", "undecided"] = "undecided"
    why: str = ""

    def resume(self, counts: Mapping[int, float], unusable: Mapping[int, str]) -> None:
        """Take over the counts of earlier runs."""
        self.counts = {**counts, **self.counts}
        self._remember(unusable)

    def run(self, weights: Sequence[float]) -> list[CountedStep]:
        """Count until the largest steps are known or the time is up, and return those that are known."""
        while places := self._next(weights):
            if self.clock() >= self.deadline:
                self.status, self.why = "undecided", "the budget is spent"
                break
            steps = self._steps()
            left = steps[0].head - steps[0].base if steps else self.last - self.first
            self._report((places[0], places[-1]), 0, left)
            for place, found in self.meter.count(places, self.metric).items():
                if isinstance(found, str):
                    self.unusable[place] = found
                else:
                    self.counts[place] = found
        return [step for step in self._steps()[:_MOST_STEPS] if not self._inside(step)]

    def left(self) -> CountedStep | None:
        """Return the largest step that has commits inside that can be counted, None where there is none."""
        return next((step for step in self._steps()[:_MOST_STEPS] if self._inside(step)), None)

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
        step = self.left()
        if step is None:
            largest = self._steps()[:_MOST_STEPS]
            self._try_again(place for one in largest for place in range(one.base + 1, one.head))
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
        return sorted(found, key=lambda step: -abs(step.after - step.before))

    def _differ(self, one: float, other: float) -> bool:
        return abs(one - other) > self.tolerance * max(abs(one), abs(other))

    def _inside(self, step: CountedStep) -> list[int]:
        return [place for place in range(step.base + 1, step.head) if place not in self.unusable]


def _thirds(step: CountedStep, inside: Sequence[int], weights: Sequence[float]) -> tuple[int, ...]:
    """Return the two places inside a step that divide its weights into thirds, or the only one."""
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


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """What to bisect, with what, and until when.

    Attributes:
        deadline: A reading of the monotonic clock.
        steps: The ranges of places in which the ledger has a change point.
        budget_s, began: Of the whole command, for its report.
    """

    wanted: Wanted
    metric: str
    confidence: float
    budget_s: float
    began: float
    steps: Sequence[tuple[int, int]]

    def run(self, meter: PairMeter, progress: BisectProgress) -> BisectionReport:
        """Find the commits that changed the benchmark's time or counter.

        Raises:
            NotMeasuredError: no two commits can be measured, or other code was measured than a commit's own.
            RecordingError: the ledger cannot be written any more.
        """
        return (self._time if self.metric == TIME else self._count)(meter, progress)

    @property
    def _commits(self) -> CommitRange:
        return self.wanted.commits

    def _time(self, meter: PairMeter, progress: BisectProgress) -> BisectionReport:
        search = TimeSearch(
            meter=meter,
            last=self._commits.last,
            deadline=self.began + self.budget_s,
            on_state=progress.update,
            rules=Rules(confidence=self.confidence, confirming=_CONFIRMING),
        )
        search.open_ends()
        earlier = meter.earlier(TIME)
        search.resume(earlier.pairs, earlier.unusable)
        search.begin()
        weights = self._weights(meter, _growth(search, meter, progress))
        found = search.run(weights)
        left = None
        if found.status == "undecided":
            begin, end, many, share = search.left(weights)
            left = self._left(begin - 1, end, many, share)
        # An undecided search only has steps where one is likely.
        sure = found.steps if found.status == "found" else ()
        if sure and meter.profiles:
            progress.info("profiling what was found")
        return self._report(
            search,
            meter,
            answer=found.status,
            why=found.why,
            metric=WALL_TIME,
            steps=tuple(
                self._timed_step(step, search, meter, explained=number == 0)
                for number, step in enumerate(sure)
            ),
            left=left,
            measured=len({place for pair in search.pairs for place in pair}),
            launches=sum(map(len, search.pairs.values())),
            earlier=sum(len(one.log_ratios) for one in earlier.pairs),
        )

    def _count(self, meter: PairMeter, progress: BisectProgress) -> BisectionReport:
        tolerance = _NEWS_OF_INEXACT if self.metric in _INEXACT else 0.0
        search = CountSearch(
            meter=meter,
            last=self._commits.last,
            deadline=self.began + self.budget_s,
            on_state=progress.update,
            metric=self.metric,
            tolerance=NEWS_OF_INSTRUCTIONS if self.metric == INSTRUCTIONS else tolerance,
        )
        search.open_ends()
        earlier = meter.earlier(self.metric)
        search.resume(earlier.counts, earlier.unusable)
        found = search.run(self._weights(meter, {}))
        units = (one.unit for one in _counters(meter, self.metric))
        step = search.left() if search.status == "undecided" else None
        more = search.more()
        return self._report(
            search,
            meter,
            answer=search.status,
            why=search.why,
            metric=Metric(name=self.metric, unit=next(units, "1"), exact=self.metric not in _INEXACT),
            steps=tuple(self._counted_step(one, search, meter) for one in found),
            left=None if step is None else self._left(step.base, step.head, step.head - step.base, 1.0),
            measured=len(search.counts),
            launches=0,
            earlier=len(earlier.counts),
            notes=(f"{more} smaller steps of the count were not sought",) if more else (),
        )

    def _weights(self, meter: PairMeter, grown: dict[tuple[str, str], float]) -> Sequence[float]:
        """Return the prior weights; only files of which the benchmark runs something are read."""
        ran = meter.ran() if self._commits.last >= _WORTH_TRACING else frozenset()
        changes = changes_of(self._commits, read={file for file, _ in (*ran, *grown)})
        return weigh(changes, ran=ran, grown=grown, steps=self.steps)

    def _left(self, before: int, last: int, many: int, probability: float) -> LeftRange:
        commits = self._commits.commits
        return LeftRange(
            last_before=commits[before], bad=commits[last], commits=many, probability=probability
        )

    def _timed_step(self, step: Step, search: Search, meter: PairMeter, *, explained: bool) -> FoundStep:
        base, head = min(step.places) - 1, max(step.places)
        while base in search.unusable and base > 0:
            base -= 1
        while head in search.unusable:
            head += 1
        before, after = meter.levels(base, head)
        return FoundStep(
            suspects=self._suspects(step.places, search.unusable),
            last_before=self._commits.commits[base],
            ratio=math.exp(step.log_ratio),
            low=math.exp(step.low),
            high=math.exp(step.high),
            probability=step.probability,
            before=before,
            after=after,
            explanation=meter.explain(base, head) if explained else None,
        )

    def _counted_step(self, step: CountedStep, search: CountSearch, meter: PairMeter) -> FoundStep:
        old, new = (next(_counters(meter, search.metric, place)) for place in (step.base, step.head))
        assert meter.benchmark is not None  # noqa: S101 (it is known from the first pair on)
        return FoundStep(
            suspects=self._suspects(range(step.base + 1, step.head + 1), search.unusable),
            last_before=self._commits.commits[step.base],
            ratio=step.after / step.before if step.before else None,
            low=None,
            high=None,
            probability=1.0,
            before=Level(mean=step.before, sd=None, launches=1),
            after=Level(mean=step.after, sd=None, launches=1),
            counted=compare_count(meter.benchmark, old, new, margin=search.tolerance, gating=False),
        )

    def _suspects(self, places: Sequence[int], unusable: Mapping[int, str]) -> tuple[Suspect, ...]:
        commits, found = self._commits, []
        for place in places:
            stat = diff_stat(commits.root, commits.sha(place - 1), commits.sha(place))
            found.append(
                Suspect(
                    commit=commits.commits[place],
                    author=author_of(commits.root, commits.sha(place)),
                    files=stat.files,
                    added=stat.added,
                    removed=stat.removed,
                    skipped=unusable.get(place),
                )
            )
        return tuple(found)

    def _report(
        self,
        search: Search,
        meter: PairMeter,
        *,
        answer: Answer,
        notes: Sequence[str] = (),
        **found: Any,  # noqa: ANN401 (fields of the report)
    ) -> BisectionReport:
        assert meter.benchmark is not None  # noqa: S101 (a search opens a pair at least)
        commits = self._commits.commits
        return BisectionReport(
            recorded_at=utc_now(),
            good=commits[0],
            bad=commits[-1],
            benchmark=meter.benchmark,
            confidence=self.confidence,
            answer=answer,
            commits=self._commits.last,
            skipped=tuple(
                SkippedCommit(commit=commits[place], reason=why)
                for place, why in sorted(search.unusable.items())
            ),
            runs=tuple(meter.runs),
            machine=meter.machine,
            environment=meter.environment,
            budget_s=self.budget_s,
            wall_s=time.monotonic() - self.began,
            exit_code=EXIT_INCONCLUSIVE if answer == "undecided" else EXIT_PASS,
            notes=(*self._notes(search), *meter.notes, *notes),
            **found,
        )

    def _notes(self, search: Search) -> Iterator[str]:
        """Yield a note where the benchmark is not BAD's own, and on each end that could not be measured."""
        source = self.wanted.source
        if source.kind != "bad":
            whose = "GOOD" if source.kind == "good" else "the working tree"
            yield f"BAD has no such benchmark: that of {whose}, {source.file}, was measured at all commits"
        for name, place, end in (("GOOD", search.first, 0), ("BAD", search.last, self._commits.last)):
            if place != end:
                yield (
                    f"{name} cannot be measured: the search {'began' if end == 0 else 'ended'} at"
                    f" {self._commits.sha(place)[:10]}, and of the commits beyond it nothing is known"
                )


def _counters(meter: PairMeter, metric: str, place: int | None = None) -> Iterator[Count]:
    """Yield a counter as it was counted at one place, or at all."""
    counted = meter.counts.values() if place is None else [meter.counts[place]]
    return (one for counts in counted for one in counts.counts if one.metric == metric)


def _growth(search: TimeSearch, meter: PairMeter, progress: BisectProgress) -> dict[tuple[str, str], float]:
    """Return which functions' times grew between the ends, if that is worth profiling and there is time."""
    few = search.last - search.first < _WORTH_PROFILING
    if few or not meter.profiles or search.clock() >= search.deadline:
        return {}
    progress.info("profiling both ends")
    found = meter.explain(search.first, search.last)
    return growth(found.section) if found is not None and found.section is not None else {}
