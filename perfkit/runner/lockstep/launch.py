"""One launch: a child of each side runs its pytest session, and at each benchmark both are timed in turns."""

from __future__ import annotations

import itertools
import math
import random
import re
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfkit.agent.channel import ChannelClosedError, ChannelTimeoutError, Message
from perfkit.model import SIDES, Side, Status
from perfkit.runner.commands import ended_in_words
from perfkit.runner.lockstep.children import Child
from perfkit.runner.lockstep.runner import WAITS_FOR_LOCK, BenchmarkError, Runner
from perfkit.runner.lockstep.turns import (
    LoopPlan,
    Timing,
    calibrate,
    corrected,
    plan_loops,
    take_rounds,
    take_turns,
    time_first_call,
    timing_of,
    warm,
)

_COMBINATIONS = tuple(itertools.product(SIDES, SIDES))


@dataclass(frozen=True, kw_only=True)
class Slot:
    """The place of one launch: its number, its block, which side is forked first and which begins."""

    launch: int
    block: int
    forked_first: Side
    begins: Side


def schedule(*, seed: int) -> Iterator[Slot]:
    """Yield launches without end; each block of four has every combination of the two orders once."""
    source = random.Random(seed)  # noqa: S311 (an experiment's order, not a secret)
    launches = itertools.count()
    for block in itertools.count():
        for forked_first, begins in source.sample(_COMBINATIONS, len(_COMBINATIONS)):
            yield Slot(launch=next(launches), block=block, forked_first=forked_first, begins=begins)


def other(side: Side) -> Side:
    """Return the opposite side."""
    return "head" if side == "base" else "base"


_GOODBYE_S = 30.0
# Why times and counts of a process do not count whose report never came.
NOT_PROVEN = "its process ended without proof of which code it had run"
# One process may be too slow to prove its code; where the next ones are as well, no launch will ever count.
UNPROVEN_IN_A_ROW = 2
# What libraries call a port or a lock that another process has. Ranks that meet those of the other side at a
# port end in various ways.
_IN_USE = re.compile(
    r"EADDRINUSE|already in use|already locked|is locked\b|unable to lock|could not be acquired"
    r"|(?:acquire|obtain|get) (?:the |a )?(?:file ?)?lock|BlockingIOError|AlreadyLocked|LockException"
    r"|Process(?:Exited|Raised)Exception|Dist(?:Network|Store)Error|Connection (?:reset|refused|closed)"
    rf"|FileExistsError.*\.(?:lock|pid)\b|{WAITS_FOR_LOCK}",
    re.IGNORECASE,
)
# Where a benchmark allows this many calls and rounds, one may be spent on learning how long they last; where
# they last this many seconds, a launch takes fewer.
_MANY_CALLS, _MANY_ROUNDS, _MANY_CALLS_S = 100, 10, 2.0
# Where benchmarks take longer than this on average, none begins after the time of a launch is over.
_LONG_S = 2.0
# A process takes a second or two to begin to use an accelerator, so a launch there times this long at least.
# More would gain little: no change below a few percent is decided before the twelfth launch.
_LAUNCH_ON_DEVICE_S = 0.6


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a launch has no times or counts of a benchmark, and on which side.

    ``raised`` means that the test itself raised or skipped, ``both`` that it ended alike on both sides, and
    ``device_full`` that an accelerator had no memory left.
    """

    node: str
    side: Side
    status: Status
    message: str
    raised: bool = False
    both: bool = False
    device_full: bool = False

    @property
    def in_use(self) -> bool:
        """Whether it failed as where the other side has a port or a lock that it needs."""
        return bool(_IN_USE.search(self.message))


@dataclass(frozen=True, kw_only=True)
class SideReport:
    """What a child reported at the end of its session, or once it had listed its benchmarks.

    ``foreign`` are modules of the code under test that came from elsewhere; ``loaded`` the files of the
    tree that were imported; ``libraries`` the imported modules of packages and the standard library, in
    order; ``torch`` its threads and precision flags, empty where it was not loaded.
    """

    foreign: Mapping[str, str]
    loaded: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    torch: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LaunchRecord:
    """The results of one launch; ``seconds`` is the wall time of each benchmark, fixtures included.

    ``facts`` and ``marks`` are of the devices meanwhile. ``set_aside`` are earlier tries at the same launch
    that a throttled device, or the other side on the same device, spoilt. Of the ``unproven`` benchmarks a
    side ended without its report, so that nobody knows which code their times are of: ``silent`` are such
    sides, each with the last line that it printed.
    """

    timings: Mapping[str, Timing]
    failures: tuple[Failure, ...]
    reports: Mapping[Side, SideReport]
    seconds: Mapping[str, float]
    facts: Mapping[str, str] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    set_aside: tuple[LaunchRecord, ...] = ()
    unproven: frozenset[str] = frozenset()
    silent: Mapping[Side, str] = field(default_factory=dict)

    @property
    def proven(self) -> Mapping[str, Timing]:
        """The times of the benchmarks of which both sides have proved their code."""
        return {node: timing for node, timing in self.timings.items() if node not in self.unproven}


@dataclass(frozen=True, kw_only=True)
class LaunchRules:
    """The seconds that a launch spends on a benchmark at least, and those it may send nothing at most.

    ``check_s`` are those that a check may take, whether the sides disturb one another on an accelerator. When
    it is ``until`` on the monotonic clock, no benchmark begins where the others take long.
    """

    launch_s: float
    limit_s: Callable[[str], float]
    check_s: float = 0.0
    until: float = math.inf


def shared_libraries(base: SideReport, head: SideReport) -> tuple[str, ...]:
    """Return the libraries' modules that both sides imported, in head's order."""
    known = set(base.libraries)
    return tuple(name for name in head.libraries if name in known)


def warmed(children: Sequence[Child], node: str, *, plan: LoopPlan, limit_s: float) -> list[Runner]:
    """Bring the children of several launches to their first round, all at once, and stop them there.

    They use the device beside one another meanwhile, and nothing is timed.

    Raises:
        BenchmarkError: it failed in one of them.
    """
    runners = [Runner(child, node, limit_s=limit_s) for child in children]
    for child in children:
        child.resume()
    for runner in runners:
        runner.arrive()
        runner.begin_warmup(plan.begins_with)
    for runner in runners:
        runner.finish_warmup()
    return runners


def run_launch(
    children: Sequence[Child],
    nodes: Sequence[str],
    *,
    plans: dict[str, LoopPlan],
    rules: LaunchRules,
    ready: Sequence[Runner] = (),
) -> LaunchRecord:
    """Measure ``nodes`` in two running children, the first of which begins each turn; both are ended.

    ``plans`` holds the plans of earlier launches; plans of new benchmarks are added to it. A benchmark that
    fails is left out; one that kills or hangs its process also ends the launch for those after it. ``ready``
    are the runners of children that are warmed for their only benchmark.
    """
    timings: dict[str, Timing] = {}
    failures: list[Failure] = []
    seconds: dict[str, float] = {}
    reports: dict[Side, SideReport] = {}
    try:
        for node in nodes:
            begun = time.monotonic()
            if begun > rules.until and sum(seconds.values()) > _LONG_S * len(seconds):
                for child in children:
                    child.over.add(node)
                continue
            try:
                timings[node] = _measure(node, children, plans, rules, ready)
            except BenchmarkError as error:
                failures.append(failure_of(node, error))
                if error.fatal:
                    break
            seconds[node] = time.monotonic() - begun
        else:
            for child in children:
                child.resume()
            sent = {child.side: read_report(child) for child in children}
            reports = {side: report for side, report in sent.items() if report is not None}
    finally:
        # Two processes leave a device in the time of one.
        for child in children:
            child.kill()
        statuses = {child.side: child.end() for child in children}
    return LaunchRecord(
        timings=timings,
        failures=tuple(
            ended(failure, statuses[failure.side], next(one for one in children if one.side == failure.side))
            for failure in failures
        ),
        reports=reports,
        seconds=seconds,
        unproven=frozenset(timings) if len(reports) < len(children) else frozenset(),
        silent={child.side: child.last_words() for child in children if child.side not in reports},
    )


def run_alone(
    start: Callable[[Side], Child],
    order: Sequence[Side],
    nodes: Sequence[str],
    *,
    plans: dict[str, LoopPlan],
    rules: LaunchRules,
) -> LaunchRecord:
    """Measure ``nodes`` in a child of each side, the second of which is started once the first has ended.

    Each has the device to itself then. The second makes as many rounds of a benchmark as the first, at the
    same plan. What fails on the first side is not measured on the second.
    """
    first = _run_side(start(order[0]), nodes, plans, rules, None)
    second = _run_side(start(order[1]), first.wanted_of_other, plans, rules, first)
    measured = {order[0]: first, order[1]: second}
    both = [node for node in nodes if node in first.runners and node in second.runners]
    timings = {}
    for node in both:
        runners = {side: one.runners[node] for side, one in measured.items()}
        timing = timings[node] = timing_of(runners, plans[node], alone=True)
        plans[node] = _corrected(plans[node], timing, rules)
    skipped = first.skipped & second.skipped
    failures = [replace(one, both=one.node in skipped) for one in first.failures.values()]
    failures += [one for one in second.failures.values() if one.node not in skipped]
    reports = {side: one.report for side, one in measured.items() if one.report is not None}
    return LaunchRecord(
        timings=timings,
        failures=tuple(failures),
        reports=reports,
        seconds={node: first.seconds[node] + second.seconds.get(node, 0.0) for node in first.seconds},
        unproven=frozenset(timings) if len(reports) < len(measured) else frozenset(),
        silent={side: one.last_words for side, one in measured.items() if one.report is None},
    )


@dataclass
class _AloneSide:
    """A side that has the device to itself, and what it measured: the runner, turns and core by benchmark."""

    runners: dict[str, Runner] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    cores: dict[str, int | None] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    report: SideReport | None = None
    last_words: str = ""

    @property
    def skipped(self) -> set[str]:
        """The benchmarks that it skipped."""
        return {node for node, failure in self.failures.items() if failure.status == "skipped"}

    @property
    def wanted_of_other(self) -> list[str]:
        """The benchmarks that the other side is to run: what one side skips the other may skip as well."""
        return [node for node in self.seconds if node in self.runners or node in self.skipped]


def _run_side(
    child: Child,
    nodes: Sequence[str],
    plans: dict[str, LoopPlan],
    rules: LaunchRules,
    before: _AloneSide | None,
) -> _AloneSide:
    """Measure the benchmarks of one side and end its child; ``before`` is the side that came first."""
    own = _AloneSide()
    try:
        for node in nodes:
            begun = time.monotonic()
            runner = Runner(child, node, limit_s=rules.limit_s(node))
            try:
                _measure_alone(node, runner, own, plans, rules, before)
            except BenchmarkError as error:
                own.failures[node] = failure_of(node, error)
                if error.fatal:
                    break
            finally:
                own.seconds[node] = time.monotonic() - begun
        else:
            own.report = read_report(child)
    finally:
        status = child.end()
    own.failures = {node: ended(failure, status, child) for node, failure in own.failures.items()}
    if own.report is None:
        own.last_words = child.last_words()
    return own


def _measure_alone(
    node: str,
    runner: Runner,
    own: _AloneSide,
    plans: dict[str, LoopPlan],
    rules: LaunchRules,
    before: _AloneSide | None,
) -> None:
    try:
        wishes = runner.arrive()
        if before is not None and node not in before.runners:
            runner.abandon()
            return
        if node not in plans:
            plans[node] = _first_plan([runner], wishes, rules)
        own.cores[node] = before.cores[node] if before else runner.core
        turns = before.turns[node] if before else None
        own.turns[node] = take_rounds(runner, plan=plans[node], turns=turns, core=own.cores[node])
        runner.leave()
        runner.await_end()
        own.runners[node] = runner
    except BenchmarkError as error:
        if not error.fatal:
            runner.abandon()
        raise


def joined_records(records: Sequence[LaunchRecord]) -> LaunchRecord:
    """Return what several records of one launch hold together, each of other benchmarks."""
    if len(records) == 1:
        return records[0]
    reports = {side: [one.reports[side] for one in records if side in one.reports] for side in SIDES}
    return LaunchRecord(
        timings={node: timing for one in records for node, timing in one.timings.items()},
        failures=tuple(failure for one in records for failure in one.failures),
        reports={side: joined_report(known) for side, known in reports.items() if known},
        seconds={node: seconds for one in records for node, seconds in one.seconds.items()},
        unproven=frozenset[str]().union(*(one.unproven for one in records)),
        silent={side: words for one in records for side, words in one.silent.items()},
    )


def joined_report(reports: Sequence[SideReport]) -> SideReport:
    """Return the reports of a side as one."""

    def united(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(names))

    return SideReport(
        foreign={name: file for one in reports for name, file in one.foreign.items()},
        loaded=united(name for one in reports for name in one.loaded),
        libraries=united(name for one in reports for name in one.libraries),
        torch=next((one.torch for one in reports if one.torch), {}),
    )


def replaced(record: LaunchRecord, nodes: Collection[str], again: LaunchRecord, *, why: str) -> LaunchRecord:
    """Return a record whose times of some benchmarks are set aside, for they were measured ``again``."""
    timings = {node: timing for node, timing in record.timings.items() if node in nodes}
    spoilt = replace(record, timings=timings, failures=(), marks=(why,), set_aside=())
    rest = replace(
        record,
        timings={node: timing for node, timing in record.timings.items() if node not in nodes},
        failures=tuple(one for one in record.failures if one.node not in nodes),
        unproven=record.unproven.difference(nodes),
    )
    joined = joined_records([rest, again])
    return replace(joined, set_aside=(*record.set_aside, *((spoilt,) if timings else ())))


def read_report(child: Child, *, limit_s: float = _GOODBYE_S) -> SideReport | None:
    """Return the report of a child whose session is over, None where it was silent for that long."""
    child.resume()
    try:
        while (message := child.receive(limit_s))["kind"] != "done":
            pass
    except (ChannelClosedError, ChannelTimeoutError):
        return None
    return SideReport(
        foreign=message["foreign"],
        loaded=tuple(message.get("loaded", ())),
        libraries=tuple(message.get("libraries", ())),
        torch=message.get("torch", {}),
    )


def _measure(
    node: str,
    children: Sequence[Child],
    plans: dict[str, LoopPlan],
    rules: LaunchRules,
    ready: Sequence[Runner],
) -> Timing:
    runners = ready or [Runner(child, node, limit_s=rules.limit_s(node)) for child in children]
    try:
        if not ready:
            for child in children:
                child.resume()
            wishes, _ = (runner.arrive() for runner in runners)
            if node not in plans:
                plans[node] = _first_plan(runners, wishes, rules)
        timing = take_turns(runners, plan=plans[node])
        plans[node] = _corrected(plans[node], timing, rules)
        for runner in runners:
            runner.leave()
        for runner in runners:
            runner.await_end()
    except BenchmarkError as error:
        if not error.fatal:
            for runner in runners:
                runner.abandon()
            error.both = are_alike([runner.ended for runner in runners])
        raise
    return timing


def _first_plan(runners: Sequence[Runner], wishes: Message, rules: LaunchRules) -> LoopPlan:
    """Return how to measure a benchmark that is measured for the first time.

    On an accelerator it is warmed up first, unless it allows a number of calls.
    """
    free = wishes["rounds"] is None and any(runner.on_device for runner in runners)
    warmup = warm(runners) if free else 0
    launch_s = _launch_s(rules, on_device=free)
    return replace(_plan(runners, wishes["loops"], wishes["rounds"], launch_s), warmup=warmup)


def _corrected(plan: LoopPlan, timing: Timing, rules: LaunchRules) -> LoopPlan:
    launch_s = _launch_s(rules, on_device=timing.on_device)
    return corrected(plan, timing.base_s, timing.head_s, launch_s=launch_s)


def _launch_s(rules: LaunchRules, *, on_device: bool) -> float:
    return max(rules.launch_s, _LAUNCH_ON_DEVICE_S) if on_device else rules.launch_s


def _plan(runners: Sequence[Runner], loops: int | None, rounds: int | None, launch_s: float) -> LoopPlan:
    """Return how to measure a benchmark, whose rounds must have ``loops`` calls and may be ``rounds``.

    Of few calls that are allowed none is spent on learning how long one takes. Calls that would last longer
    than any launch are measured as those of other benchmarks, which takes fewer of them.
    """
    if rounds is not None and rounds >= _MANY_ROUNDS and (loops or 1) * rounds >= _MANY_CALLS:
        if time_first_call(runners) * (loops or 1) * rounds >= _MANY_CALLS_S:
            loops = rounds = None
        else:
            rounds -= 1
    iteration_s = calibrate(runners, with_setup=loops is not None) if rounds is None else 1.0
    pipeline = any(len(runner.child.look()) > 1 for runner in runners)
    return plan_loops(
        iteration_s, launch_s=launch_s, fixed_loops=loops, most_rounds=rounds, pipeline=pipeline
    )


def are_alike(ends: Sequence[BenchmarkError | Failure | None]) -> bool:
    """Return whether a benchmark ended alike on all sides: skipped, or by the same kind of error."""
    known = [one for one in ends if one is not None]
    kinds = {(one.status, one.status != "skipped" and one.message.partition(":")[0]) for one in known}
    return len(known) == len(ends) > 1 and len(kinds) == 1


def failure_of(node: str, error: BenchmarkError) -> Failure:
    """Return an error as the failure of a benchmark."""
    return Failure(
        node=node,
        side=error.side,
        status=error.status,
        message=error.message,
        raised=error.raised,
        both=error.both,
        device_full=error.device_full,
    )


def ended(failure: Failure, status: int, child: Child) -> Failure:
    """Return a failure with how its process ended, where the benchmark itself gave no message."""
    if failure.message:
        return failure
    how = f"its process {ended_in_words(status)}"
    if status == -signal.SIGKILL:
        return replace(failure, status="oom", message=how)
    words = child.last_words() if status >= 0 else ""
    return replace(failure, message="; ".join(filter(None, (how, words))))
