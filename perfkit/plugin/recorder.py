"""Follows one pytest session: each benchmark is staged once it is over, and all are filed at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import math
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from perfkit.agent import FIXTURE_NAME, NO_COUNTS
from perfkit.agent.asv_suite import number_of
from perfkit.agent.benchmark_fixture import (
    Reading,
    Timed,
    after_rounds,
    before_rounds,
    group_of,
    is_benchmark,
    note_unrun,
    read_fixture,
)
from perfkit.agent.clock import NOT_WARM, BlockClock, ColdStart, DeviceTimes, accelerator_in_use, cold_start
from perfkit.agent.counters.model import Count, Counts
from perfkit.agent.counters.torch_adapter import Compilation, read_compilation
from perfkit.agent.provenance import STARTED, foreign_in_words, foreign_modules
from perfkit.agent.session import judge, last_line, source_and_params
from perfkit.agent.state import StateKeeper
from perfkit.config import Project, is_url, load_project
from perfkit.errors import EXIT_INTERNAL, EXIT_NOT_MEASURED, LedgerError, PerfkitError
from perfkit.identity import new_run_id, source_version, utc_now
from perfkit.internal_error import internal_error_lines, notes_of
from perfkit.invocation import ended_like_ctrl_c, signals_put_off
from perfkit.ledger.recording import Run, RunFacts, outcomes_of, recover_leftovers
from perfkit.ledger.remote import ledger_folder, shown_place
from perfkit.ledger.store import Ledger
from perfkit.model import Benchmark, Commit, Machine, Outcome, Row, RowPolicy, Status
from perfkit.model.counters import count_outcomes, is_count
from perfkit.model.policies import PytestPolicy
from perfkit.plugin import ASV_NAME, given_paths, is_distributed, without_warnings
from perfkit.repo.commits import check_not_nested, read_commit
from perfkit.report.console import visible, visible_lines
from perfkit.runner.machine.facts import (
    DeviceState,
    Passage,
    own_devices,
    passage,
    read_environment,
    read_machine,
)
from perfkit.stats.summary import WarmUp


@dataclass(frozen=True, kw_only=True)
class WarmedUp:
    """How a benchmark on an accelerator warmed up: its first call, all calls, and whether it is warm."""

    cold: ColdStart
    calls: int
    warm: bool


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One benchmark or count of the session, when it ended, and the settings it was measured with."""

    outcome: Outcome
    at: datetime
    policy: RowPolicy = field(default_factory=RowPolicy)
    device: DeviceTimes | None = None
    cold: ColdStart | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass
class SessionRecord:
    """The benchmarks of a session in the order in which they ran; one may not occur twice."""

    findings: dict[str, Finding] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)

    def add(
        self,
        benchmark: Benchmark,
        reading: Reading | None,
        *,
        status: Status,
        message: str | None,
        facts: Mapping[str, str] | None = None,
        marks: tuple[str, ...] = (),
        warmed: WarmedUp | None = None,
    ) -> None:
        """Keep the result of one phase of a test; the first failure of a test stands."""
        known = self.findings.get(benchmark.name)
        if known is not None and known.outcome.status != "ok":
            return
        outcome = Outcome(
            benchmark=benchmark,
            warmup=_untimed(reading, warmed) if reading else None,
            loops=reading.loops if reading else None,
            values=reading.values if reading else (),
            status=status,
            message=message,
        )
        policy = _policy(reading) if reading else RowPolicy()
        device = reading.device if reading else None
        not_warm = (NOT_WARM,) if warmed and not warmed.warm else ()
        policy = replace(policy, marks=(*(device.marks if device else ()), *not_warm, *marks))
        self.findings[benchmark.name] = Finding(
            outcome=outcome,
            at=utc_now(),
            policy=policy,
            device=device,
            cold=warmed.cold if warmed else None,
            facts=facts or {},
        )

    def add_number(self, benchmark: Benchmark, number: Count) -> None:
        """Keep the number that a test measured instead of a time."""
        (outcome,) = count_outcomes(benchmark, Counts(counts=(number,), not_counted={}))
        self.findings[benchmark.name] = Finding(outcome=outcome, at=utc_now())

    def date(self, name: str) -> None:
        """Note that a benchmark is over: the clock is right again, where a fixture of it held it still."""
        if name in self.findings:
            self.findings[name] = replace(self.findings[name], at=utc_now())

    def forget(self, name: str) -> None:
        """Forget what was found of a benchmark, as it begins again."""
        self.findings.pop(name, None)
        self.counts.pop(name, None)

    def rows(self, facts: RunFacts, *, only: str | None = None) -> list[Row]:
        """Return the session, or ``only`` one benchmark, as rows of one run: times first, then counts."""
        names = [name for name in self.findings if only in (None, name)]
        timed = [one for name in names for one in _timed(self.findings[name])]
        counted = [finding for name in self.counts if name in names for finding in self._counted(name)]
        rows = []
        for one in (*timed, *counted):
            machine = replace(facts.machine, facts={**facts.machine.facts, **one.facts})
            at_end = replace(facts, recorded_at=one.at, machine=machine)
            rows.append(at_end.row(one.outcome, policy=one.policy))
        return rows

    def _counted(self, name: str) -> Iterator[Finding]:
        timed = self.findings[name]
        if timed.outcome.status == "ok":
            for outcome in count_outcomes(timed.outcome.benchmark, self.counts[name]):
                yield Finding(outcome=outcome, at=timed.at)


def _timed(finding: Finding) -> Iterator[Finding]:
    """Yield a finding, and those of the device and of the first call."""
    if finding.outcome.status != "ok":
        yield finding
        return
    cold = finding.cold if finding.device is not None else None
    for outcome, marks in outcomes_of(finding.outcome, finding.device, cold):
        policy = replace(finding.policy, marks=(*finding.policy.marks, *marks))
        yield replace(finding, outcome=outcome, policy=policy)


def _untimed(reading: Reading, warmed: WarmedUp | None) -> int | None:
    return reading.warmup if warmed is None else (reading.warmup or 0) + warmed.calls


def _policy(reading: Reading) -> PytestPolicy:
    return PytestPolicy(
        mode=reading.mode,
        disable_gc=reading.disable_gc,
        min_rounds=reading.min_rounds,
        max_time_s=reading.max_time_s,
        min_time_s=reading.min_time_s,
    )


# Beside the rounds of a benchmark, counting may take this share of what they took, or this many seconds.
_SHARE = 0.1
_FEW_SECONDS = 0.02
# Calls that counting makes at least: two for tensors and two for Python's functions.
_FEWEST_CALLS = 4


class Counting(enum.Enum):
    """Which benchmarks are counted."""

    NOTHING = enum.auto()
    CHEAP = enum.auto()
    ALL = enum.auto()


class Recorder:
    """The hooks of a recording session."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        commit: Commit,
        machine: Machine,
        proven_root: Path | None,
        asked_explicitly: bool,
        counting: Counting,
        is_of_asv: Callable[[str], bool],
    ) -> None:
        self._ledger = ledger
        self._commit = commit
        self._machine = machine
        self._proven_root = proven_root
        self._asked_explicitly = asked_explicitly
        self._counting = counting
        self._is_of_asv = is_of_asv
        self._record = SessionRecord()
        self._fixtures: dict[str, object] = {}
        self._states: tuple[DeviceState, ...] = ()
        self._warmed: dict[str, WarmedUp] = {}
        self._unrun: dict[str, str] = {}
        self._report = ""
        self._compared: tuple[str, ...] = ()
        self._run_id = new_run_id()
        self._run: Run | None = None
        self._process = os.getpid()
        self._problem: tuple[str, ...] = ()
        self.keeper = StateKeeper()
        self._exit_code: int | None = None
        self._signals = contextlib.ExitStack()
        self._ending = contextlib.ExitStack()
        self._came: list[int] | None = None

    @classmethod
    def prepare(cls, config: pytest.Config) -> Recorder:
        """Find the commit and the ledger, before anything is measured."""
        project = load_project(config.rootpath)
        given = config.getoption("perfkit_ledger")
        place = project.ledger_place
        if given:
            place = given if is_url(given) else config.invocation_params.dir / given
        ledger = Ledger(ledger_folder(place))
        check_not_nested(given_paths(config), config.rootpath)
        commit = read_commit(config.rootpath, ignored=(*project.output_paths, ledger.path))
        ledger.check_writable()
        for found in recover_leftovers(ledger.path):
            print(f"perfkit: {visible(found.text)}", file=sys.stderr)  # noqa: T201 (as the commands do)
        root = config.getoption("perfkit_prove_root")
        return cls(
            ledger=ledger,
            commit=commit,
            # The machine is read before anything runs, so that its load is not that of the session.
            machine=read_machine(timed=True),
            proven_root=Path(root) if root else None,
            asked_explicitly=given is not None,
            counting=_counting(config, project),
            is_of_asv=_of_asv(config),
        )

    def pytest_sessionstart(self) -> None:
        """Let signals that end the session do what Ctrl-C does, so that complete results are kept."""
        self._signals.enter_context(ended_like_ctrl_c())

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Get to know each ``benchmark`` fixture, also one that a test or another fixture asks for late."""
        made = yield
        if fixturedef.argname == FIXTURE_NAME:
            with self._apart_from_tests():
                self._meet(request.node, made)
        return made

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep how a phase of a benchmark ended."""
        report = yield
        with self._apart_from_tests():
            if FIXTURE_NAME in getattr(item, "fixturenames", ()) or item.nodeid in self._fixtures:
                self._keep(item, call, report)
                if report.when == "teardown":
                    self._fixtures.pop(item.nodeid, None)
                    self._stage(item.nodeid)
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep that a file of an asv suite could not be imported: its benchmarks are not known."""
        if report.failed and self._is_of_asv(report.nodeid):
            with self._apart_from_tests():
                self._record.add(
                    Benchmark(name=report.nodeid, version=""), None, status="error", message=last_line(report)
                )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Put signals off from the last test on until all is filed."""
        try:
            return (yield)
        finally:
            self._came = self._ending.enter_context(signals_put_off())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Write the ledger file, before anything else that may fail at the end of a session.

        Who interrupts it now finds the rows in the ledger, and a session that ends as an interrupted one.
        """
        with self._signals, self._ending:
            if self._came is None:
                # The tests were not run: what could not be collected ended the session before.
                self._came = self._ending.enter_context(signals_put_off())
            with self._apart_from_tests():
                self._finish(session)
            if self._exit_code is not None:
                session.exitstatus = self._exit_code
            if self._came:
                self._came.clear()
                session.exitstatus = pytest.ExitCode.INTERRUPTED
                filed = "; all rows are filed" if self._run is not None and self._run.file is not None else ""
                self._problem += (f"interrupted (KeyboardInterrupt) after the last test{filed}",)
        return (yield)

    def _finish(self, session: pytest.Session) -> None:
        if not self._record.findings:
            distributed = is_distributed(session.config)
            cause = ": pytest-xdist (-n) switches benchmarks off: add -n 0" if distributed else ""
            self._report = f"nothing was measured, so nothing was added to the ledger{cause}"
            if self._asked_explicitly and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = EXIT_NOT_MEASURED
            return
        foreign = self._foreign_code()
        if foreign:
            if self._run is not None:
                self._run.discard()
            self._report = f"{foreign_in_words(foreign)}; nothing was added to the ledger"
            session.exitstatus = EXIT_NOT_MEASURED
            return
        self._write(session)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:  # noqa: ANN401 (pytest's type is private)
        """Report where the rows went."""
        put_back = [
            f"put back what {node} changed: {', '.join(names)}" for node, names in self.keeper.changed.items()
        ]
        unrun = [f"{node} was not measured: {why}" for node, why in self._unrun.items()]
        for line in (self._report, *unrun, *put_back, *self._compared, *self._problem):
            if line:
                terminalreporter.write_line(f"perfkit: {visible_lines(line)}")

    def _meet(self, item: pytest.Item, fixture: object) -> None:
        if not is_benchmark(fixture):
            return
        # A test that is run again, as some plugins do after a failure, is judged by its last run.
        self._record.forget(item.nodeid)
        self._fixtures[item.nodeid] = fixture
        self._warmed.pop(item.nodeid, None)
        self._states = own_devices().states()
        if self._counting is not Counting.NOTHING:
            since = read_compilation()
            after_rounds(fixture, lambda timed: self._count(item, timed, since))
        # It has to be the outer one of both, since it calls the user's own function.
        before_rounds(fixture, lambda call: self._warm_up(item.nodeid, call))
        self._unrun.pop(item.nodeid, None)
        note_unrun(fixture, lambda why: self._unrun.update({item.nodeid: why}))

    def _warm_up(self, node: str, call: Callable[[], object]) -> None:
        """Call a benchmark on an accelerator until it is warm; what it raises fails its test."""
        device, clock, warm_up = accelerator_in_use(), BlockClock(time.perf_counter), WarmUp()

        def seconds_of_call() -> float:
            begun = clock.read()
            call()
            return clock.read() - begun

        def note(seconds: float) -> None:
            reserved, clock_mhz = (None, None) if device is None else (device.reserved(), device.clock_mhz())
            warm_up.add(seconds, reserved=reserved, clock=clock_mhz)

        cold = cold_start(seconds_of_call)
        note(cold.total_s)
        while not warm_up.is_over:
            note(seconds_of_call())
        warm = warm_up.warm_from is not None
        self._warmed[node] = WarmedUp(cold=cold, calls=len(warm_up.seconds), warm=warm)

    def _count(self, item: pytest.Item, timed: Timed, since: Compilation) -> None:
        with self._errors_apart():
            counts = _counts(timed, item.config.rootpath, since, everything=self._counting is Counting.ALL)
            if counts is not None:
                self._record.counts[item.nodeid] = counts

    @contextlib.contextmanager
    def _apart_from_tests(self) -> Iterator[None]:
        with self._errors_apart(), without_warnings():
            yield

    @contextlib.contextmanager
    def _errors_apart(self) -> Iterator[None]:
        try:
            yield
        except PerfkitError as error:
            self._problem, self._exit_code = (str(error), *notes_of(error)), error.exit_code
        except Exception as error:  # noqa: BLE001 (1 would mean a failed test)
            self._problem, self._exit_code = tuple(internal_error_lines(error)), EXIT_INTERNAL

    def _keep(self, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
        fixture = self._fixtures.get(item.nodeid)
        status, message = judge(call, report)
        if status == "ok" and report.when == "call" and item.nodeid in self._unrun:
            status, message = "error", self._unrun[item.nodeid]
        if status == "ok" and report.when != "call":
            return
        passed = passage(self._states, own_devices().states()) if report.when == "call" else Passage()
        reading, number = read_fixture(fixture), number_of(item)
        if status == "ok" and reading is None and number is None:
            return
        benchmark = _identify(item, group_of(fixture))
        if status == "ok" and number is not None:
            self._record.add_number(benchmark, number)
            return
        self._record.add(
            benchmark,
            reading,
            status=status,
            message=message,
            facts=passed.facts,
            marks=passed.marks,
            warmed=self._warmed.get(item.nodeid),
        )

    def _stage(self, node: str) -> None:
        self._record.date(node)
        rows = self._rows(only=node)
        if not rows or os.getpid() != self._process or self._foreign_code():
            return
        # Rows that cannot be written now are written at the end, or the error is reported then.
        with contextlib.suppress(LedgerError):
            self._begun(rows).add(rows)

    def _begun(self, rows: Sequence[Row]) -> Run:
        if self._run is None:
            self._run = self._ledger.run(
                source="pytest", run_id=self._run_id, recorded_at=rows[0].recorded_at
            )
        return self._run

    def _rows(self, *, only: str | None = None) -> list[Row]:
        facts = RunFacts(
            run_id=self._run_id,
            recorded_at=utc_now(),
            source="pytest",
            commit=self._commit,
            machine=self._machine,
            environment=read_environment(),
        )
        return self._record.rows(facts, only=only)

    def _foreign_code(self) -> Mapping[str, str]:
        return foreign_modules(self._proven_root, made_since=STARTED) if self._proven_root else {}

    def _write(self, session: pytest.Session) -> None:
        rows = self._rows()
        try:
            with self._begun(rows) as run:
                # These rows replace the staged ones: they have the final states and settings of torch.
                file = run.publish(instead=rows)
        except LedgerError as error:
            self._report = str(error)
            session.exitstatus = EXIT_NOT_MEASURED
            return
        names = {row.outcome.benchmark.name for row in rows}
        failed = sum(row.outcome.status != "ok" for row in rows if not is_count(row))
        state = f"{len(names)} benchmarks" + (f", {failed} not measured" if failed else "")
        dirty = " (uncommitted changes: left out of the log)" if self._commit.dirty else ""
        self._report = f"{state}, commit {self._commit.sha[:10]}{dirty} -> {file and shown_place(file)}"
        if session.config.get_verbosity() >= 0:
            # Not imported by sessions that are to be quiet, nor before anything is measured.
            from perfkit.commands.past import compared_with_last

            self._compared = compared_with_last(rows, self._ledger)


def _of_asv(config: pytest.Config) -> Callable[[str], bool]:
    plugin = config.pluginmanager.get_plugin(ASV_NAME)
    if plugin is None:
        return lambda _: False
    return lambda node: plugin.suite.holds(config.rootpath / node)


def _counting(config: pytest.Config, project: Project) -> Counting:
    unwanted = config.getoption("perfkit_no_counts") or os.environ.get(NO_COUNTS)
    if unwanted or not project.config.exact.count:
        return Counting.NOTHING
    return Counting.ALL if config.getoption("perfkit_counts") else Counting.CHEAP


def _counts(timed: Timed, root: Path, since: Compilation, *, everything: bool) -> Counts | None:
    """Return what a benchmark's call counts; None where that takes too long, or the call raises."""
    seconds = math.inf if everything else max(timed.seconds * _SHARE, _FEW_SECONDS)
    if not everything and ("torch" not in sys.modules or timed.seconds_of_call * _FEWEST_CALLS > seconds):
        return None
    from perfkit.agent.counters.calls import counts_of_call

    if "torch" in sys.modules:
        _begin_counting(root)
    most = math.inf if everything else _FEWEST_CALLS
    try:
        found = counts_of_call(timed.within(seconds), root=root, most_calls=most, since=since, as_guest=True)
    except Exception:  # noqa: BLE001 (the test goes on)
        return None
    return dataclasses.replace(found, not_counted={})


@functools.cache
def _begin_counting(root: Path) -> None:
    """Count a call of torch once: the first count of a process imports much of torch, which takes long.

    Where torch was built for CUDA that takes longer than a cheap benchmark's calls may.
    """
    from perfkit.agent.counters.calls import counts_of_call

    call = functools.partial(sys.modules["torch"].ones, 1)
    # What does not work here does not work for benchmarks either, and is reported there.
    with contextlib.suppress(Exception):
        counts_of_call(call, root=root, most_calls=_FEWEST_CALLS, as_guest=True)


def _identify(item: pytest.Item, group: str | None) -> Benchmark:
    source, params = source_and_params(item)
    return Benchmark(name=item.nodeid, version=source_version(source), params=params, group=group)
