"""What was measured: the parts of a ledger row, and the row itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from perfkit.agent.counters.model import Cause

Source = Literal[
    "pytest",
    "gate",
    "environments",
    "profile",
    "experiment",
    "tricks",
    "bisect",
    "backfill",
    "calibrate",
    "timed",
    "training",
]
# These are no results of a commit: a calibration slows its code down, tricks change it, and a gate of
# environments measures it with other packages.
OF_CHANGED_CODE: frozenset[Source] = frozenset({"calibrate", "tricks", "environments"})
# Both compare two sides under the same rules.
GATES: frozenset[Source] = frozenset({"gate", "environments"})
# Each of their runs measures two commits, side by side.
OF_PAIRS: frozenset[Source] = frozenset({"gate", "bisect"})
# Rows that another tool measured have this and the name of its format as their source.
IMPORT_PREFIX = "import:"
Status = Literal["ok", "error", "timeout", "oom", "skipped"]
Side = Literal["base", "head"]
SIDES: tuple[Side, Side] = ("base", "head")
Better = Literal["lower", "higher"]


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The state of the code a result belongs to; ``sha`` has 40 hex digits."""

    sha: str
    time: datetime | None = None
    subject: str | None = None
    branch: str | None = None
    dirty: bool = False
    diff_hash: str | None = None


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a result was measured: an identity that reboots do not change, and other known facts."""

    machine_id: str
    facts: Mapping[str, str]


# A fact of an environment about any package but torch has this before the package's name.
PACKAGE = "package"
# The version of a package that is not installed.
ABSENT = "absent"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The software of a result; of two compared environments also each package that differs."""

    env_id: str
    facts: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A pytest node id with its parameters; ``version`` hashes the benchmark's own source."""

    name: str
    version: str
    params: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None

    @property
    def is_file(self) -> bool:
        """Whether this stands for a file whose benchmarks are not known, since it could not be collected."""
        return not self.version and "::" not in self.name


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What was measured, in which unit, and which direction is better."""

    name: str
    unit: str
    better: Better = "lower"
    exact: bool = False


WALL_TIME = Metric(name="time", unit="s")
# That of each single step of a training.
STEP_TIME = Metric(name="step_time", unit="s")
# The medians of blocks of all steps after those, in order; others of the blocks begin with this name.
ALL_STEPS = "all_steps"
# It is the lower quartile over the slices of each round: the time of a call that other work does not delay.
TYPICAL_TIME = Metric(name="typical time", unit="s")
# On an accelerator: the time of the device's own work, gaps included, and the time until the calls returned.
DEVICE_TIME = Metric(name="device time", unit="s")
HOST_TIME = Metric(name="host time", unit="s")
# The first call of all, with compiling, tuning and the first growth of memory in it.
COLD_START = Metric(name="cold start", unit="s")
# What torch.compile reports of it: its own work, and the trying of kernels.
COLD_COMPILING = Metric(name="cold start: compiling", unit="s")
COLD_AUTOTUNING = Metric(name="cold start: autotuning", unit="s")
# Times of a launch that a throttled device, or the other side on it, spoilt, and that was made once more.
TIME_SET_ASIDE = Metric(name="time set aside", unit="s")


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The place of a launch in its run; ``preloader`` numbers the zygote that it was forked from."""

    side: Side | None = None
    launch: int = 0
    preloader: int | None = None
    block: int | None = None
    order: int | None = None
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Size, mean, sample standard deviation and median, in the values' own unit."""

    n: int
    mean: float
    sd: float | None
    median: float | None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one launch measured of one benchmark and metric: values in measured order, per iteration.

    A count, or the reason why there is none, has ``causes``, the largest first; of ``training`` steps too.
    ``summary`` stands in for values that another tool did not keep. The benchmark was traced to run the same
    code at the commit ``same_as``, with the hash ``ran``.
    """

    benchmark: Benchmark
    metric: Metric = WALL_TIME
    warmup: int | None = None
    loops: int | None = None
    values: tuple[float, ...] = ()
    status: Status = "ok"
    message: str | None = None
    causes: tuple[Cause, ...] | None = None
    training: bool = False
    summary: Summary | None = None
    same_as: str | None = None
    ran: str | None = None

    @property
    def is_untimed(self) -> bool:
        """Whether the benchmark was traced only, since enough is measured of what it runs."""
        return self.same_as is not None and not self.is_measured

    @property
    def is_measured(self) -> bool:
        """Whether there is any number: values, or a summary in place of them."""
        return bool(self.values) or self.summary is not None


@dataclass(frozen=True, kw_only=True)
class RowPolicy:
    """The rules that a row was measured under; ``marks`` such as "launch-bound" are on its values."""

    marks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the ledger: one (run, benchmark, metric, side, launch); ``partial`` if it was cut off."""

    run_id: str
    recorded_at: datetime
    source: str
    commit: Commit
    machine: Machine
    environment: Environment
    outcome: Outcome
    placement: Placement = Placement()
    policy: RowPolicy = RowPolicy()
    partial: bool = False


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run in a line: what it measured, of which commits, and how much of it failed."""

    run_id: str
    recorded_at: datetime
    source: str
    commits: tuple[str, ...]
    subject: str | None
    dirty: bool
    benchmarks: int
    launches: int
    rows: int
    failed: int
    machine_id: str


def meant_by(text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the benchmarks that ``text`` may mean: the node id it is, or else those that end in it."""
    known = tuple(names)
    if text in known:
        return (text,)
    return tuple(name for name in known if name.endswith((f"/{text}", f"::{text}")))
