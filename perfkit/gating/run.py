"""The launch loop: launches of both sides until each benchmark is decided or the time is over."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from perfkit.errors import NotMeasuredError
from perfkit.gating.design import MOST_KEPT, SHARED_VARIANCE, Candidate, Forecast, share_out, usual_look
from perfkit.gating.judge import WELL_KNOWN, compare, joined_pairs, pair_location
from perfkit.gating.rules import ComparedBenchmark
from perfkit.gating.sides import Mend, mend_nothing
from perfkit.gating.survey import prove_code
from perfkit.identity import utc_now
from perfkit.model import SIDES, Side
from perfkit.model.comparisons import UNDECIDED, Comparison, ComparisonProgress, LaunchPair, Policy, Verdict
from perfkit.model.policies import Disturbance
from perfkit.runner.lockstep.launch import (
    UNPROVEN_IN_A_ROW,
    Failure,
    LaunchRecord,
    LaunchRules,
    Slot,
    schedule,
    shared_libraries,
)
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.lockstep.turns import LoopPlan, Timing
from perfkit.runner.machine.facts import THROTTLED, DeviceState, passage
from perfkit.stats.planning import launches_per_generation, shared_variance

# Where, in most launches, the slowest round takes this many times as long as the fastest, the cause is not
# the machine's noise.
_ERRATIC = 4.0
_FEWEST_LAUNCHES_TO_SHOW = 3
# One launch spends at least this time on a benchmark, both sides together.
_LAUNCH_S = 0.05
_MOST_PER_GENERATION = 8
# A device that is too hot for good would else use up the budget: the third try counts, and is marked.
_MOST_REPEATS = 2
_LIMIT_S = 30.0
# At least this many are made, however slow the machine is, since fewer would not show their scatter.
_FEWEST_LAUNCHES = 6


@dataclass(frozen=True, kw_only=True)
class MeasuredLaunch:
    """One launch of one benchmark on both sides, its place in the schedule, and its group.

    ``facts`` and ``marks`` are of the devices meanwhile. What was ``set_aside`` is kept and never judged.
    ``disturbed`` is what else happened meanwhile that makes its times unlike others.
    """

    node: str
    slot: Slot
    group: int
    timing: Timing
    at: datetime
    facts: Mapping[str, str] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    set_aside: bool = False
    disturbed: tuple[Disturbance, ...] = ()


class Launches(Protocol):
    """Makes the launches of a comparison, one after the other."""

    @property
    def group(self) -> int:
        """The number of the last launch's group: the launches of one zygote, or else of one fork server."""

    @property
    def group_s(self) -> float:
        """The seconds that beginning a group takes for each of its launches."""

    @property
    def next_s(self) -> float:
        """The seconds that pass until the next launch begins, as a new group has to import first."""

    def prepare(self) -> None:
        """Get ready for the next launch: begin a new group when the present one has had its launches."""

    def make(self, slot: Slot, nodes: Sequence[str]) -> LaunchRecord:
        """Measure benchmarks on both sides, in two processes of the launch's own."""

    def learn(self, libraries: Sequence[str]) -> None:
        """Have fork servers import modules that both sides import."""

    def expect(self, shared_variance: float) -> None:
        """Choose the size of later groups for launches that have so much variance in common within one."""


@dataclass
class BenchmarkState:
    """What is known of one benchmark so far."""

    compared: ComparedBenchmark
    own: list[LaunchPair] = field(default_factory=list)
    failure: Failure | None = None
    seconds: list[float] = field(default_factory=list)
    disturbed: dict[int, tuple[Disturbance, ...]] = field(default_factory=dict)

    def add(self, one: MeasuredLaunch, seconds: float) -> None:
        """Add a launch, which took this many seconds."""
        self.own.append(launch_pair(one.timing, one.slot, one.group))
        # The first launch also plans the loops, and imports what later ones get from their fork server.
        self.seconds.append(seconds if self.seconds else _later_launch_s(one.timing))
        if one.disturbed:
            self.disturbed[one.slot.launch] = one.disturbed

    @property
    def pairs(self) -> tuple[LaunchPair, ...]:
        """All launches of the test: those of earlier gates, then this run's own."""
        return joined_pairs([self.compared.prior, self.own]) if self.compared.prior else tuple(self.own)

    @property
    def peaks(self) -> list[Mapping[Side, float]]:
        """The peaks of both sides' resident memory in each launch that has them."""
        known = [(pair.base_peak, pair.head_peak) for pair in self.pairs]
        return [{"base": base, "head": head} for base, head in known if base is not None and head is not None]

    @property
    def call_s(self) -> float | None:
        """The seconds that a call on head takes, None before the first launch."""
        return statistics.median(self.pairs[-1].head_s) if self.pairs else None

    @property
    def launch_s(self) -> float | None:
        """The seconds that a launch of it takes, None before the first."""
        return statistics.fmean(self.seconds[1:] or self.seconds) if self.seconds else None

    @property
    def erratic(self) -> float | None:
        """How many times as long as the fastest the slowest round usually takes; None where that is usual."""
        if len(self.own) < _FEWEST_LAUNCHES_TO_SHOW:
            return None
        usual = statistics.median(max(one.base_s) / min(one.base_s) for one in self.own)
        return usual if usual >= _ERRATIC else None

    @property
    def shared_variance(self) -> float:
        """The variance that launches of a group have in common, in parts of their own."""
        groups: dict[int, list[float]] = {}
        for pair in self.pairs:
            groups.setdefault(pair.group, []).append(pair_location(pair))
        return shared_variance([*groups.values()])

    def judge(self, policy: Policy) -> Comparison:
        """Return the verdict that the launches so far lead to."""
        return compare(
            self.compared.benchmark,
            self.pairs,
            policy,
            margin=self.compared.margin,
            gating=self.compared.gating,
            launch_s=self.launch_s,
            first_only=self.compared.first_only,
        )

    def next_look(self, policy: Policy) -> int | None:
        """Return how many launches the next look needs, None where it has had its last look."""
        return min((look for look in policy.looks if look > len(self.pairs)), default=None)

    def launches_to_decision(self, found: Comparison, policy: Policy) -> int | None:
        """Return about how many more launches will decide it, None where the last look will not either.

        Few launches do not show their scatter well, so with these the usual one is assumed.
        """
        if found.estimate is not None and found.estimate.launches >= WELL_KNOWN:
            return found.need.launches if found.need else None
        look = self.next_look(policy)
        return None if look is None else max(usual_look(policy, found.margin), look) - len(self.pairs)


def make_launch(
    launches: Launches,
    slot: Slot,
    nodes: Sequence[str],
    *,
    watch: Callable[[], tuple[Disturbance, ...]] = tuple,
    now: Callable[[], datetime] = utc_now,
) -> tuple[LaunchRecord, list[MeasuredLaunch]]:
    """Make one launch, and return its record and what is kept of each benchmark; what was set aside is first.

    Later fork servers import what both sides imported here, since some imports happen only in calls.
    """
    launches.prepare()
    record = launches.make(slot, nodes)
    disturbed = watch()
    prove_code(record.reports)
    if all(side in record.reports for side in SIDES):
        launches.learn(shared_libraries(record.reports["base"], record.reports["head"]))
    kept = [
        MeasuredLaunch(
            node=node,
            slot=slot,
            group=launches.group,
            timing=one.timings[node],
            at=now(),
            facts=one.facts,
            marks=one.marks,
            set_aside=one is not record,
            disturbed=() if one is not record else (*disturbed, *_stood_still(one.timings[node])),
        )
        for one in (*record.set_aside, record)
        for node in nodes
        if node in one.proven
    ]
    return record, kept


@dataclass
class SequentialComparison:
    """Measures benchmarks until they are decided; what it has measured survives an interruption.

    ``deadline`` is a reading of ``clock``, a monotonic clock in seconds; ``now`` returns the date. ``keep``
    is called with what each launch measured before the next one is made, and ``announce`` once, after the
    first launch. Of the time that is left, ``after_s`` seconds of each benchmark are kept for
    the counting that follows, and no launch begins more than ``late_s`` seconds after it. Where the deadline
    leaves something undecided, measuring goes on for ``go_on_s`` seconds after it, and ``announce_going_on``
    is called before. As soon as what was found ``is_enough``, it is ``stopped``. Those ``left_out`` get no
    launch. ``watch`` returns what disturbed the machine since its last call.
    """

    launches: Launches
    states: Mapping[str, BenchmarkState]
    policy: Policy
    deadline: float
    keep: Callable[[Sequence[MeasuredLaunch]], None] = lambda _: None
    announce: Callable[[Forecast], None] = lambda _: None
    after_s: Callable[[BenchmarkState], float] = lambda _: 0.0
    late_s: float = math.inf
    left_out: frozenset[str] = frozenset()
    go_on_s: float = 0.0
    announce_going_on: Callable[[Forecast], None] = lambda _: None
    is_enough: Callable[[Sequence[Comparison]], bool] = lambda _: False
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = utc_now
    watch: Callable[[], tuple[Disturbance, ...]] = tuple
    loaded: set[str] = field(default_factory=set)
    uses_torch: bool = False
    stopped: bool = False
    _goes_on: bool = False
    _judged: dict[str, tuple[int, Comparison]] = field(default_factory=dict)
    _overheads_s: list[float] = field(default_factory=list)
    _unproven: int = 0
    _groups: set[int] = field(default_factory=set)
    _measured_together: int = 0

    @classmethod
    def of(
        cls, benchmarks: Iterable[ComparedBenchmark], *, launches: Launches, policy: Policy, deadline: float
    ) -> SequentialComparison:
        """Return a comparison of benchmarks, none of which has been measured in this run yet."""
        states = {one.benchmark.name: BenchmarkState(one) for one in benchmarks}
        return cls(launches=launches, states=states, policy=policy, deadline=deadline)

    def run(self, slots: Iterable[Slot], progress: ComparisonProgress) -> None:
        """Make launches in the order of ``slots`` until no benchmark needs, or can afford, another one."""
        begun = self.clock()
        for number, slot in enumerate(slots):
            found = self.comparisons()
            progress.update(found, self.clock() - begun, self._left_s())
            self.stopped = self.is_enough(found) and bool(self._candidates())
            nodes = [] if self.stopped else self._next_nodes() or self._nodes_after_the_deadline()
            if not nodes:
                return
            self._launch(slot, nodes)
            if number == 0:
                self.announce(self.forecast())

    def comparisons(self) -> tuple[Comparison, ...]:
        """Return the verdict so far of every benchmark that has not failed."""
        return tuple(self.judge(node) for node, state in self.states.items() if state.failure is None)

    def verdict(self, node: str) -> Verdict | None:
        """Return the verdict so far of a benchmark, None where it has failed."""
        return None if self.states[node].failure is not None else self.judge(node).verdict

    def forecast(self, only: Collection[str] | None = None) -> Forecast:
        """Return how long it would take to decide what is still undecided, or ``only`` some of it."""
        costs = [
            (one.decision_s or one.next_look_s, one.changed)
            for one in self._candidates(with_groups=True)
            if only is None or one.node in only
        ]
        return Forecast(
            costs_s=[seconds for seconds, _ in costs],
            changed_costs_s=[seconds for seconds, changed in costs if changed],
            after_s=self._kept_s(),
            left_s=self._left_s() - (0.0 if self._groups else self.launches.next_s),
        )

    def _launch(self, slot: Slot, nodes: Sequence[str]) -> None:
        begun = self.clock()
        record, kept = make_launch(self.launches, slot, nodes, watch=self.watch, now=self.now)
        for report in record.reports.values():
            self.loaded.update(report.loaded)
            self.uses_torch |= bool(report.torch)
        self._expect_proof(record)
        for failure in record.failures:
            self.states[failure.node].failure = failure
        for one in kept:
            if not one.set_aside:
                self.states[one.node].add(one, record.seconds[one.node])
        self.keep(kept)
        self._expect()
        self._groups.add(self.launches.group)
        self._measured_together = len(nodes)
        self._overheads_s.append((self.clock() - begun - sum(record.seconds.values())) / len(nodes))

    def _expect_proof(self, record: LaunchRecord) -> None:
        """Note a launch whose times cannot be kept although no benchmark failed; others make up for one."""
        self._unproven = self._unproven + 1 if record.unproven and not record.failures else 0
        if self._unproven == UNPROVEN_IN_A_ROW:
            silent = " and ".join(side for side in SIDES if side in record.silent)
            text = next((f"; their last words: {words}" for words in record.silent.values() if words), "")
            raise NotMeasuredError(
                f"the processes of {silent} ended {UNPROVEN_IN_A_ROW} launches in a row without proof of"
                " which code they had run, so that the times of these were not recorded: see what the"
                f" project's fixtures and plugins do after the last benchmark{text}"
            )

    def _expect(self) -> None:
        """Have later groups be small where the groups of an undecided benchmark differ.

        Then its interval is that of as many values as there are groups.
        """
        differing = [
            state.shared_variance
            for node, state in self.states.items()
            if state.failure is None and _by_groups(self.judge(node))
        ]
        if differing:
            self.launches.expect(max(differing))

    @property
    def has_time(self) -> bool:
        """Whether the next launch begins before the deadline, or not much later."""
        return self.launches.next_s <= self._left_s() + self.late_s

    def _next_nodes(self) -> list[str]:
        if not self.has_time:
            return []
        candidates = [one for one in self._candidates() if one.node not in self.left_out]
        chosen = share_out(candidates, self._left_s())
        return [node for node in self.states if node in chosen]

    def _nodes_after_the_deadline(self) -> list[str]:
        if self._goes_on or not self.go_on_s or not self._candidates():
            return []
        self._goes_on = True
        self.deadline += self.go_on_s
        self.announce_going_on(self.forecast())
        return self._next_nodes()

    def _candidates(self, *, with_groups: bool = False) -> list[Candidate]:
        """Return the undecided benchmarks that have a look left.

        ``with_groups`` adds what new groups will take, which no launch has shown before the second group.
        """
        # The first launch imports what later ones get from their fork server, so its overhead is untypical.
        overheads_s = self._overheads_s[1:] or self._overheads_s
        overhead_s = statistics.fmean(overheads_s) if overheads_s else 0.0
        if with_groups and len(self._groups) == 1 and self._measured_together:
            overhead_s += self.launches.group_s / self._measured_together
        # Before its first launch a benchmark is taken to cost as much as the mean of the others.
        known_s = [one.launch_s for one in self.states.values() if one.launch_s is not None]
        usual_s = statistics.fmean(known_s) if known_s else 0.0
        found = (self._candidate(node, overhead_s, usual_s) for node in self.states)
        return [one for one in found if one is not None]

    def _candidate(self, node: str, overhead_s: float, usual_s: float) -> Candidate | None:
        """Return how much time a benchmark needs, None where it is decided or has had its last look.

        One whose first calls look slower is decided when there are enough of them.
        """
        state = self.states[node]
        if state.failure is not None:
            return None
        found = self.judge(node)
        look = state.next_look(self.policy)
        starts_slower = found.first_call is not None and found.first_call.slower is None
        if not (found.verdict in UNDECIDED or self._may_improve(found) or starts_slower) or look is None:
            return None
        launch_s = (usual_s if state.launch_s is None else state.launch_s) + overhead_s
        launches = state.launches_to_decision(found, self.policy)
        return Candidate(
            node=node,
            next_look_s=(look - len(state.pairs)) * launch_s,
            decision_s=None if launches is None else launches * launch_s,
            suspect=found.estimate is not None
            and found.estimate.ratio > 1 + self.policy.threshold(found.margin),
            changed=state.compared.changed,
            begun=bool(state.own),
            swept=len(state.pairs) >= self.policy.looks[0],
        )

    def _may_improve(self, found: Comparison) -> bool:
        judged = found.estimate
        if found.verdict != "NOT SLOWER" or judged is None or judged.launches >= WELL_KNOWN:
            return False
        return judged.ratio < 1 - self.policy.threshold(found.margin)

    def judge(self, node: str) -> Comparison:
        """Judge a benchmark; without new launches the judgement before is returned."""
        state = self.states[node]
        known = self._judged.get(node)
        if known is None or known[0] != len(state.own):
            known = self._judged[node] = (len(state.own), state.judge(self.policy))
        return known[1]

    def _left_s(self) -> float:
        return max(self.deadline - self.clock() - self._kept_s(), 0.0)

    def _kept_s(self) -> float:
        left_s = max(self.deadline - self.clock(), 0.0)
        return min(sum(map(self.after_s, self.states.values())), MOST_KEPT * left_s)


def _by_groups(found: Comparison) -> bool:
    judged = found.estimate
    return found.verdict in UNDECIDED and judged is not None and judged.unit == "preloaders"


def launch_pair(timing: Timing, slot: Slot, group: int) -> LaunchPair:
    """Return the times of a launch in the form in which they are judged."""
    return LaunchPair(
        launch=slot.launch,
        group=group,
        base_s=timing.base_s,
        head_s=timing.head_s,
        base_typical_s=timing.base_typical_s,
        head_typical_s=timing.head_typical_s,
        begins=slot.begins,
        base_cpu_s=timing.cpu_s.get("base"),
        head_cpu_s=timing.cpu_s.get("head"),
        base_collected_s=timing.collected_s.get("base", 0.0),
        head_collected_s=timing.collected_s.get("head", 0.0),
        base_peak=timing.peak_bytes.get("base"),
        head_peak=timing.peak_bytes.get("head"),
        base_first_s=timing.first_s.get("base"),
        head_first_s=timing.first_s.get("head"),
    )


def _later_launch_s(timing: Timing) -> float:
    plan = timing.plan
    timed_s = plan.loops * (math.fsum(timing.base_s) + math.fsum(timing.head_s))
    turns = math.ceil(len(timing.base_s) / plan.rounds)
    untimed = (turns - 1) * plan.untimed + plan.begins_with
    return timed_s + untimed * (statistics.fmean(timing.base_s) + statistics.fmean(timing.head_s))


def _stood_still(timing: Timing) -> Iterator[Disturbance]:
    for side, seconds in timing.stood_still_s.items():
        if seconds:
            yield Disturbance(what="stood still", amount=round(seconds, 1), side=side)


class LockstepLaunches:
    """Makes launches in lockstep by a launcher; the first one calibrates the loops of each benchmark.

    ``limit_s`` returns how many seconds a benchmark may send nothing; ``check_s`` are those that a check may
    take, whether the sides disturb one another on an accelerator. After ``until``, a launch begins
    no further benchmark where the others take long. It is made again if ``mend`` did something about its
    failures, or if a device was throttled, by the ``states`` of devices.
    """

    def __init__(
        self,
        launcher: Launcher,
        *,
        limit_s: Callable[[str], float],
        check_s: float = 0.0,
        until: float = math.inf,
        mend: Mend = mend_nothing,
        states: Callable[[], Sequence[DeviceState]] = tuple,
    ) -> None:
        self._launcher, self._mend, self._states = launcher, mend, states
        self._rules = LaunchRules(launch_s=_LAUNCH_S, limit_s=limit_s, check_s=check_s, until=until)
        self._plans: dict[str, LoopPlan] = {}
        self._made = 0
        self._alone = False
        self._benchmark_s, self._measured = 0.0, 0
        self._shared_variance = SHARED_VARIANCE

    @property
    def group(self) -> int:
        """The number of the last launch's group: the launches of one zygote, or else of one fork server."""
        return self._launcher.group

    @property
    def group_s(self) -> float:
        """The seconds that beginning a group takes for each of its launches."""
        return self._launcher.collected_s / self._share() if self._launcher.serves else 0.0

    @property
    def next_s(self) -> float:
        """The seconds that pass until the next launch begins, as a new group has to import first."""
        return self._launcher.collected_s if self._is_complete else self._launcher.next_s

    @property
    def _is_complete(self) -> bool:
        return self._made > 0 and self._made >= self._share()

    def prepare(self) -> None:
        """Begin a new group when the present one has had its launches."""
        if self._is_complete:
            self._alone = self._launcher.serves and self._share() == 1
            self._launcher.renew(alone=self._alone)
            self._made = 0

    def _share(self) -> int:
        """Return how many launches the present group is to make."""
        if not self._launcher.serves:
            # Where fork servers differ, a second launch of one adds hardly anything to its first.
            differ = self._shared_variance > SHARED_VARIANCE
            return 1 if differ else self._launcher.launches_per_fork_server
        if self._measured == 1 and self._launcher.warms_pairs:
            return 1
        return launches_per_generation(
            generation_s=self._launcher.collected_s,
            launch_s=self._benchmark_s * self._measured,
            shared_variance=self._shared_variance,
            most=_MOST_PER_GENERATION,
        )

    def make(self, slot: Slot, nodes: Sequence[str]) -> LaunchRecord:
        """Measure benchmarks on both sides in a launch, and once more if a fork server or zygote is lost."""
        return unthrottled(lambda: self._make(slot, nodes), self._states)

    def _make(self, slot: Slot, nodes: Sequence[str]) -> LaunchRecord:
        self._made += 1
        launch = functools.partial(self._launcher.launch, slot, nodes, plans=self._plans, rules=self._rules)
        record = launch()
        while self._mend(record.failures):
            record = launch()
        self._measured = len(record.seconds)
        # What a launch that stands alone takes includes the import, which others have from their generation.
        if record.seconds and not self._alone:
            self._benchmark_s = statistics.fmean(record.seconds.values())
        return record

    def expect(self, shared_variance: float) -> None:
        """Choose the size of later groups for launches that have so much variance in common within one."""
        self._shared_variance = max(shared_variance, SHARED_VARIANCE)

    def learn(self, libraries: Sequence[str]) -> None:
        """Have fork servers import modules that both sides import."""
        self._launcher.warm_up(libraries)


def unthrottled(
    make: Callable[[], LaunchRecord], states: Callable[[], Sequence[DeviceState]]
) -> LaunchRecord:
    """Make a launch while the states of devices are read, again where one was throttled, twice at most.

    A throttled launch is set aside. Without devices nothing is read.
    """
    spoilt: list[LaunchRecord] = []
    while True:
        before = states()
        made = make()
        found = passage(before, states())
        record = replace(made, facts=found.facts, marks=found.marks)
        if THROTTLED not in found.marks or len(spoilt) == _MOST_REPEATS or record.failures:
            return replace(record, set_aside=(*spoilt, *record.set_aside))
        spoilt += [*record.set_aside, replace(record, set_aside=())]


@dataclass(frozen=True, kw_only=True)
class SameCodeRun:
    """The launches of each benchmark, and the mean seconds that a launch of one took, overhead included.

    ``served`` means that they were forked after the import of the code, as those of a gate are.
    """

    pairs: Mapping[str, tuple[LaunchPair, ...]]
    launch_s: float
    served: bool


def run_same_code(
    launcher: Launcher, *, seconds: float, seed: int, progress: Callable[[float], None]
) -> SameCodeRun:
    """Measure what the launcher's sides hold until the time is over and there are launches enough to compare.

    ``progress`` receives the share that is done, from 0 to 1.
    """
    listed = launcher.survey()
    launches = LockstepLaunches(launcher, limit_s=lambda _: _LIMIT_S)
    launches.learn(shared_libraries(listed["base"].report, listed["head"].report))
    nodes = list(listed["head"].found)
    pairs: dict[str, list[LaunchPair]] = {node: [] for node in nodes}
    begun = time.monotonic()
    for number, slot in enumerate(schedule(seed=seed)):
        elapsed = time.monotonic() - begun
        progress(min(elapsed / seconds, 1.0))
        if elapsed >= seconds and number >= _FEWEST_LAUNCHES:
            break
        for one in make_launch(launches, slot, nodes)[1]:
            pairs[one.node].append(launch_pair(one.timing, one.slot, one.group))
    made = max(sum(map(len, pairs.values())), 1)
    return SameCodeRun(
        pairs={node: tuple(found) for node, found in pairs.items()},
        launch_s=(time.monotonic() - begun) / made,
        served=launcher.serves,
    )
