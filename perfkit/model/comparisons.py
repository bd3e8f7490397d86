"""The results of comparing two sides: records that measuring, judging and the views hand to one another."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, Protocol

from perfkit.agent.counters.model import INSTRUCTIONS
from perfkit.choices import FailOn, Inconclusive
from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_NOT_MEASURED, EXIT_PASS, EXIT_REGRESSED, EXIT_USAGE
from perfkit.model import Benchmark, Commit, Environment, Machine, Metric, Side
from perfkit.model.profiles import Part, Section

# The file on both sides by which a target is compared that no file of benchmarks names.
TARGET_FILE = "perfkit_target.py"
# Which times are compared: of all calls of a round together, or of the lower-quartile call in it.
Calls = Literal["all", "typical"]
TimedVerdict = Literal["REGRESSED", "IMPROVED", "UNCHANGED", "NOT SLOWER", "INCONCLUSIVE"]
Verdict = Literal[
    "REGRESSED", "IMPROVED", "UNCHANGED", "NOT SLOWER", "INCONCLUSIVE", "NOT REACHED", "NEW", "MISSING",
    "CHANGED", "FAILED", "TIMEOUT", "SKIPPED", "SAME CODE", "OTHER RESULT",
]  # fmt: skip
# More launches may decide these: INCONCLUSIVE was left open by a look, NOT REACHED had no look yet.
UNDECIDED: tuple[Verdict, ...] = ("INCONCLUSIVE", "NOT REACHED")
# Where the scatter of a benchmark is known from.
KnownFrom = Literal["its gates", "other benchmarks", "usual"]
# The kernel counts CPU time in ticks, so that a smaller change of it means nothing.
LEAST_CPU_CHANGE = 0.1
SAME_CODE = "no code differs between the sides, so the difference comes from the inputs or the machine"
# Verdicts that may keep a gate from passing. NEW and SKIPPED do so where there is nothing else to compare.
BLOCKING: frozenset[Verdict] = frozenset(
    {"REGRESSED", "OTHER RESULT", *UNDECIDED, "MISSING", "CHANGED", "FAILED", "TIMEOUT", "NEW", "SKIPPED"}
)
# Verdicts on a count that block: it grew, or head could not count what base counts.
COUNTED: frozenset[Verdict] = frozenset({"REGRESSED", "MISSING"})
# All other verdicts pass.
_CODES: dict[Verdict, int] = {
    **dict.fromkeys(("REGRESSED", "OTHER RESULT"), EXIT_REGRESSED),
    **dict.fromkeys(("MISSING", "CHANGED", "FAILED", "TIMEOUT"), EXIT_NOT_MEASURED),
    **dict.fromkeys(UNDECIDED, EXIT_INCONCLUSIVE),
}
# What a benchmark's time does not show, and what makes a gain doubtful.
DoubtKind = Literal[
    "other result", "not compared", "cache", "outside the clock", "notices measuring", "files",
    "edited benchmark", "before its calls", "other inputs", "aliasing", "own equality",
]  # fmt: skip
# An honest gain may have these too.
REMARKS: frozenset[DoubtKind] = frozenset({"not compared", "before its calls"})
# The finding of a strict gate on a change that edits how it is measured, which a person may accept.
MEASURING = "measuring"
# What a change may edit of how it is measured, what weighs most first; "work" is what benchmarks do now.
MeasuringKind = Literal[
    "work", "benchmark", "conftest", "helper", "marker", "perfkit", "prepare", "pytest", "acceptance", "pin",
    "CI",
]  # fmt: skip
# Whether calls return the same on both sides, as far as that can be compared.
ResultCompared = Literal["same", "other", "not compared"]
# Where the benchmarks run a function: in a call that is timed, in one that is not, or not at all.
Runs = Literal["timed", "first call", "set-up", "import", "never"]
_WORST_FIRST = (EXIT_USAGE, EXIT_REGRESSED, EXIT_NOT_MEASURED, EXIT_INCONCLUSIVE, EXIT_PASS)
SHOWN_DIGITS = 8
# What stands for a reason in the lines that perfkit offers.
_PLACEHOLDERS = {"reason", "text", "why", "…", "..."}


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The rules of a gate, fixed before anything is measured.

    ``alpha`` is the probability that any of the ``family`` timed comparisons is wrong at any of its ``looks``
    (ascending numbers of launches), divided by ``shares`` or equally. Launches of one zygote are assumed to
    share ``shared_variance`` times their own variance, and to deviate by at least ``least_sd`` (log scale)
    before the tenth. From ``trimmed_from`` launches on a tenth is left out at each end. ``noise_floor`` is
    the relative change beyond which "proven" slowdowns fail. If ``one_sided``, an upper limit below the
    margin decides. With ``same_code`` no difference can come from a change.
    """

    alpha: float
    family: int
    looks: tuple[int, ...]
    shares: tuple[float, ...] = ()
    shared_variance: float = 0.0
    least_sd: float = 0.0
    trimmed_from: int = 10
    fail_on: FailOn = "margin"
    noise_floor: float = 0.0
    inconclusive: Inconclusive = "fail"
    same_code: bool = False
    one_sided: bool = False

    def threshold(self, margin: float) -> float:
        """Return the relative change beyond which a slowdown fails; it is never above the margin."""
        return margin if self.fail_on == "margin" else min(self.noise_floor, margin)

    def tests_like(self, other: Policy) -> bool:
        """Return whether intervals under both rules are the same."""
        return self == replace(
            other,
            fail_on=self.fail_on,
            noise_floor=self.noise_floor,
            inconclusive=self.inconclusive,
            same_code=self.same_code,
            one_sided=self.one_sided,
        )

    def error_at(self, look: int) -> float:
        """Return the two-sided error at a look: alpha is divided by Bonferroni's inequality."""
        shares = self.shares or (1 / len(self.looks),) * len(self.looks)
        return self.alpha * shares[self.looks.index(look)] / self.family


@dataclass(frozen=True, kw_only=True)
class LaunchPair:
    """One launch of a benchmark on both sides; all times are in seconds per iteration.

    ``base_s[i]`` and ``head_s[i]`` were timed right after one another. ``group`` numbers the launches
    that were forked from the same zygote. CPU times are of all threads and processes of a side. The first
    call of each process is None where it was not timed by itself. Peaks are bytes of resident memory.
    """

    launch: int
    group: int
    base_s: tuple[float, ...]
    head_s: tuple[float, ...]
    base_typical_s: tuple[float, ...] = ()
    head_typical_s: tuple[float, ...] = ()
    begins: Side | None = None
    base_cpu_s: float | None = None
    head_cpu_s: float | None = None
    base_collected_s: float = 0.0
    head_collected_s: float = 0.0
    base_peak: float | None = None
    head_peak: float | None = None
    base_first_s: float | None = None
    head_first_s: float | None = None

    @property
    def sliced(self) -> bool:
        """Whether rounds were timed in slices, which give the time of the lower-quartile call."""
        return bool(self.base_typical_s)

    @property
    def total_s(self) -> tuple[float, float]:
        """Base's and head's total time over all calls, with the garbage that they left, per iteration."""
        base, head = statistics.fmean(self.base_s), statistics.fmean(self.head_s)
        return base + self.base_collected_s, head + self.head_collected_s

    def sides(self, calls: Calls) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return base and head in all calls or in lower-quartile ones; where those are not known, in all."""
        if calls == "typical" and self.sliced:
            return self.base_typical_s, self.head_typical_s
        return self.base_s, self.head_s


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The ratio head / base with its interval (1.0 means no change).

    ``confidence`` is of this interval alone. ``launch_sd`` is the deviation of log ratios over launches, and
    ``unit`` what counts as independent: launches, zygotes ("preloaders") or sessions ("occasions").
    """

    ratio: float
    low: float
    high: float
    confidence: float
    launches: int
    launch_sd: float | None
    unit: Literal["launches", "preloaders", "occasions"] = "launches"
    calls: Calls = "all"


@dataclass(frozen=True, kw_only=True)
class Need:
    """How many more launches would about decide, and how many seconds these take."""

    launches: int
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class FirstCall:
    """The first call of each launch's process, in seconds: medians of ``launches``.

    ``slower`` means that head's is clearly slower in each of them, and by more than later calls are; None
    that it is in too few so far. ``unlike`` is how little of it a later call does, where that is little.
    """

    base_s: float
    head_s: float
    ratio: float | None
    launches: int
    slower: bool | None
    unlike: str | None = None


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """Something that a benchmark's time does not show, in a clause that begins with a small letter."""

    kind: DoubtKind
    text: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One benchmark of a gate; ``base_s`` and ``head_s`` are in seconds per iteration.

    Without an ``estimate``, ``message`` has the reason. ``other`` is the estimate that did not decide, of all
    calls or of lower-quartile ones. ``accepted`` is a person's reason, ``excused_by`` the setting by which an
    undecided benchmark passes. The exit code ignores a comparison that is not ``gating``.
    """

    benchmark: Benchmark
    verdict: Verdict
    margin: float
    gating: bool = True
    estimate: Estimate | None = None
    other: Estimate | None = None
    base_s: float | None = None
    head_s: float | None = None
    need: Need | None = None
    message: str | None = None
    accepted: str | None = None
    excused_by: str | None = None
    cpu_ratio: float | None = None
    first_call: FirstCall | None = None
    doubts: tuple[Doubt, ...] = ()
    result: ResultCompared | None = None

    def doubted(self, *doubts: Doubt) -> Comparison:
        """Return it with more doubts; where another result came with IMPROVED, it is OTHER RESULT."""
        other = self.verdict == "IMPROVED" and any(one.kind == "other result" for one in doubts)
        return replace(
            self, doubts=(*self.doubts, *doubts), verdict="OTHER RESULT" if other else self.verdict
        )

    @property
    def costs_more_cpu(self) -> bool:
        """Whether it became faster while it takes more CPU time: work was moved, and not saved."""
        return (
            self.verdict == "IMPROVED"
            and self.cpu_ratio is not None
            and self.cpu_ratio > 1 + max(self.margin, LEAST_CPU_CHANGE)
        )


@dataclass(frozen=True, kw_only=True)
class MovedCause:
    """An operator, call or allocation that a count consists of, its line, and its amount on each side."""

    what: str
    place: str
    base: float
    head: float


@dataclass(frozen=True, kw_only=True)
class ExactComparison:
    """One count of a benchmark or of a training step; ``margin`` is the share by which it may grow.

    A side that was not counted has None, and ``message`` the reason. A gating count that only base has is
    MISSING; one that did not repeat, or that base lacks, is INCONCLUSIVE and never gates.
    """

    benchmark: Benchmark
    metric: Metric
    verdict: Verdict
    margin: float
    gating: bool
    base: float | None
    head: float | None
    causes: tuple[MovedCause, ...] = ()
    message: str | None = None
    accepted: str | None = None

    @property
    def ratio(self) -> float | None:
        """Head / base; None where either is not known, or base is zero."""
        return self.head / self.base if self.base and self.head is not None else None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What differs between two profiles of a benchmark, per call; ``findings`` are further sentences.

    ``suspect`` is the changed function that took most of the time more, with the unchanged code it calls.
    """

    benchmark: str
    section: Section | None
    findings: tuple[str, ...] = ()
    suspect: Part | None = None


@dataclass(frozen=True, kw_only=True)
class ChangedFunction:
    """A function that head changed or added, its line on head, and where the benchmarks run it.

    It is not ``known`` where some could not be traced to their end, and none was seen to time it.
    """

    name: str
    file: str
    line: int
    runs: Runs
    known: bool = True


@dataclass(frozen=True, kw_only=True)
class ChangeCoverage:
    """How many benchmarks run the same code on both sides, and what the benchmarks run of a change.

    ``everything`` is why all benchmarks count as affected, ``not_traced`` why nothing is known of what runs;
    None where it is not so. ``affected`` is why each benchmark counts as affected.
    """

    same: int = 0
    benchmarks: int = 0
    functions: tuple[ChangedFunction, ...] = ()
    affected: Mapping[str, str] = field(default_factory=dict)
    everything: str | None = None
    not_traced: str | None = None

    @property
    def uncovered(self) -> tuple[ChangedFunction, ...]:
        """The changed functions that no timed call runs."""
        return tuple(one for one in self.functions if one.runs != "timed")


@dataclass(frozen=True, kw_only=True)
class MeasuringEdit:
    """Something that head changes of how it is measured itself, and whose version counted in this gate.

    ``path`` is a file, or the benchmark of a marker or of work; ``benchmarks`` are those that it concerns,
    where they are known.
    """

    kind: MeasuringKind
    path: str
    what: str
    effect: str
    benchmarks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GateReport:
    """A whole gate: what was compared under which rules, and the results.

    The budget covers ``timed_s`` and ``counted_s``, parts of ``wall_s``; what is undecided needs about
    ``left_s`` more, None where that is not known. ``from_ledger`` marks recomputed verdicts, ``cut_off`` an
    interrupted gate; ``unrecorded`` is why its end could not be written. ``against`` is the gate of the same
    head against a release. With a ``base_environment`` the sides differ in packages, which ``wanted`` lists.
    ``past`` has earlier levels of regressed benchmarks in seconds per iteration.
    ``coverage`` is what the benchmarks run of the change, None where that was not asked. ``measuring`` is
    what head changes of how it is measured.
    """

    run_id: str
    recorded_at: datetime
    base: Commit
    head: Commit
    machine: Machine
    environment: Environment
    policy: Policy
    budget_s: float
    wall_s: float
    timed_s: float | None = None
    counted_s: float | None = None
    waited_s: float = 0.0
    left_s: float | None = None
    comparisons: tuple[Comparison, ...]
    exit_code: int
    notes: tuple[str, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    exact: tuple[ExactComparison, ...] = ()
    from_ledger: bool = False
    cut_off: bool = False
    unrecorded: str | None = None
    release: str | None = None
    against: GateReport | None = None
    base_environment: Environment | None = None
    wanted: Mapping[Side, tuple[str, ...]] = field(default_factory=dict)
    past: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    changed_rules: tuple[str, ...] = ()
    coverage: ChangeCoverage | None = None
    measuring: tuple[MeasuringEdit, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlannedBenchmark:
    """The slowdown of one benchmark that a gate would find in its time, if that alone became slower.

    Within ``seconds`` it would get ``launches``, and a slowdown of ``effect`` (relative) would be found 19
    times of 20; without a look there is neither. ``known_from`` is the source of ``launch_sd`` and
    ``launch_s``.
    """

    benchmark: Benchmark
    margin: float
    gating: bool
    launch_sd: float
    launch_s: float
    known_from: KnownFrom
    gates: int
    launches: int
    seconds: float
    effect: float | None
    decided: Verdict | None = None


@dataclass(frozen=True, kw_only=True)
class GatePlan:
    """What a gate would find in its time, predicted before anything is timed.

    ``findings`` cannot be compared. ``unchanged_s`` is the time of a gate without changes, ``enough_s`` the
    budget that would then decide all benchmarks, None where this one does.
    """

    base: Commit
    head: Commit
    machine: Machine
    policy: Policy
    budget_s: float
    set_up_s: float
    unchanged_s: float
    enough_s: float | None
    benchmarks: tuple[PlannedBenchmark, ...]
    findings: tuple[Comparison, ...]
    notes: tuple[str, ...] = ()
    release: str | None = None
    against: GatePlan | None = None
    measuring: tuple[MeasuringEdit, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ApartReport:
    """Two commits compared by their rows of separate runs on one machine and environment."""

    base: Commit
    head: Commit
    machine: Machine
    environment: Environment
    policy: Policy
    comparisons: tuple[Comparison, ...]
    exit_code: int
    notes: tuple[str, ...] = ()
    exact: tuple[ExactComparison, ...] = ()


def blocks(found: Comparison | ExactComparison) -> bool:
    """Return whether a finding keeps a gate from passing unless it is accepted."""
    return found.verdict in BLOCKING and found.gating


def exit_code(
    comparisons: Iterable[Comparison | ExactComparison], *, recorded: bool = True, covered: bool = True
) -> int:
    """Return the exit code of a gate: that of its worst comparison.

    New and skipped benchmarks pass only beside compared ones. A gate that was asked for instructions and
    counted none has not measured them, and one that was not ``recorded`` whole never passes,
    nor does one that is not ``covered`` as it was asked for.
    """
    found = tuple(comparisons)
    if not any(map(_was_compared, found)) and not _is_accepted(found):
        return EXIT_NOT_MEASURED
    codes = {_code(comparison) for comparison in found}
    if not recorded or not covered or uncounted_instructions(found):
        codes.add(EXIT_NOT_MEASURED)
    return worst(codes)


def worst(codes: Collection[int]) -> int:
    """Return the exit code that counts where several hold."""
    return next(code for code in _WORST_FIRST if code in codes)


def uncounted_instructions(found: Iterable[Comparison | ExactComparison]) -> Sequence[ExactComparison]:
    """Return what stands for the instructions of each benchmark, where not one's could be counted."""
    wanted = [one for one in found if isinstance(one, ExactComparison) and one.metric.name == INSTRUCTIONS]
    counted = any(one.base is not None and one.head is not None for one in wanted)
    return () if counted else wanted


def _was_compared(one: Comparison | ExactComparison) -> bool:
    if not one.gating or one.benchmark.name == MEASURING:
        return False
    return isinstance(one, ExactComparison) or one.verdict not in ("NEW", "SKIPPED")


def _is_accepted(found: Sequence[Comparison | ExactComparison]) -> bool:
    benchmarks = [one for one in found if isinstance(one, Comparison) and one.benchmark.name != MEASURING]
    return bool(benchmarks) and all(one.accepted for one in benchmarks)


def _code(comparison: Comparison | ExactComparison) -> int:
    excused = isinstance(comparison, Comparison) and comparison.excused_by is not None
    passes = comparison.accepted is not None or not comparison.gating or excused
    return EXIT_PASS if passes else _CODES.get(comparison.verdict, EXIT_PASS)


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """A person's decision, at one commit, that a finding may pass.

    ``verdict`` is the kind of finding, None for any; ``ratio`` is head / base. ``counts`` are head's counts
    that grew, None for any; ``uncounted`` are those that head could not count. ``version`` is that of the
    edits to measuring that were accepted, None for any.
    """

    benchmark: str
    reason: str
    commit: str
    author: str | None = None
    verdict: Verdict | None
    ratio: float | None = None
    counts: Mapping[str, float] | None = None
    uncounted: tuple[str, ...] = ()
    version: str | None = None

    @property
    def of_counts_alone(self) -> bool:
        """Whether only counts were accepted: an accepted slowdown has a ratio, and no time is MISSING."""
        named = bool(self.counts) or bool(self.uncounted)
        return named and self.ratio is None and self.verdict in COUNTED

    @property
    def text(self) -> str:
        """The reason, with who gave it and where."""
        where = self.commit[:SHOWN_DIGITS]
        return f"{self.reason} ({f'{self.author}, {where}' if self.author else where})"


def is_placeholder(reason: str) -> bool:
    """Return whether a reason is what an offered line has in its place, so that nobody gave one."""
    return reason.strip().casefold() in _PLACEHOLDERS


class Log(Protocol):
    """Receives sentences on what is done."""

    def info(self, text: str) -> None:
        """Report a stage that begins, or the result of one."""


class Progress(Log, Protocol):
    """Receives sentences on what is done, and the share that is done."""

    def advance(self, share: float) -> None:
        """Report which share of the work is done, from 0 to 1."""


class ComparisonProgress(Log, Protocol):
    """Receives the state of a comparison, between launches only: nothing may run while something is timed."""

    def begin(self, title: str) -> None:
        """Report what is compared."""

    def update(self, states: Sequence[Comparison], elapsed_s: float, left_s: float | None) -> None:
        """Report the benchmarks, the seconds passed, and those left of the budget (None without one)."""


class Quiet:
    """Receives the state of a comparison and shows nothing."""

    def begin(self, title: str) -> None:
        """Pass nothing on."""

    def info(self, text: str) -> None:
        """Pass nothing on."""

    def update(self, states: Sequence[Comparison], elapsed_s: float, left_s: float | None) -> None:
        """Pass nothing on."""
