"""One launch: a child of each side runs its pytest session, and at each benchmark both are timed in turns."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfkit.agent.channel import ChannelClosedError, ChannelTimeoutError
from perfkit.measure.lockstep.children import Child
from perfkit.measure.lockstep.pace import Pace, corrected, plan_pace
from perfkit.measure.lockstep.runner import BenchmarkError, Runner
from perfkit.measure.lockstep.turns import Timing, calibrate, take_turns, time_first_call
from perfkit.processes.commands import ended_in_words
from perfkit.records import Side, Status

_GOODBYE_S = 30.0
# Of so many calls and rounds that a benchmark allows, one may be spent on learning how long they last; where
# they last so many seconds, a launch takes fewer.
_MANY_CALLS, _MANY_ROUNDS, _MANY_CALLS_S = 100, 10, 2.0


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a launch has no times or counts of a benchmark, and on which side.

    ``raised`` says that the test itself raised or skipped, ``both`` that both sides skipped it.
    """

    node: str
    side: Side
    status: Status
    message: str
    raised: bool = False
    both: bool = False


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
    that a throttled device spoilt.
    """

    timings: Mapping[str, Timing]
    failures: tuple[Failure, ...]
    reports: Mapping[Side, SideReport]
    seconds: Mapping[str, float]
    facts: Mapping[str, str] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    set_aside: tuple[LaunchRecord, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LaunchRules:
    """The seconds that a launch spends on a benchmark at least, and those it may send nothing at most."""

    launch_s: float
    limit_s: Callable[[str], float]


def shared_libraries(base: SideReport, head: SideReport) -> tuple[str, ...]:
    """Return the libraries' modules that both sides imported, in head's order."""
    known = set(base.libraries)
    return tuple(name for name in head.libraries if name in known)


def run_launch(
    children: Sequence[Child], nodes: Sequence[str], *, paces: dict[str, Pace], rules: LaunchRules
) -> LaunchRecord:
    """Measure ``nodes`` in two running children, the first of which begins each turn; both are ended.

    ``paces`` holds the plans of earlier launches; plans of new benchmarks are added to it. A benchmark that
    fails is left out; one that kills or hangs its process also ends the launch for those after it.
    """
    timings: dict[str, Timing] = {}
    failures: list[Failure] = []
    seconds: dict[str, float] = {}
    reports: dict[Side, SideReport] = {}
    try:
        for node in nodes:
            begun = time.monotonic()
            try:
                timings[node] = _measure(node, children, paces, rules)
            except BenchmarkError as error:
                failures.append(_failure(node, error))
                if error.fatal:
                    break
            seconds[node] = time.monotonic() - begun
        else:
            for child in children:
                child.resume()
            said = {child.side: read_report(child) for child in children}
            reports = {side: report for side, report in said.items() if report is not None}
    finally:
        statuses = {child.side: child.end() for child in children}
    return LaunchRecord(
        timings=timings,
        failures=tuple(
            ended(failure, statuses[failure.side], next(one for one in children if one.side == failure.side))
            for failure in failures
        ),
        reports=reports,
        seconds=seconds,
    )


def read_report(child: Child) -> SideReport | None:
    """Return the report of a child whose session is over, None where it sent none in time."""
    child.resume()
    try:
        message = child.channel.receive(_GOODBYE_S)
    except (ChannelClosedError, ChannelTimeoutError):
        return None
    return SideReport(
        foreign=message["foreign"],
        loaded=tuple(message.get("loaded", ())),
        libraries=tuple(message.get("libraries", ())),
        torch=message.get("torch", {}),
    )


def _measure(node: str, children: Sequence[Child], paces: dict[str, Pace], rules: LaunchRules) -> Timing:
    runners = [Runner(child, limit_s=rules.limit_s(node)) for child in children]
    try:
        for child in children:
            child.resume()
        wishes, _ = (runner.arrive() for runner in runners)
        if node not in paces:
            paces[node] = _plan(runners, wishes["loops"], wishes["rounds"], rules.launch_s)
        timing = take_turns(runners, pace=paces[node])
        paces[node] = corrected(paces[node], timing.base_s, timing.head_s, launch_s=rules.launch_s)
        for runner in runners:
            runner.leave()
        for runner in runners:
            runner.await_end()
    except BenchmarkError as error:
        if not error.fatal:
            for runner in runners:
                runner.abandon()
            error.both = all(runner.skipped for runner in runners)
        raise
    return timing


def _plan(runners: Sequence[Runner], loops: int | None, rounds: int | None, launch_s: float) -> Pace:
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
    return plan_pace(iteration_s, launch_s=launch_s, fixed_loops=loops, most_rounds=rounds, pipeline=pipeline)


def _failure(node: str, error: BenchmarkError) -> Failure:
    return Failure(
        node=node,
        side=error.side,
        status=error.status,
        message=error.message,
        raised=error.raised,
        both=error.both,
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
