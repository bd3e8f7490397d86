"""``perfkit why``: the causes of a step's time, each with the gain to expect of its change."""

from __future__ import annotations

import functools
import itertools
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from perfkit.config import Project
from perfkit.errors import NotMeasuredError
from perfkit.model import PassSummary, RatioInterval
from perfkit.model.counters import SYNCS
from perfkit.model.profiles import (
    BACKWARD,
    COMPILING,
    COPY,
    DATA,
    LIBRARY,
    LOGGING,
    MODEL,
    UPDATE,
    WAIT,
    LineSample,
    LoopSamples,
    OwnLine,
)
from perfkit.model.readings import LineMemory
from perfkit.profiling.passes.exchange import PassResult, PassSpec, Trial
from perfkit.profiling.passes.launch import (
    PassLauncher,
    described,
    ratio_of_turns,
    run_pass,
    run_side_by_side,
)
from perfkit.profiling.passes.targets import Unit, resolve_target
from perfkit.report.progress import PassProgress
from perfkit.runner.lock import measuring
from perfkit.temporary import temporary_folder
from perfkit.units import human_bytes, human_percent

CauseName = Literal[
    "loader", "transform", "sync", "growth", "recompiles", "evaluation", "logging", "copy", "float64",
    "threads", "optimizer", "line",
]  # fmt: skip
Gain = tuple[float, float, float]
INTERRUPTED = "interrupted; the report has what was measured until then"
_LIMIT_S = 20.0
# Below this share of a step a cause is not worth a line.
_WORTH = 0.03
# What repeating a run moves a share by, beside the scatter of its blocks.
_SLACK, _SLACK_SHARE = 0.01, 0.1
# Without a part, the rest finds warm caches: it may be so much faster, at most and by the part's share.
_WARM, _WARM_SHARE = 0.2, 0.6
# Blocks near one another share a busy spell, so groups of them scatter, by Student's t for so many (90 %).
_GROUPS, _T = 8, 1.895
_FEWEST_BLOCKS = 4
# A line grows that takes this much longer at the end, and in most pairs of blocks longer in the later one.
_GROWN, _RISING = 2.0, 0.6
_LEAK_BYTES = 1 << 10
# A line evaluates where modules run in at least this share of its time without gradients.
_MODULES = 0.3
_MOST_OF = 0.5
# A target that fails after fewer steps has too few to sample.
_FEWEST_STEPS = 50
_CALLS: tuple[tuple[CauseName, str], ...] = (
    ("logging", r"\bprint\(|\.write\(|\.flush\(|fsync\(|\.add_scalars?\(|json\.dump|torch\.save\("),
    ("copy", r"\.clone\(|deepcopy\(|\.copy\("),
    ("sync", r"\.(item|tolist|numpy|cpu)\(|\bfloat\(|\bbool\("),
)
_OF_LIBRARY: dict[str, CauseName] = {LOGGING: "logging", COPY: "copy"}
_CHANGES: dict[CauseName, str] = {
    "sync": "keep results as tensors, and read them once in many steps",
    "growth": "keep numbers, not tensors: `.item()` or `.detach()`, and a running sum for a whole list",
    "recompiles": "give the compiled code inputs of one shape (pad them), or compile with dynamic=True",
    "evaluation": "evaluate once in many steps",
    "logging": "log once in many steps, and let the file flush itself",
    "copy": "leave the copy out where nothing changes what is copied, or make it once in many steps",
    "float64": "train in float32: no `.double()`, and no default dtype of float64",
    "threads": "leave torch its threads: no set_num_threads(1), no OMP_NUM_THREADS=1",
    "line": "look at this line",
}
# What can be changed from outside while a loop starts.
_TRIED: tuple[CauseName, ...] = ("loader", "threads", "float64", "optimizer")


@dataclass(frozen=True, kw_only=True)
class WhyCause:
    """A part of a step that a change would save; ``gain`` is low, likely and high, as shares of a step.

    ``part_s`` is the part's time in a step; ``bytes`` what stays in memory after each step. ``trial`` is the
    change that `--try` makes, and its number of workers or threads.
    """

    name: CauseName
    place: str
    text: str
    what: str
    change: str
    gain: Gain
    part_s: float
    bytes: float = 0.0
    trial: Trial | None = None


@dataclass(frozen=True, kw_only=True)
class WhyReport:
    """What a training loop's steps are made of, and the causes that a change would remove, largest first.

    ``tried`` is the time of a step with the first cause's change over that without, measured by turns.
    """

    target: str
    verdict: str
    step_s: float
    steps: int
    samples_per_s: float | None
    shares: dict[str, float]
    causes: tuple[WhyCause, ...]
    not_seen: str = ""
    tried: RatioInterval | None = None


def find_causes(
    target: str,
    arguments: Sequence[str],
    *,
    project: Project,
    steps: int | None,
    wait_s: float | None,
    tries: bool,
    progress: PassProgress,
) -> WhyReport:
    """Run a target three times, sampled, counted and with its memory watched, and return the causes.

    With ``tries`` the first cause's change is then measured beside the loop as it is. After Ctrl-C no further
    pass is begun.
    """
    found = resolve_target(target, project, folder=Path.cwd(), any_kind=True)
    with measuring(progress.info, wait_s=wait_s), temporary_folder() as folder, PassLauncher() as launcher:
        spec = PassSpec(
            name="clean",
            target=found,
            arguments=tuple(arguments),
            root=str(project.root),
            own=project.config.own,
            folder="",
            artifact="why",
            steps=steps,
            limit_s=_LIMIT_S if steps is None else None,
            samples=True,
        )

        make = functools.partial(_make_pass, folder=folder, progress=progress, launcher=launcher)
        first = make("samples", spec)
        if first.samples is None and first.unit not in (None, Unit()):
            first = make("samples again", replace(spec, unit=first.unit or Unit()))
        if first.samples is None or first.summary is None or not _is_enough(first):
            is_cut = first.summary is not None and first.summary.ended == "limit"
            longer = "sample more with --steps 100" if is_cut else "let it run longer"
            raise NotMeasuredError(
                f"{target} made too few steps to see where their time goes; {longer}, or name what a"
                f" step is: `perfkit profile {target} --step-at FILE:LINE`"
            )
        later = replace(
            spec,
            unit=first.unit or Unit(),
            known_steps=first.summary.steps,
            limit_s=_LIMIT_S / 2,
            samples=False,
        )
        counts = memory = PassResult()
        is_interrupted = first.is_interrupted
        try:
            if not is_interrupted:
                counts = make("counts", replace(later, name="counts"))
                memory = make("memory", replace(later, name="memory", steps=None))
        except KeyboardInterrupt:
            is_interrupted = True
        report = report_of(target, first.summary, first.samples, counts=counts, memory=memory)
        if is_interrupted:
            return replace(report, not_seen=INTERRUPTED)
        trial = report.causes[0].trial if tries and report.causes else None
        if trial is None:
            return report
        progress.info(f"trying beside the loop as it is: {report.causes[0].change}")
        return _tried(report, trial, later, folder, launcher)


def _make_pass(
    name: str, spec: PassSpec, *, folder: Path, progress: PassProgress, launcher: PassLauncher
) -> PassResult:
    place = folder / name
    place.mkdir()
    progress.begin(name, spec.steps)
    result = run_pass(replace(spec, folder=str(place)), progress.advance, launcher)
    if result.summary is not None:
        progress.end(name, result.summary.steps, result.summary.total_s)
    elif name.startswith("samples"):
        problem, most = result.problem, 9 * result.steps_before // 10
        before = f"; sample only what is before that: --steps {most}" if most >= _FEWEST_STEPS else ""
        raise NotMeasuredError(described(problem, place) + before if problem else "nothing was measured")
    if result.is_interrupted and not _is_enough(result):
        raise KeyboardInterrupt
    return result


def _tried(
    report: WhyReport, trial: Trial, spec: PassSpec, folder: Path, launcher: PassLauncher
) -> WhyReport:
    sides = [
        replace(spec, folder=str(folder / name), trial=one)
        for name, one in (("as it is", None), ("changed", trial))
    ]
    for side in sides:
        Path(side.folder).mkdir()
    try:
        both = run_side_by_side((sides[0], sides[1]), lambda _: None, launcher)
    except KeyboardInterrupt:
        return replace(report, not_seen=INTERRUPTED)
    problems = [
        described(result.problem, Path(side.folder))
        for side, result in zip(sides, both.results, strict=True)
        if result.problem is not None
    ]
    if both.ratio is None:
        lost = problems[0] if problems else "the loop makes too few steps"
        return replace(report, not_seen=f"the change could not be tried: {lost}")
    return replace(report, tried=both.ratio)


def _is_enough(result: PassResult) -> bool:
    return result.samples is not None and len(result.samples.block_s) >= _FEWEST_BLOCKS


def report_of(
    target: str, summary: PassSummary, samples: LoopSamples, *, counts: PassResult, memory: PassResult
) -> WhyReport:
    """Return the causes from what the passes found."""
    loop = _Loop(samples)
    syncs = (
        next((one for one in counts.counts.counts if one.metric == SYNCS), None) if counts.counts else None
    )
    causes = _Causes(loop, {cause.place for cause in syncs.causes} if syncs else set(), memory, summary)
    found = sorted(causes.all(), key=lambda one: (-_rank(one, samples.step_s), one.place))
    kept = tuple(one for one in found if one.bytes or _is_worth(one, samples.step_s))
    per_s = summary.samples / summary.steps / samples.step_s if summary.samples else None
    lost = [one.problem.message for one in (counts, memory) if one.problem is not None]
    return WhyReport(
        target=target,
        verdict=_verdict(kept, loop, per_s),
        step_s=samples.step_s,
        steps=len(samples.block_s) * samples.block_steps,
        samples_per_s=per_s,
        shares=loop.shares(),
        causes=kept,
        not_seen="; ".join(lost),
    )


def _is_worth(one: WhyCause, step_s: float) -> bool:
    # A change that is likely to cost time is worth a word only for the largest part of a step.
    return one.gain[2] > _WORTH and (one.gain[1] > 0 or one.part_s >= _MOST_OF * step_s)


def _rank(one: WhyCause, step_s: float) -> float:
    # What is sure counts as much as what is likely. Workers cost nothing, so their whole wait counts where it
    # is most of a step, or where they are likely to save some of it.
    share = one.part_s / step_s
    waits = one.name == "loader" and (one.gain[1] > 0 or share >= _MOST_OF)
    return max(sum(one.gain[:2]), share if waits else 0.0)


def _verdict(causes: Sequence[WhyCause], loop: _Loop, per_s: float | None) -> str:
    if not causes:
        share = loop.share((MODEL, BACKWARD))
        if share >= _MOST_OF:
            return f"compute-bound: {human_percent(share)} of a step is the model's own work"
        part, share = next(iter(loop.shares().items()))
        return f"no change stands out: the largest part of a step is {part}, {human_percent(share)}"
    first = causes[0]
    if first.name in ("loader", "transform"):
        share = loop.share((DATA,))
        if share < _MOST_OF:
            return first.what
        if per_s is None or share >= 1:
            return f"input-bound: {human_percent(share)} of a step is the wait for data"
        # Workers make batches while the model is at work.
        delivered = per_s if loop.workers else per_s / share
        return (
            f"input-bound: the loader delivers {delivered:,.0f} samples/s, the model could take"
            f" {per_s / (1 - share):,.0f}"
        )
    return first.what


class _Loop:
    """The samples of a loop, added up."""

    def __init__(self, found: LoopSamples) -> None:
        self.found = found
        updates: defaultdict[tuple[str, str], float] = defaultdict(float)
        for one in found.samples:
            if one.phase in (UPDATE, BACKWARD) and one.lines:
                updates[one.lines[0].file, one.lines[0].function] += one.total_s
        # The file and name of the function that trains.
        self.function = max(updates, key=lambda key: updates[key], default=("", ""))
        # The samples of evaluations, by the line where each of these is.
        self.evaluations = _evaluations(found.samples)
        self._in_evaluations = {id(one) for each in self.evaluations.values() for one in each}

    @property
    def workers(self) -> int:
        """The number of processes of the loader that is trained with."""
        return int(self.found.facts.get("workers", "0"))

    def in_loop(self, one: LineSample) -> OwnLine | None:
        """Return the line of the training loop that a sample is in, or its innermost own line."""
        of_loop = (line for line in one.lines if (line.file, line.function) == self.function)
        return next(of_loop, one.lines[0] if one.lines else None)

    def part(self, samples: Iterable[LineSample]) -> float:
        """Return the share of a step that samples take."""
        return sum(one.total_s for one in samples) / sum(self.found.block_s)

    def gain(self, samples: Iterable[LineSample]) -> Gain:
        """Return what of a step would go with samples, with an interval from their scatter over blocks."""
        return _around(*self.spread(samples))

    def spread(self, samples: Iterable[LineSample]) -> tuple[float, float]:
        """Return the share of a step that samples take, and half the width of its interval."""
        blocks = self.found.block_s
        sums = [sum(seconds) for seconds in zip(*(one.seconds for one in samples), strict=True)]
        sums = sums or [0.0] * len(blocks)
        share, size = sum(sums) / sum(blocks), max(1, len(blocks) // _GROUPS)
        groups = range(0, len(blocks) - size + 1, size)
        ratios = [sum(sums[at : at + size]) / sum(blocks[at : at + size]) for at in groups]
        scatter = _T * statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else 0.0
        return share, scatter + _SLACK + _SLACK_SHARE * share

    def share(self, phases: Sequence[str]) -> float:
        """Return the share of parts of torch in training."""
        return self.part(self.trains(phases))

    def trains(self, phases: Sequence[str]) -> list[LineSample]:
        """Return the samples of parts of torch in training."""
        return [one for one in self.found.samples if one.phase in phases and not self.is_off(one)]

    def is_off(self, one: LineSample) -> bool:
        """Return whether a sample is of code without gradients, or of an evaluation."""
        return evaluates(one) or self.evaluated(one)

    def evaluated(self, one: LineSample) -> bool:
        """Return whether a sample is of an evaluation, its wait for data included."""
        return id(one) in self._in_evaluations

    def shares(self) -> dict[str, float]:
        """Return the share of each part of a step, largest first."""
        found: defaultdict[str, float] = defaultdict(float)
        for one in self.found.samples:
            name = "without gradients" if self.is_off(one) else one.phase or "own code"
            found[name] += one.total_s / sum(self.found.block_s)
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def evaluates(one: LineSample) -> bool:
    """Return whether a sample is of code without gradients that is no optimizer's, nor of a backward pass.

    Torch turns gradients off in a backward pass, which shows where that calls Python, as for a checkpoint.
    """
    return one.no_grad and one.phase not in (UPDATE, BACKWARD, COMPILING, DATA)


def _evaluations(samples: Sequence[LineSample]) -> dict[OwnLine, list[LineSample]]:
    """Return the samples of evaluations by the outermost line that is around no update.

    There modules run without gradients. With it go the lines behind it where gradients are always off, which
    use what these gave, and the wait for data before it.
    """
    trained = {line for one in samples if one.phase in (UPDATE, BACKWARD) for line in one.lines}
    with_gradients = {line for one in samples if not one.no_grad for line in one.lines}
    found: defaultdict[OwnLine, list[LineSample]] = defaultdict(list)
    for one in samples:
        if one.lines and (evaluates(one) or (one.no_grad and one.phase == DATA)):
            outer = (line for line in reversed(one.lines) if line not in trained)
            found[next(outer, one.lines[0])].append(one)

    def seconds(line: OwnLine, *phases: str) -> float:
        return sum(one.total_s for one in found[line] if not phases or one.phase in phases)

    def goes_with(line: OwnLine, first: OwnLine) -> bool:
        place = (first.file, first.function)
        low, high = sorted((line.line, first.line))
        is_placed = line.line > first.line or 2 * seconds(line, DATA) > seconds(line)
        between = (one for one in with_gradients - {first} if low <= one.line <= high)
        return (
            is_placed
            and place == (line.file, line.function)
            and all(place != (one.file, one.function) for one in between)
        )

    firsts = [
        line for line in found if 0 < _MODULES * (seconds(line) - seconds(line, DATA)) <= seconds(line, MODEL)
    ]
    return {
        line: each
        for line, each in found.items()
        if line in firsts or any(goes_with(line, first) for first in firsts)
    }


def _around(share: float, half: float) -> Gain:
    warm = min(_WARM, _WARM_SHARE * share)
    likely, high = (
        1 - (1 - one) * (1 - part) for one, part in ((share, warm / 2), (min(1.0, share + half), warm))
    )
    return max(0.0, share - half), likely, high


def _interval(ratios: Sequence[float]) -> Gain:
    found = ratio_of_turns([math.log(one) for one in ratios])
    assert found is not None  # noqa: S101 (a trial has enough turns)
    return found.low * (1 - _SLACK_SHARE / 2), found.ratio, found.high * (1 + _SLACK_SHARE / 2)


class _Causes:
    def __init__(self, loop: _Loop, synced: set[str], memory: PassResult, summary: PassSummary) -> None:
        self._loop, self._found, self._synced = loop, loop.found, synced
        self._memory, self._summary = memory, summary
        self._evaluation = [one for each in loop.evaluations.values() for one in each]

    def all(self) -> Iterator[WhyCause]:
        """Yield all causes, in no order."""
        yield from self._data()
        yield from self._of_phase("recompiles", "compiles anew", lambda one: one.phase == COMPILING)
        yield from self._evaluations()
        yield from self._lines()
        yield from self._trials()

    def _cause(
        self,
        name: CauseName,
        what: str,
        line: OwnLine | None,
        gain: Gain,
        *,
        share: float | None = None,
        change: str = "",
        nbytes: float = 0.0,
    ) -> WhyCause:
        return WhyCause(
            name=name,
            place="" if line is None else line.place,
            text="" if line is None else line.text,
            what=what,
            change=change or _CHANGES[name],
            gain=gain,
            part_s=(gain[1] if share is None else share) * self._found.step_s,
            bytes=nbytes,
            trial=self._trial(name),
        )

    def _trial(self, name: CauseName) -> Trial | None:
        number = self._found.facts.get("new_workers" if name == "loader" else "cores", "0")
        return Trial(name, int(number)) if name in _TRIED else None

    def _of_phase(
        self, name: CauseName, verb: str, is_mine: Callable[[LineSample], bool]
    ) -> Iterator[WhyCause]:
        mine = [one for one in self._found.samples if is_mine(one)]
        if mine and (gain := self._loop.gain(mine))[1] >= _WORTH:
            line, share = self._loop.in_loop(max(mine, key=lambda one: one.total_s)), self._loop.part(mine)
            what = f"the loop {verb} for {human_percent(share)} of a step"
            yield self._cause(name, what, line, gain, share=share)

    def _evaluations(self) -> Iterator[WhyCause]:
        by_line = {line: sum(one.total_s for one in each) for line, each in self._loop.evaluations.items()}
        if by_line and (gain := self._loop.gain(self._evaluation))[1] >= _WORTH:
            line = max(by_line, key=lambda one: by_line[one])
            share = self._loop.part(self._evaluation)
            what = f"evaluation-bound: {human_percent(share)} of the time is evaluation"
            yield self._cause("evaluation", what, line, gain, share=share)

    def _data(self) -> Iterator[WhyCause]:
        mine = [one for one in self._found.samples if one.phase == DATA and not self._loop.evaluated(one)]
        wait, share = self._loop.gain(mine), self._loop.part(mine)
        if wait[1] < _WORTH:
            return
        step_s, workers = self._found.step_s, self._loop.workers
        busy = mine if not workers else [one for one in self._found.worker_samples if one.inner != WAIT]
        by_line: defaultdict[OwnLine, float] = defaultdict(float)
        for one in busy:
            # Without a worker the line that asks for a batch is on every stack.
            if one.lines and (workers or (one.lines[0].file, one.lines[0].function) != self._loop.function):
                by_line[one.lines[0]] += one.total_s
        line = max(by_line, key=lambda key: by_line[key]) if by_line else None
        whole = sum(one.total_s for one in busy)
        ratios = self._found.trials.get("workers")
        low, median, high = _interval(ratios) if ratios else (1.0, 1.0, 1.0)
        has_line = line is not None and by_line[line] >= _MOST_OF * whole
        # Where no core is free, workers cost time.
        if 1 - low >= _WORTH and (median < 1 or not has_line):
            # No more than the wait can be saved.
            gain = (1 - high - _SLACK, min(1 - median, wait[1]), min(1 - low + _SLACK, wait[2]))
            change = (
                f"DataLoader(..., num_workers={self._found.facts['new_workers']}, persistent_workers=True)"
            )
            what = f"the loop waits for data for {human_percent(share)} of a step, with num_workers=0"
            yield self._cause("loader", what, line, gain, share=share, change=change)
            return
        if line is None or not has_line:
            if share >= _MOST_OF:
                at = self._loop.in_loop(max(mine, key=lambda one: one.total_s))
                what = f"the loop waits for data for {human_percent(share)} of a step"
                change = (
                    "make batches cheaper, do their work once beforehand, or give the loader more workers"
                )
                yield self._cause("transform", what, at, wait, share=share, change=change)
            return
        change = "make this line cheaper, or do it once beforehand"
        if not ratios:
            change += ", or give the loader more workers"
        if workers:
            batches = max(1, self._found.worker_batches)
            left_s = max(step_s * (1 - share), (whole - by_line[line]) / batches / workers)
            low, likely, high = _around(1 - left_s / step_s, self._loop.spread(mine)[1])
            # The line may take cores from the model, which runs alone in that share of its time.
            alone = statistics.median(self._found.trials.get("alone", (1.0,)))
            saved = max(0.0, 1 - alone) * self._loop.share((MODEL, BACKWARD))
            gain = low, min(1.0, likely + saved), min(1.0, high + saved)
        else:
            gain = self._loop.gain([one for one in mine if one.lines and one.lines[0] == line])
        what = f"the loop waits for data for {human_percent(share)} of a step, most of it for one line"
        yield self._cause("transform", what, line, gain, share=share, change=change)

    def _lines(self) -> Iterator[WhyCause]:
        skipped = {id(one) for one in self._evaluation}
        by_line: defaultdict[OwnLine, list[LineSample]] = defaultdict(list)
        for one in self._found.samples:
            is_left = id(one) not in skipped and one.phase in ("", MODEL)
            if one.lines and is_left:
                # A comprehension is a function of its own, in the same line.
                by_line[replace(one.lines[0], function="")].append(one)
        leaks = self._leaks()
        grows = None
        for line, samples in by_line.items():
            gain = self._loop.gain(samples)
            if gain[1] < _WORTH:
                continue
            if {one.phase for one in samples} == {""} and self._grows(samples):
                if grows is None or gain[1] > grows[1][1]:
                    grows = line, gain
                continue
            name = self._name(line, samples)
            # What a model or a library computes at a line is no cause by itself.
            if name is None and {one.phase or one.inner for one in samples} & {MODEL, LIBRARY}:
                continue
            name = name or ("sync" if line.place in self._synced else "line")
            share = self._loop.part(samples)
            what = f"{human_percent(share)} of a step is {_NOUNS[name]}"
            yield self._cause(name, what, line, gain, share=share)
        if grows is not None:
            nbytes = leaks[0].growth_bytes if leaks else 0.0
            what = (
                f"{grows[0].place} takes longer with each step: {human_percent(grows[1][1])} of a step by now"
            )
            yield self._cause("growth", what, grows[0], grows[1], nbytes=nbytes)
        elif leaks:
            what = f"memory grows by {human_bytes(round(leaks[0].growth_bytes))} a step"
            file, _, number = leaks[0].place.rpartition(":")
            line = OwnLine(file=file, line=int(number or 0), function="", text=leaks[0].text)
            yield self._cause("growth", what, line, (0.0, 0.0, _WORTH), nbytes=leaks[0].growth_bytes)

    def _leaks(self) -> list[LineMemory]:
        found = self._memory.memory.lines if self._memory.memory else ()
        leaks = [one for one in found if one.leaks and one.growth_bytes >= _LEAK_BYTES]
        return sorted(leaks, key=lambda one: -one.growth_bytes)

    def _grows(self, samples: Sequence[LineSample]) -> bool:
        sums = [sum(seconds) for seconds in zip(*(one.seconds for one in samples), strict=True)]
        quarter = max(1, len(sums) // 4)
        first, last = statistics.fmean(sums[:quarter]), statistics.fmean(sums[-quarter:])
        pairs = [later > earlier for earlier, later in itertools.combinations(sums, 2)]
        return last >= _GROWN * max(first, 1e-9) and sum(pairs) >= _RISING * len(pairs)

    def _name(self, line: OwnLine, samples: Sequence[LineSample]) -> CauseName | None:
        inner = max(samples, key=lambda one: one.total_s).inner
        if inner in _OF_LIBRARY:
            return _OF_LIBRARY[inner]
        return next((name for name, calls in _CALLS if re.search(calls, line.text)), None)

    def _trials(self) -> Iterator[WhyCause]:
        model = self._loop.trains((MODEL, BACKWARD))
        line = self._loop.in_loop(max(model, key=lambda one: one.total_s)) if model else None
        update = [one for one in self._found.samples if one.phase == UPDATE]
        of_update = self._loop.in_loop(max(update, key=lambda one: one.total_s)) if update else None
        threads, cores, kind = (self._found.facts.get(one, "") for one in ("threads", "cores", "optimizer"))
        changes: tuple[tuple[CauseName, str, list[LineSample], OwnLine | None, str, str], ...] = (
            ("float64", "float32", [*model, *update], line, "the model's numbers have 64 bits", ""),
            ("threads", "threads", [*model, *update], line, f"torch has {threads} thread of {cores}", ""),
            (
                "optimizer",
                "fused",
                update,
                of_update,
                f"{kind} updates one tensor after the other",
                f"torch.optim.{kind}(..., fused=True)",
            ),
        )
        for name, trial, part, at, what, change in changes:
            ratios = self._found.trials.get(trial)
            share, half = self._loop.spread(part)
            if ratios and share >= _WORTH:
                low, median, high = _interval(ratios)
                gain = (
                    min((share - half) * (1 - high), (share + half) * (1 - high)),
                    share * (1 - median),
                    (share + half) * (1 - low),
                )
                if gain[1] >= _WORTH:
                    yield self._cause(name, what, at, gain, share=share, change=change)


_NOUNS: dict[CauseName, str] = {
    "sync": "reading results from tensors",
    "logging": "logging",
    "copy": "copying",
    "line": "one line of Python",
}
