"""Build the rows of a run from what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from perfkit.agent.clock import ColdStart, DeviceTimes
from perfkit.model import (
    COLD_AUTOTUNING,
    COLD_COMPILING,
    COLD_START,
    DEVICE_TIME,
    HOST_TIME,
    Commit,
    Environment,
    Machine,
    Metric,
    Outcome,
    Placement,
    Row,
    RowPolicy,
)

_ANYWHERE, _NO_RULES = Placement(), RowPolicy()


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What the rows of a run share."""

    run_id: str
    recorded_at: datetime
    source: str
    commit: Commit
    machine: Machine
    environment: Environment

    def row(
        self, outcome: Outcome, *, placement: Placement = _ANYWHERE, policy: RowPolicy = _NO_RULES
    ) -> Row:
        """Return the row of an outcome."""
        return Row(
            run_id=self.run_id,
            recorded_at=self.recorded_at,
            source=self.source,
            commit=self.commit,
            machine=self.machine,
            environment=self.environment,
            outcome=outcome,
            placement=placement,
            policy=policy,
        )


def device_values(device: DeviceTimes | None) -> Iterator[tuple[Metric, tuple[float, ...]]]:
    """Yield the metrics of an accelerator that are known, with their values."""
    if device is not None and device.device_s:
        yield DEVICE_TIME, device.device_s
    if device is not None and device.host_s:
        yield HOST_TIME, device.host_s


def cold_start_values(cold: ColdStart | None) -> Iterator[tuple[Metric, tuple[float, ...]]]:
    """Yield the metrics of a first call with its seconds; its parts if torch reported them."""
    if cold is None:
        return
    yield COLD_START, (cold.total_s,)
    if cold.compiling_s or cold.autotuning_s:
        yield COLD_COMPILING, (cold.compiling_s or 0.0,)
        yield COLD_AUTOTUNING, (cold.autotuning_s or 0.0,)


def outcomes_of(
    whole: Outcome, device: DeviceTimes | None, cold: ColdStart | None
) -> Iterator[tuple[Outcome, tuple[str, ...]]]:
    """Yield the times of an outcome, those of the device and of the first call, with marks of the latter."""
    yield whole, ()
    for metric, values in device_values(device):
        yield replace(whole, metric=metric, values=values), ()
    for metric, values in cold_start_values(cold):
        yield replace(whole, metric=metric, warmup=0, loops=1, values=values), cold.marks if cold else ()
