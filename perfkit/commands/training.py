"""The steps of a training that runs anyway, filed under the present commit; no error here stops it."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, ParamSpec

from perfkit.agent.counters.torch_adapter import Compilation, read_compilation
from perfkit.config import load_project
from perfkit.errors import NotMeasuredError, PerfkitError
from perfkit.identity import fingerprint, new_run_id, shown_run_id, utc_now
from perfkit.ledger.recording import RunFacts
from perfkit.ledger.remote import Mirror, mirror_at
from perfkit.ledger.store import Ledger
from perfkit.model import (
    ALL_STEPS,
    STEP_TIME,
    WALL_TIME,
    Balance,
    Benchmark,
    Commit,
    Machine,
    Metric,
    Outcome,
)
from perfkit.model.counters import count_outcomes
from perfkit.model.readings import RESIDUAL, phase_title
from perfkit.profiling.passes.follow import (
    DRIFT_STEPS,
    MOST_SHARE,
    Followed,
    Look,
    RunFindings,
    leave_out_evaluations,
)
from perfkit.profiling.passes.periods import BatchWork, work_of
from perfkit.profiling.passes.rank_waits import RankWaits, SlowRank, steps_apart
from perfkit.profiling.passes.target_code import OwnCode, find_own_code
from perfkit.profiling.passes.training import (
    StepFindings,
    StepPlan,
    TrainingSteps,
    exchange_medians,
    measure_peak,
    rank_and_ranks,
    rounds,
)
from perfkit.repo.commits import read_commit
from perfkit.report.console import LiveLine
from perfkit.runner.machine.facts import read_environment, read_machine
from perfkit.units import counted, human_bytes, human_calls, human_percent, human_seconds

_PREFIX = "training:"
# The FLOP/s of a device at most, where they are not to be measured.
PEAK_VARIABLE = "PERFKIT_PEAK_FLOPS"
# The model's FLOP/s as a share of those of the devices at most.
UTILISATION = Metric(name="flops utilisation", unit="1", better="higher")
# How libraries write the types of their precisions; all others are 32 bits wide.
_TYPES = {"bf16": "bfloat16", "fp16": "float16", "16": "float16", "64": "float64"}
# The metric of a phase is named by this and the phase.
_PART = "time in "
_WORTH_NAMING = 0.01
_FAR_FROM_MEDIAN = 1.2
# This many steps make a time worth filing.
_FEWEST_STEPS = 3
# At its end a training waits so long for a store.
_UPLOAD_S = 0.3
# The live line is not drawn more often, and first after this many steps.
_SHOWN_EVERY_S, _FIRST_LOOK = 2.0, 20
_COLUMNS = 80
# A line names this many parts of a step.
_MOST_PARTS = 4
_NO_STEP = "no optimizer's step was seen; where your loop steps in another way, call step() after each"
_Given = ParamSpec("_Given")


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where and as what the steps are to be filed, all found before the training begins."""

    ledger: Ledger
    commit: Commit
    machine: Machine


def _harmless(
    method: Callable[Concatenate[TrainingRecord, _Given], None],
) -> Callable[Concatenate[TrainingRecord, _Given], None]:
    """Let no error of perfkit into the training: it is printed in a line, and the measuring ends."""

    @functools.wraps(method)
    def call(record: TrainingRecord, /, *args: _Given.args, **kwargs: _Given.kwargs) -> None:
        if record.is_over and record.followed is None:
            return
        try:
            method(record, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 (a person's training is worth more than its times)
            record.give_up(error)

    return call


def _followed(name: str) -> Callable[[TrainingRecord], None]:
    """Return the method of a record that is one of its steps."""

    def call(record: TrainingRecord, /) -> None:
        steps = record.followed or record.steps
        if steps is not None:
            getattr(steps, name)()

    return _harmless(call)


class TrainingRecord:
    """Follows one training by the calls of a loop or a library, and files its steps.

    An error ends the measuring and never the training. Only rank 0 files; the others send their medians.
    """

    def __init__(
        self,
        name: str,
        plan: StepPlan,
        *,
        ledger: str | Path | None = None,
        no_step: str = _NO_STEP,
        plan_filed: Callable[[], None] = lambda: None,
    ) -> None:
        self._name, self._plan, self._ledger, self._no_step = name, plan, ledger, no_step
        self._plan_filed = plan_filed
        # The runs that were filed, and what they have: of all later steps, and of those of the plan.
        self.runs: list[str] = []
        self._of_run: list[str] = []
        self._of_plan: list[str] = []
        self.steps: TrainingSteps | None = None
        self._place: _Place | None = None
        self._work: dict[str, str] = {}
        self._batch: BatchWork | None = None
        self._batches, self._batches_per_step = 0, 0.0
        self._compiled: Compilation | None = None
        self._rank, self._ranks = 0, 1
        self._process = os.getpid()
        self._line: str | None = None
        # What was filed of the plan in a line, with more figures.
        self._in_a_line: Callable[[Sequence[str]], str] | None = None
        self._reported = self._has_failed = False
        self._mirror: Mirror | None = None
        self._uploads: list[threading.Thread] = []
        self._not_uploaded = ""
        self._own: OwnCode | None = None
        self._live = LiveLine()
        self._steps_in_all = 0
        self._steps_before, self._shown_at, self._apart = 0, 0.0, _FIRST_LOOK
        self._waits: RankWaits | None = None
        # FLOPs of a step on each rank, and the type in which most of them are made.
        self._flops, self._flops_type, self._step_s = 0.0, "", 0.0
        # Where the plan is over, all later steps are followed.
        self.followed: Followed | None = None
        self._hooks = contextlib.ExitStack()
        self.is_over = False

    @property
    def is_first(self) -> bool:
        """Whether this is the process that files."""
        return not self._rank and os.getpid() == self._process

    @_harmless
    def begin(self, *, rank: int | None = None, ranks: int | None = None) -> None:
        """Find where the steps are to be filed, and begin the first one."""
        self._rank, self._ranks = rank_and_ranks() if rank is None or ranks is None else (rank, ranks)
        self._process = os.getpid()
        project = load_project(Path.cwd())
        if not self._rank:
            named = project.ledger_place if self._ledger is None else self._ledger
            # A store may never answer, and the training needs nothing of what is in it.
            self._mirror = mirror_at(named)
            place = Path(named) if self._mirror is None else self._mirror.folder
            commit = read_commit(project.root, ignored=(*project.output_paths, place))
            Ledger(place).check_writable(store=False)
            self._place = _Place(ledger=Ledger(place), commit=commit, machine=read_machine())
            self._own = find_own_code(project.config.own, root=project.root, script=None)
        self.steps = TrainingSteps(self._plan, project.root)
        self.steps.begin()

    def describe(self, **work: object) -> None:
        """Set how much work a step is, such as its batch; other amounts of work begin a new history."""
        self._work |= {name: str(value) for name, value in work.items() if value is not None}

    @_harmless
    def see_batch(self, batch: object) -> None:
        """Remember the size of the first batch, which is part of how much work a step is."""
        self._batches += 1
        if self._batch is None:
            self._batch = work_of(batch)
            self.describe(batch=self._batch.samples)

    @_harmless
    def end_step(self) -> None:
        """End a step."""
        if self.steps is not None:
            self.steps.end_step()
            if self.steps.is_over:
                self._file(self.steps)
                self._plan_filed()
                self._follow()

    def pause(self) -> None:
        """Begin what is no part of a step."""
        self._live.clear()
        self._pause()

    _pause = _followed("pause")
    resume = _followed("resume")
    restart_step = _followed("restart_step")

    def _follow(self) -> None:
        """Follow every later step; from now on a step ends with a reading of the clock and nothing else."""
        if self._ranks > 1:
            waits = RankWaits(self._name, rank=self._rank, ranks=self._ranks, on_slow=self._log_slow)
            self._waits = waits if waits.has_store else None
        if self._own is None and self._waits is None:
            return
        self._compiled = read_compilation()
        is_looked_at = self._waits is not None or (self._own is not None and self._live.is_possible)
        self.followed = followed = Followed(
            self._own or OwnCode(root=Path()),
            # Only what rank 0 finds is filed.
            memory=None if self._own is not None else lambda: (0.0, 0.0),
            failed=self.give_up,
            look=self._look if is_looked_at else None,
            until_look=_FIRST_LOOK,
        )
        vars(self)["end_step"] = followed.end_step
        if self.steps is not None:
            self._hooks = leave_out_evaluations(followed, self.steps.sites)

    def _look(self, look: Look) -> int:
        """Show where the run is, and compare the ranks; return after how many steps to do so again."""
        is_watched = self._waits is not None and self._waits.is_watching
        self._apart = steps_apart(look, self._apart, least_s=look.cost_s / MOST_SHARE)
        until = self._apart if self._waits is None else self._waits.look(look)
        now = time.monotonic()
        if not (self._rank or is_watched) and now - self._shown_at >= _SHOWN_EVERY_S:
            self._shown_at = now
            rates = self._rates(look.step_s, with_bytes=False)
            self._live.show(_look_in_words(look, rates, before=self._steps_before))
        return until

    def _log_slow(self, slow: SlowRank) -> None:
        self._log(f"{_slow_in_words(slow)}, since step {self._steps_before + slow.since:,}")

    def _log(self, line: str) -> None:
        self._live.log(f"perfkit: {line}")

    @_harmless
    def finish(self) -> None:
        """File what there is, unless that was done before."""
        if os.getpid() != self._process:
            return
        self._live.clear()
        if self.followed is not None:
            found = self.followed.findings()
            self._steps_in_all = self._steps_before + self.followed.steps
            self._file_run(found)
            self._end_following()
        elif self.steps is None:
            raise NotMeasuredError(self._no_step)
        else:
            self.steps.end()
            self._file(self.steps, is_last=True)

    def _end_following(self) -> None:
        if self.followed is not None:
            self.followed.end()
        self._hooks.close()
        if self._waits is not None:
            self._waits.end()
        self._live.clear()
        self.followed = None
        vars(self).pop("end_step", None)

    def _file_run(self, found: RunFindings | None) -> None:
        """File all steps after the plan, as traces of their medians, their waits and memory."""
        slow = None if self._waits is None else self._waits.end()
        if self._place is None:
            return
        if found is None:
            # All that is filed of so short a run is filed already.
            use, later = self._utilisation(self._step_s), self._steps_in_all - self._steps_before
            more = [] if use is None else [use[1]]
            more += [f"{counted(later, 'later step')} too few to file"] if later else []
            if self._in_a_line is not None:
                self._line = self._in_a_line(more)
                self._of_plan += more
            return
        parts = _run_parts(found, self._rates(found.seconds / found.steps), slow, self._recompiled())
        blocks = found.blocks
        use = self._utilisation(found.seconds / found.steps)
        if use is not None:
            parts.append(use[1])
        summary = ", ".join(parts)
        traces = {
            Metric(name=ALL_STEPS, unit="s"): [one.median_s for one in blocks],
            Metric(name=f"{ALL_STEPS}: data wait share", unit="1"): [
                one.wait_s / one.total_s for one in blocks
            ],
            Metric(name=f"{ALL_STEPS}: memory", unit="B"): [one.resident for one in blocks],
            Metric(name=f"{ALL_STEPS}: device memory", unit="B"): [one.device for one in blocks],
        }
        outcomes = [
            Outcome(
                benchmark=self._benchmark,
                metric=metric,
                warmup=sum(steps for _, steps in self._plan.turns()),
                loops=blocks[0].steps,
                values=tuple(values),
                message=summary,
            )
            for metric, values in traces.items()
            if any(values)
        ]
        run_id = self._add([*outcomes, *([] if use is None else [use[0]])])
        self._of_run = [parts[0].replace(" after that", ""), *parts[1:]]
        self._line = f"{self._line}; {summary} -> run {shown_run_id(run_id)}"

    def _recompiled(self) -> str:
        """Return what torch.compile compiled while steps were followed, and its most frequent reason."""
        assert self._compiled is not None  # noqa: S101 (read where the following began)
        found = read_compilation().since(self._compiled)
        if not found.graphs:
            return ""
        words = f"{counted(found.graphs, 'graph')} compiled"
        if found.recompiles:
            (reason, ((file, line), *_)), _ = found.recompiles.most_common(1)[0]
            words += f" ({Path(file).name}:{line}: {reason.partition('  #')[0].strip()})"
        return words

    @property
    def _benchmark(self) -> Benchmark:
        work = {"ranks": str(self._ranks), **self._work}
        return Benchmark(name=_PREFIX + self._name, version=fingerprint(work), params=work)

    def _add(self, outcomes: Sequence[Outcome]) -> str:
        """File outcomes as a run, and return its identity."""
        place, run_id, now = self._place, new_run_id(), utc_now()
        assert place is not None  # noqa: S101 (looked at by the callers)
        facts = RunFacts(
            run_id=run_id,
            recorded_at=now,
            source="training",
            commit=place.commit,
            machine=place.machine,
            environment=read_environment(),
        )
        with place.ledger.run(source="training", run_id=run_id, recorded_at=now, put=self._put) as run:
            run.add([facts.row(outcome) for outcome in outcomes])
        self.runs.append(run_id)
        return run_id

    def _put(self, _: Path) -> None:
        """Upload what is filed beside the training."""
        if self._mirror is not None:
            self._uploads.append(threading.Thread(target=self._upload, args=(self._mirror,), daemon=True))
            self._uploads[-1].start()

    def _upload(self, mirror: Mirror) -> None:
        try:
            done = mirror.put_pending()
            self._not_uploaded = done.problem
        except Exception as error:  # noqa: BLE001 (it is reported with what was filed)
            self._not_uploaded = str(error)

    def _wait_for_uploads(self, mirror: Mirror) -> None:
        """Give a store that answers the time to do so, and report what is not in it."""
        until = time.monotonic() + _UPLOAD_S
        for one in self._uploads:
            one.join(max(0.0, until - time.monotonic()))
        reason = "it does not answer" if any(one.is_alive() for one in self._uploads) else self._not_uploaded
        if reason:
            self._line = (
                f"{self._line}; not yet in {mirror.url} ({reason}), but safe in {mirror.folder}: "
                "the next perfkit command on that ledger tries again"
            )

    def ending(self) -> list[str]:
        """Return what was filed, or why nothing was, in lines for a terminal: all later steps come first."""
        if not self.runs or self._has_failed:
            return [] if self._line is None else [self._line]
        in_all = counted(max(self._steps_in_all, self._steps_before), "step")
        if not self._of_run:
            first = self._of_plan[0].replace(" steps, ", " timed, ", 1)
            return _filled([f"{in_all}, {first}", *self._of_plan[1:]])
        later = self._of_run[0].replace(" steps, ", ": ", 1)
        return [
            *_filled([f"{in_all}, the last {later}", *self._of_run[1:]]),
            *_filled([f"before: {self._of_plan[0]}", *self._of_plan[1:]]),
        ]

    def report(self) -> None:
        """Print once in a line what was filed, or why nothing was; only on rank 0."""
        if self._line and not (self._reported or self._rank) and os.getpid() == self._process:
            self._reported = True
            if self._mirror is not None:
                self._wait_for_uploads(self._mirror)
            self._log(self._line)

    def give_up(self, error: Exception) -> None:
        """Measure no more, and report why."""
        if self._has_failed:
            return
        self.is_over = self._has_failed = True
        with contextlib.suppress(Exception):
            if self.steps is not None:
                self.steps.end()
        reason = str(error) if isinstance(error, PerfkitError) else f"{type(error).__name__}: {error}"
        self._end_following()
        if self._line:
            self._line = f"{self._line}; its later steps were not filed: {reason}"
            return
        self._line = f"nothing was filed of {_PREFIX}{self._name}: {reason}"
        if not isinstance(error, NotMeasuredError):
            self._log(f"the steps of {_PREFIX}{self._name} are not measured, the training goes on: {reason}")

    def _file(self, steps: TrainingSteps, *, is_last: bool = False) -> None:
        """File the steps of the plan; the devices' peak is measured only where no step follows."""
        self.is_over = True
        findings = steps.findings()
        if len(findings.step_s) < _FEWEST_STEPS:
            raise NotMeasuredError(self._no_step if not findings.seen else _too_few(findings, self._plan))
        others = exchange_medians(
            self._name, statistics.median(findings.step_s), rank=self._rank, ranks=self._ranks
        )
        if self._place is None:
            return
        benchmark = self._benchmark
        self._batches_per_step = findings.batches or self._batches / findings.seen
        self._steps_before = findings.seen
        step_s = self._step_s = statistics.fmean(findings.step_s)
        rates = self._rates(step_s)
        self._flops = float(self._number("flops"))
        for count in findings.counts.counts if findings.counts else ():
            if count.metric == "flops":
                self._flops, self._flops_type = self._flops or count.values[-1], findings.flops_type
        if self._flops:
            rates.append(f"{human_calls(self._flops * self._ranks / step_s / 1e9)} GFLOP/s")
        use = self._utilisation(step_s) if is_last else None
        if use is not None:
            rates.append(use[1])
        outcomes = _outcomes(benchmark, findings, self._plan)
        run_id = self._add([*outcomes, *([] if use is None else [use[0]])])
        filed = f"run {shown_run_id(run_id)} of the ledger"
        dirty = self._place.commit.dirty

        def in_a_line(more: Sequence[str]) -> str:
            parts = _plan_parts(findings, others, [*rates, *more])
            return _in_a_line(benchmark.name, parts, filed=filed, dirty=dirty)

        self._in_a_line, self._line = in_a_line, in_a_line([])
        self._of_plan = _plan_parts(findings, others, rates)

    def _utilisation(self, step_s: float) -> tuple[Outcome, str] | None:
        """Return the share of the peak FLOP/s that steps make, as a row and in words; None if not known."""
        if not self._flops:
            return None
        kind = self._flops_type or _TYPES.get(self._work.get("precision", "").partition("-")[0], "float32")
        given = _given_peak()
        peak = given or measure_peak(kind)
        if peak is None:
            return None
        share = self._flops / step_s / peak
        rate = f"{human_calls(peak / 1e9)} GFLOP/s"
        of = f"given peak ({rate})" if given else f"measured peak of this machine ({rate}, {kind})"
        words = f"{share:.0%} of the {of}"
        row = Outcome(benchmark=self._benchmark, metric=UTILISATION, loops=1, values=(share,), message=words)
        return row, words

    def _rates(self, step_s: float, *, with_bytes: bool = True) -> list[str]:
        """Return how much all ranks train on in a second, as far as that is known."""
        seen, batches = self._batch, self._batches_per_step
        if seen is None:
            # A library's settings have them.
            batches = self._number("accumulate") or 1
            seen = BatchWork(samples=self._number("batch"), tokens=0, nbytes=0)
        samples = self._number("samples") or batches * (seen.samples or 0)
        tokens = self._number("tokens") or batches * seen.tokens
        each = self._ranks / step_s
        found = [
            f"{human_calls(amount * each)} {name}/s"
            for name, amount in (("samples", samples), ("tokens", tokens))
            if amount
        ]
        if with_bytes and (loaded := batches * seen.nbytes):
            found.append(f"{human_bytes(round(loaded * each))}/s from the loader")
        return found

    def _number(self, name: str) -> int:
        """Return what a step's work has by a name, 0 where that is no whole number."""
        given = self._work.get(name, "")
        return int(given) if given.isdecimal() else 0


def _outcomes(benchmark: Benchmark, findings: StepFindings, plan: StepPlan) -> list[Outcome]:
    """Return a row for the time of a step, for all steps, for each part of a step and for each count."""

    def times(metric: Metric, seconds: Sequence[float]) -> Outcome:
        values, size = rounds(seconds)
        return Outcome(benchmark=benchmark, metric=metric, warmup=plan.warmup, loops=size, values=values)

    steps = findings.step_s
    raw = Outcome(benchmark=benchmark, metric=STEP_TIME, warmup=plan.warmup, loops=1, values=steps)
    parts = [
        times(Metric(name=_PART + name, unit="s"), seconds)
        for name, seconds in _parts(findings.balance)
        if any(seconds)
    ]
    counts = [] if findings.counts is None else count_outcomes(benchmark, findings.counts)
    return [times(WALL_TIME, steps), raw, *parts, *counts]


def _given_peak() -> float | None:
    """Return the FLOP/s that the environment gives; what is no such number is left to be measured."""
    try:
        peak = float(os.environ.get(PEAK_VARIABLE, "0"))
    except ValueError:
        return None
    return peak if math.isfinite(peak) and peak > 0 else None


def _parts(balance: Balance | None) -> list[tuple[str, Sequence[float]]]:
    """Return the phases of the watched steps with their seconds, and what no hook saw."""
    if balance is None:
        return []
    return [*((one.name, one.seconds) for one in balance.in_order), (RESIDUAL, balance.residual_s)]


def _in_a_line(name: str, parts: Sequence[str], *, filed: str, dirty: bool) -> str:
    unseen = " (uncommitted changes, so `perfkit history` leaves it out)" if dirty else ""
    return f"{name}: {'; '.join(parts)} -> {filed}{unseen}"


def _median_in_words(median_s: float, mean_s: float) -> str:
    """Return the median, with the mean where that is far from it: rates are by the mean."""
    mean = f" (mean {human_seconds(mean_s)})" if mean_s > _FAR_FROM_MEDIAN * median_s else ""
    return f"median {human_seconds(median_s)}{mean}"


def _plan_parts(findings: StepFindings, others: Sequence[float], rates: Sequence[str]) -> list[str]:
    step_s, balance = findings.step_s, findings.balance
    median = _median_in_words(statistics.median(step_s), statistics.fmean(step_s))
    parts = [", ".join((f"{counted(len(step_s), 'step')}, {median}", *rates))]
    if balance is not None:
        shares = {part: sum(seconds) / sum(balance.step_s) for part, seconds in _parts(balance)}
        largest = sorted(shares, key=lambda part: -shares[part])[:_MOST_PARTS]
        parts.append("of it " + ", ".join(f"{phase_title(part)} {shares[part]:.0%}" for part in largest))
        if balance.cost is not None:
            low, high = balance.cost.low, balance.cost.high
            parts.append(
                f"{counted(len(balance.step_s), 'other')}, watched for that, took {low:.2f} to {high:.2f}"
                " times as long"
            )
    if findings.counts is not None:
        counts = len(findings.counts.counts)
        parts.append(counted(counts, "count") if counts else "no counts, since the code is compiled")
    if findings.uncounted:
        parts.append(f"no counts, since {findings.uncounted}")
    if others:
        parts.append(
            f"medians of {counted(len(others), 'other rank')} {human_seconds(min(others))}"
            f" to {human_seconds(max(others))}"
        )
    return parts


def _look_in_words(look: Look, rates: Sequence[str], *, before: int) -> str:
    """Return where a run is in a line of a terminal."""
    now = f"step {before + look.steps:,} · {human_seconds(look.step_s)}"
    if look.median_s is not None:
        now += f" ({100 * (look.step_s / look.median_s - 1):+.1f} % on the median)"
    parts = [now, *rates]
    if look.wait >= _WORTH_NAMING:
        parts.append(f"loader {look.wait:.0%}")
    if look.drift:
        parts.append(f"slower by {human_percent(look.drift)} in {DRIFT_STEPS:,} steps")
    if look.leak:
        parts.append(f"memory grows by {human_bytes(round(look.leak))} a step")
    return "perfkit: " + " · ".join(parts)


def _slow_in_words(slow: SlowRank) -> str:
    share = human_percent(slow.waited_s / slow.step_s)
    return (
        f"rank {slow.rank} is the slowest: the others wait {human_seconds(slow.waited_s)} of each step for it"
        f" ({share})"
    )


def _run_parts(found: RunFindings, rates: Sequence[str], slow: SlowRank | None, recompiled: str) -> list[str]:
    """Return what a whole run gave in a few words."""
    median_s, _, slowest_s = found.quantiles_s
    median, slowest = _median_in_words(median_s, found.seconds / found.steps), human_seconds(slowest_s)
    parts = [f"{counted(found.steps, 'step')} after that, {median}, 99th percentile {slowest}", *rates]
    if found.wait >= _WORTH_NAMING:
        parts.append(f"data wait {found.wait:.0%}")
    if 1 - found.goodput >= _WORTH_NAMING:
        parts.append(f"{1 - found.goodput:.0%} of the time between steps (evaluation, checkpoints, set-up)")
    if found.drift:
        parts.append(f"steps get slower by {human_percent(found.drift)} in {DRIFT_STEPS:,} steps")
    parts += [
        f"{100 * (ratio - 1):+.1f} % from step {step:,} on" for step, ratio in found.changes[:_MOST_PARTS]
    ]
    if found.leak:
        kept = f" kept by {found.leak_line}" if found.leak_line else ""
        parts.append(f"memory grows by {human_bytes(round(found.leak))} a step{kept}")
    if slow is not None:
        parts.append(_slow_in_words(slow))
    if recompiled:
        parts.append(recompiled)
    return parts


def _filled(parts: Sequence[str]) -> list[str]:
    """Return parts in lines that fit a terminal, where no part is longer."""
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 2 <= _COLUMNS:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return lines


def _too_few(findings: StepFindings, plan: StepPlan) -> str:
    made = counted(findings.seen, "step")
    return (
        f"it made {made}, of which {len(findings.step_s)} were timed, of at least {_FEWEST_STEPS}; "
        f"the first {plan.warmup} are left alone (warmup={plan.warmup})"
    )
