"""One pytest session as ledger rows: each benchmark that ran, failed or was skipped is one row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from perfkit.identity import utc_now
from perfkit.model import (
    DEVICE_TIME,
    HOST_TIME,
    Benchmark,
    Commit,
    Environment,
    Machine,
    Outcome,
    Row,
    RowPolicy,
    Status,
)
from perfkit.model.counters import count_outcomes
from perfkit.model.policies import PytestPolicy
from perfkit.runner.agent.benchmark_fixture import Reading
from perfkit.runner.agent.clock import UNSETTLED, ColdStart, DeviceTimes
from perfkit.runner.agent.counters.model import Count, Counts
from perfkit.runner.launches import cold_start_values


@dataclass(frozen=True, kw_only=True)
class WarmedUp:
    """How a benchmark on an accelerator warmed up: its first call, all calls, and whether times settled."""

    cold: ColdStart
    calls: int
    settled: bool


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One benchmark or count of the session, when it ended, and the settings it was measured with.

    ``device`` are its rounds on an accelerator and ``cold`` its first call there, None where none was in use;
    ``facts`` are those of the devices meanwhile.
    """

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
        """Keep the result of one phase of a test; the first failure of a test stands.

        ``facts`` and ``marks`` are of the devices meanwhile, and ``warmed`` is the warm-up on one.
        """
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
        unsettled = (UNSETTLED,) if warmed and not warmed.settled else ()
        policy = replace(policy, marks=(*(device.marks if device else ()), *unsettled, *marks))
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

    def rows(
        self,
        *,
        run_id: str,
        commit: Commit,
        machine: Machine,
        environment: Environment,
        only: str | None = None,
    ) -> list[Row]:
        """Return the session, or ``only`` one benchmark, as rows of one run: times first, then counts."""
        names = [name for name in self.findings if only in (None, name)]
        timed = [one for name in names for one in (self.findings[name], *_on_device(self.findings[name]))]
        counted = [finding for name in self.counts if name in names for finding in self._counted(name)]
        return [
            Row(
                run_id=run_id,
                recorded_at=finding.at,
                source="pytest",
                commit=commit,
                machine=replace(machine, facts={**machine.facts, **finding.facts}),
                environment=environment,
                outcome=finding.outcome,
                policy=finding.policy,
            )
            for finding in (*timed, *counted)
        ]

    def _counted(self, name: str) -> Iterator[Finding]:
        timed = self.findings[name]
        if timed.outcome.status == "ok":
            for outcome in count_outcomes(timed.outcome.benchmark, self.counts[name]):
                yield Finding(outcome=outcome, at=timed.at)


def _on_device(finding: Finding) -> Iterator[Finding]:
    """Yield the times of the device and of the host, and the first call, which have rows of their own."""
    device, timed = finding.device, finding.outcome
    if device is None or timed.status != "ok":
        return
    for metric, values in ((DEVICE_TIME, device.device_s), (HOST_TIME, device.host_s)):
        if values:
            yield replace(finding, outcome=replace(timed, metric=metric, values=values))
    for metric, seconds in cold_start_values(finding.cold):
        outcome = replace(timed, metric=metric, warmup=0, loops=1, values=(seconds,))
        marks = finding.cold.marks if finding.cold else ()
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
