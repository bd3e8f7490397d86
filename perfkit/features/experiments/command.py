"""``perfkit experiment``: variants of one target against each other, their rows, and the report."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec

from perfkit.commands.text_files import replace_reports
from perfkit.config import Project
from perfkit.errors import LedgerError, NotMeasuredError, RecordingError, RunInterruptedError, UsageError
from perfkit.features.experiments.effects import (
    FEWEST_BLOCKS,
    finished_blocks,
    is_comparable,
    is_decided,
    looks_of,
)
from perfkit.features.experiments.records import (
    Experiment,
    ExperimentPolicy,
    ExperimentRecord,
    Factor,
    Fingerprint,
    Level,
    Trial,
    Variant,
    fingerprint_outcome,
    record_of,
    trial_outcomes,
)
from perfkit.features.experiments.report import effects_chart, experiment_document
from perfkit.features.experiments.trial import Task, TrialProcesses, TrialResult, TrialSpec
from perfkit.identity import fingerprint, new_run_id, utc_now
from perfkit.ledger.recording import Run, RunFacts
from perfkit.ledger.store import Ledger
from perfkit.model import Environment, Outcome, Placement, Row
from perfkit.model.comparisons import Progress
from perfkit.profiling.passes.targets import Target, resolve_target
from perfkit.repo.commits import read_commit
from perfkit.runner.lock import measuring
from perfkit.runner.machine.facts import free_memory, read_machine
from perfkit.units import human_bytes

_UNKNOWN_ENVIRONMENT = Environment(env_id="unknown", facts={})


@dataclass(frozen=True, kw_only=True)
class Measured:
    """An experiment that is over, with the rows that hold it, and the seconds it waited for the machine.

    ``unrecorded`` is the reason why the rows are not in the ledger, None where they are.
    """

    record: ExperimentRecord
    rows: tuple[Row, ...]
    waited_s: float = 0.0
    unrecorded: str | None = None


def run_experiment(
    experiment: Experiment,
    *,
    project: Project,
    ledger: Path,
    progress: Progress,
    wait_s: float | None = None,
) -> Measured:
    """Run an experiment, or go on with one that was stopped, and put its rows into the ledger.

    Until it is over each trial is kept in a folder of its own beside the ledger: killed half-way, the same
    command goes on where it was. After ``wait_s`` seconds of waiting for another perfkit it gives up, with
    None never.

    Raises:
        UsageError: the target refuses an argument, or the budget is too small for one block.
        NotMeasuredError: a variant does not do what its name promises, or every variant fails.
        RepositoryError: there is no commit to record under.
        LedgerError: the ledger cannot be written.
        RunInterruptedError: the person stopped it; what was measured is kept.
    """
    Ledger(ledger).check_writable()
    target = resolve_target(experiment.target, project, folder=project.root / experiment.folder)
    keeper = StagedExperiment(experiment, project=project, ledger=ledger)
    if keeper.file is not None:
        progress.info(f"this experiment was over when it was stopped: its rows are in {keeper.file}")
        return keeper.recorded()
    known = keeper.known()
    if known is not None:
        trials = len(known.trials)
        progress.info(f"going on with an experiment that was stopped: {trials} trials are kept")
    processes = TrialProcesses(os.environ)
    run = ExperimentRun(
        experiment=experiment,
        target=target,
        root=project.root,
        own=project.config.own,
        processes=processes,
        keeper=keeper,
        progress=progress,
        fingerprints=dict(known.fingerprints) if known else {},
        trials=list(known.trials) if known else [],
    )
    try:
        with measuring(progress.info, wait_s=wait_s) as waited_s, processes:
            record = run.run()
        rows, unrecorded = keeper.finish(record.stopped)
        return Measured(record=record, rows=rows, waited_s=waited_s, unrecorded=unrecorded)
    except KeyboardInterrupt:
        raise RunInterruptedError(
            f"interrupted; {len(run.trials)} trials are kept in {keeper.folder}: the same command goes on"
        ) from None
    finally:
        keeper.leave()


def recorded_experiment(run: str, *, ledger: Path) -> Measured:
    """Return an experiment from its rows.

    Raises:
        LedgerError: there is no such run, or it was no experiment.
    """
    rows = Ledger(ledger).rows_of(run)
    try:
        return Measured(record=record_of(rows), rows=tuple(rows))
    except ValueError:
        raise LedgerError(f'run "{run}" was no experiment; see "perfkit ledger list"') from None


def write_document(measured: Measured, file: Path) -> None:
    """Write the whole report of an experiment, and its picture beside it.

    Raises:
        UsageError: a file cannot be written.
    """
    picture = file.with_suffix(".svg")
    document = experiment_document(measured.record, measured.rows[-1], picture=picture.name)
    texts = {file: document, picture: effects_chart(measured.record)}
    replace_reports(texts, option="--markdown", makes_folder=True)


class StagedExperiment:
    """Keeps each trial at once, staged in a folder of its own until the experiment is over.

    It takes over what an earlier command left of the experiment.

    Raises:
        LedgerError: another process measures it, or what is left cannot be read.
    """

    def __init__(self, experiment: Experiment, *, project: Project, ledger: Path) -> None:
        self._experiment, self._ledger = experiment, ledger
        self._commit = read_commit(project.root, ignored=project.output_paths)
        self._machine = read_machine()
        # A stopped experiment may go on only with the same plan, the same code and the same machine.
        self._study = fingerprint(
            {
                "plan": msgspec.json.encode(experiment).decode(),
                "commit": self._commit.sha,
                "changes": self._commit.diff_hash or "",
                "machine": self._machine.machine_id,
            }
        )
        self.run = Run.resume(ledger, folder=self.folder)

    @property
    def folder(self) -> Path:
        """Where an unfinished experiment is kept."""
        return self._ledger.with_name(f"{self._ledger.name}-unfinished") / self._study

    @property
    def file(self) -> Path | None:
        """The ledger file of the whole experiment, if it was stopped only after it had been recorded."""
        return self.run.file if self.run else None

    def known(self) -> ExperimentRecord | None:
        """Return what an earlier command left of this experiment, None where there is nothing."""
        return record_of(self.run.rows) if self.run and self.run.rows else None

    def recorded(self) -> Measured:
        """Return the experiment as it was recorded, and remove the staged trials."""
        assert self.run is not None  # noqa: S101 (it has a file)
        rows = tuple(Ledger(self._ledger).rows_of(self.run.run_id))
        self.run.discard()
        return Measured(record=record_of(rows), rows=rows)

    def keep_trial(self, trial: Trial, environment: Environment | None, version: str) -> None:
        """Keep a trial."""
        self._add(trial_outcomes(self._experiment, trial, version=version), environment, self._policy())

    def keep_fingerprint(
        self, variant: str, found: Fingerprint, environment: Environment | None, version: str
    ) -> None:
        """Keep what the check of a variant before its trials showed."""
        outcome = fingerprint_outcome(self._experiment, variant, found, version=version)
        self._add([outcome], environment, self._policy(found))

    def finish(self, stopped: str) -> tuple[tuple[Row, ...], str | None]:
        """Put all rows into the ledger as one run, and only then remove the staged trials.

        Return the rows, and what kept them from the ledger: then they stay staged.
        """
        assert self.run is not None  # noqa: S101 (an experiment without a trial was refused)
        rows = []
        for row in self.run.rows:
            assert isinstance(row.policy, ExperimentPolicy)  # noqa: S101 (it was added here)
            rows.append(replace(row, policy=replace(row.policy, stopped=stopped)))
        try:
            self.run.publish(instead=rows)
        except RecordingError as error:
            return tuple(rows), str(error)
        return tuple(rows), None

    def leave(self) -> None:
        """Release the staged trials, so that the same command can go on with them."""
        if self.run is not None:
            self.run.leave()

    def _policy(self, found: Fingerprint | None = None) -> ExperimentPolicy:
        return ExperimentPolicy(study=self._study, plan=self._experiment, fingerprint=found)

    def _add(
        self,
        outcomes: Sequence[tuple[Outcome, Placement]],
        environment: Environment | None,
        policy: ExperimentPolicy,
    ) -> None:
        now = utc_now()
        if self.run is None:
            self.run = Ledger(self._ledger).run(
                source="experiment", run_id=new_run_id(), recorded_at=now, folder=self.folder
            )
        facts = RunFacts(
            run_id=self.run.run_id,
            recorded_at=now,
            source="experiment",
            commit=self._commit,
            machine=self._machine,
            environment=environment or _UNKNOWN_ENVIRONMENT,
        )
        self.run.add([facts.row(one, placement=place, policy=policy) for one, place in outcomes])


# The blocks have the rest of the budget.
_SHARE_OF_BUDGET = 0.5
# A batch that takes less than this more than half of it has all of the data.
_GROWTH = 1.01
# The first one, and the largest ones.
_MOST_LEVELS = 4


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """The sizes that fit, rising, and why no larger one is among them."""

    name: str
    sizes: tuple[int, ...]
    reason: str

    @property
    def levels(self) -> Sequence[Level]:
        """The sizes to compare: the first one, and the largest ones."""
        return (self.sizes[0], *self.sizes[1:][1 - _MOST_LEVELS :])

    @property
    def sentence(self) -> str:
        """The result in one line."""
        return f"{self.name}={self.sizes[-1]} is the largest that was seen to fit; {self.reason}"


def fitting_sizes(
    experiment: Experiment, name: str, *, project: Project, progress: Progress, wait_s: float | None = None
) -> Fitting:
    """Double the first level of a factor until it does not fit in memory, or half of the budget is used up.

    On the host, whose memory other processes need, a size that would take more than is free is not tried.

    Raises:
        UsageError: the target refuses an argument.
        NotMeasuredError: not even two sizes fit.
    """
    target = resolve_target(experiment.target, project, folder=project.root / experiment.folder)
    (first,) = (int(factor.levels[0]) for factor in experiment.factors if factor.name == name)
    rest = tuple(factor for factor in experiment.factors if factor.name != name)
    sizes: list[int] = []
    reason, peak, begun = "", 0, time.monotonic()
    with measuring(progress.info, wait_s=wait_s), TrialProcesses(os.environ) as processes:
        for size in (first << doublings for doublings in itertools.count()):
            progress.info(f"looking whether {name}={size} fits")
            one = replace(experiment, factors=(*rest, Factor(name=name, levels=(size,))))
            found = processes.run(
                TrialSpec(
                    task="look",
                    target=target,
                    experiment=one,
                    number=0,
                    seed=experiment.seed,
                    root=str(project.root),
                    own=project.config.own,
                )
            )
            if found.problem is not None and found.problem.kind == "usage":
                raise UsageError(found.problem.message)
            if found.problem is not None or found.fingerprint is None:
                message = found.problem.message if found.problem else "it showed nothing"
                reason = f"with {size}: {message}"
                break
            grown, peak = found.fingerprint.tensor_peak / max(peak, 1), found.fingerprint.tensor_peak
            if sizes and grown < _GROWTH:
                reason = f"with {size} a batch takes no more memory: the data has no larger one"
                break
            sizes.append(size)
            if time.monotonic() - begun > _SHARE_OF_BUDGET * experiment.budget_s:
                reason = f"{2 * size} was not tried: half of the budget is used up"
                break
            # An accelerator refuses what it cannot hold; the host ends processes.
            if not found.responses and 2 * peak > (free := free_memory()):
                reason = (
                    f"{2 * size} would take up to {human_bytes(2 * peak)}, and {human_bytes(free)} are free"
                )
                break
    if len(sizes) < 2:  # noqa: PLR2004 (a comparison needs two)
        raise NotMeasuredError(f"there are no two sizes of {name} to compare; {reason}")
    return Fitting(name=name, sizes=tuple(sizes), reason=reason)


# Seeds are below this, so that a target can multiply one without leaving the range of seeds.
_SEEDS = 10**6
# The half-precision type that each level of a factor of precision promises to compute in, "" for none.
_PROMISES: Mapping[str, str] = {
    "default": "",
    "fp32": "",
    "float32": "",
    "full": "",
    "false": "",
    "off": "",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "amp": "any",
    "mixed": "any",
    "true": "any",
}
_PRECISION_FACTORS = ("precision", "amp", "mixed_precision", "autocast", "dtype")


class Keeper(Protocol):
    """Keeps each result as soon as it is measured, so that nothing is lost."""

    def keep_trial(self, trial: Trial, environment: Environment | None, version: str) -> None:
        """Keep a trial."""

    def keep_fingerprint(
        self, variant: str, found: Fingerprint, environment: Environment | None, version: str
    ) -> None:
        """Keep what the check of a variant before its trials showed."""


@dataclass
class ExperimentRun:
    """Runs an experiment; ``fingerprints`` and ``trials`` from before are not measured again.

    ``root`` is the project's folder and ``own`` its packages; ``processes`` run the trials.
    """

    experiment: Experiment
    target: Target
    root: Path
    own: tuple[str, ...]
    processes: TrialProcesses
    keeper: Keeper
    progress: Progress
    fingerprints: dict[str, Fingerprint] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    _settings: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def run(self) -> ExperimentRecord:
        """Check each variant, then run blocks until all is decided or the time is over.

        Raises:
            UsageError: the target refuses an argument, or the budget is too small for one block.
            NotMeasuredError: a variant does not do what its name promises, or every variant fails.
        """
        begun = time.monotonic()
        self._look_at_all()
        stopped = self._run_blocks(begun)
        return self.record(stopped)

    def record(self, stopped: str = "") -> ExperimentRecord:
        """Return what was measured so far."""
        return ExperimentRecord(
            experiment=self.experiment,
            fingerprints=dict(self.fingerprints),
            trials=tuple(self.trials),
            stopped=stopped,
        )

    def _look_at_all(self) -> None:
        for number, variant in enumerate(self.experiment.variants):
            if variant.name in self.fingerprints or variant.name in self._failed():
                continue
            self.progress.info(f"looking at what {variant.name} does")
            self.progress.advance(number / len(self.experiment.variants))
            found = self._launch("look", variant, seed=self.experiment.seed)
            if found.problem is not None:
                self._keep_failure(Place(variant=variant, block=0, order=number, seed=0), found)
            elif found.fingerprint is not None:
                self.fingerprints[variant.name] = found.fingerprint
                self.keeper.keep_fingerprint(
                    variant.name, found.fingerprint, found.environment, found.version
                )
        for problem in broken_promises(self.experiment, self.fingerprints):
            raise NotMeasuredError(problem)
        self._refuse_if_all_failed()

    def _run_blocks(self, begun: float) -> str:
        """Return why no more blocks were run."""
        done = {(trial.block, trial.variant) for trial in self.trials}
        blocks: dict[int, list[Place]] = {}
        for place in places(self.experiment):
            if (place.block, place.variant.name) not in done:
                blocks.setdefault(place.block, []).append(place)
        slowest_s = 0.0
        for block, left in blocks.items():
            if finished_blocks(self.record()) in looks_of(self.experiment) and is_decided(self.record()):
                return "every main effect is decided"
            if finished_blocks(self.record()) >= FEWEST_BLOCKS and not is_comparable(self.record()):
                return "no two variants that an effect compares are left"
            if block and time.monotonic() - begun + slowest_s > self.experiment.budget_s:
                return f"the budget of {self.experiment.budget_s:g} s is used up"
            block_begun = time.monotonic()
            for place in left:
                by_time = (time.monotonic() - begun) / self.experiment.budget_s
                self.progress.advance(min(max(by_time, block / self.experiment.blocks), 1.0))
                self._run_place(place, begun)
            slowest_s = max(slowest_s, time.monotonic() - block_begun)
        return "every main effect is decided" if is_decided(self.record()) else "all blocks are done"

    def _run_place(self, place: Place, begun: float) -> None:
        if place.variant.name in self._failed():
            return
        elapsed_s = time.monotonic() - begun
        if place.block == 0 and elapsed_s > self.experiment.budget_s:
            raise UsageError(
                f"a budget of {self.experiment.budget_s:g} s is too small for one block of"
                f" {len(self.experiment.variants)} variants: {elapsed_s:.0f} s are over after"
                f" {place.order} of them; raise --budget"
            )
        self.progress.info(f"block {place.block + 1}, {place.variant.name}")
        found = self._launch("time", place.variant, seed=place.seed)
        wrong = broken_autocast(place.variant, found.autocast)
        if wrong is not None:
            raise NotMeasuredError(f"{wrong}; it does not do what its name promises")
        if found.problem is not None:
            self._keep_failure(place, found)
            self._refuse_if_all_failed()
            return
        self._settings[place.variant.name] = found.settings
        for problem in leaked_flags(self.experiment, self._settings):
            raise NotMeasuredError(problem)
        self._keep(_trial(place, found), found)

    def _launch(self, task: Task, variant: Variant, *, seed: int) -> TrialResult:
        spec = TrialSpec(
            task=task,
            target=self.target,
            experiment=self.experiment,
            number=[one.name for one in self.experiment.variants].index(variant.name),
            seed=seed,
            root=str(self.root),
            own=self.own,
        )
        return self.processes.run(spec)

    def _keep_failure(self, place: Place, found: TrialResult) -> None:
        assert found.problem is not None  # noqa: S101 (the caller has seen it)
        if found.problem.kind == "usage":
            raise UsageError(found.problem.message)
        self.progress.info(f"{place.variant.name} failed: {found.problem.message}")
        self._keep(_trial(place, found), found)

    def _keep(self, trial: Trial, found: TrialResult) -> None:
        self.trials.append(trial)
        self.keeper.keep_trial(trial, found.environment, found.version)

    def _failed(self) -> set[str]:
        return {trial.variant for trial in self.trials if trial.status != "ok"}

    def _refuse_if_all_failed(self) -> None:
        failed = self._failed()
        if failed >= {variant.name for variant in self.experiment.variants}:
            first = next(trial for trial in self.trials if trial.status != "ok")
            raise NotMeasuredError(f"every variant failed; {first.variant}: {first.message}")


def _trial(place: Place, found: TrialResult) -> Trial:
    problem = found.problem
    return Trial(
        variant=place.variant.name,
        block=place.block,
        order=place.order,
        seed=place.seed,
        status=problem.status if problem else "ok",
        message=problem.message if problem else "; ".join(found.notes) or None,
        responses=found.responses,
    )


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a trial stands: its variant, its block, its place in that, and the seed that the block shares."""

    variant: Variant
    block: int
    order: int
    seed: int


def places(experiment: Experiment) -> Iterator[Place]:
    """Yield all trials in the order in which they run; the experiment's seed draws it."""
    source = random.Random(experiment.seed)  # noqa: S311 (an experiment's order, not a secret)
    for block in range(experiment.blocks):
        seed = source.randrange(_SEEDS)
        drawn = source.sample(experiment.variants, len(experiment.variants))
        for order, variant in enumerate(drawn):
            yield Place(variant=variant, block=block, order=order, seed=seed)


def promised_half(variant: Variant) -> str | None:
    """Return the half-precision type that a variant's name promises: "" for none, "any" for either.

    None where no factor is about precision.
    """
    for name in _PRECISION_FACTORS:
        level = variant.levels.get(name)
        if level is not None:
            return _PROMISES.get(str(level).lower())
    return None


def broken_promises(experiment: Experiment, found: Mapping[str, Fingerprint]) -> Iterator[str]:
    """Yield what makes the experiment's names wrong: no half precision, swapped labels, leaked flags."""
    looked_at = [variant for variant in experiment.variants if variant.name in found]
    wrong = [variant for variant in looked_at if not _keeps(variant, found[variant.name])]
    if _are_swapped(wrong):
        yield (
            f"the labels are swapped: {_what_ran(wrong[0], found)}, {_what_ran(wrong[1], found)};"
            " give each level the name of what it does"
        )
    else:
        for variant in wrong:
            factor = next(name for name in _PRECISION_FACTORS if name in variant.levels)
            yield (
                f"{_what_ran(variant, found)}; a variant must do what its name promises: mend the target's"
                f" use of {factor}"
            )
    yield from leaked_flags(experiment, {name: one.settings for name, one in found.items()})


def broken_autocast(variant: Variant, casts: Sequence[str]) -> str | None:
    """Return what is wrong with a timed trial, by the automatic casting that was on; None if nothing.

    Casting by hand cannot be seen this way, so no casting is wrong only where the check had seen some.
    """
    promised = promised_half(variant)
    if promised is None or not casts:
        return None
    if promised == "":
        return f'"{variant.name}" ran under automatic casting to {", ".join(casts)}'
    if promised != "any" and promised not in casts:
        return f'"{variant.name}" ran under automatic casting to {", ".join(casts)}, not {promised}'
    return None


def leaked_flags(experiment: Experiment, settings: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the flags of torch that differ between variants though no factor is about them."""
    # A factor may change the setting of its own name.
    allowed = {factor.name for factor in experiment.factors}
    flags = dict.fromkeys(flag for one in settings.values() for flag in one)
    for flag in flags:
        by_value: dict[str, str] = {}
        for variant, one in settings.items():
            by_value.setdefault(one.get(flag, "unknown"), variant)
        if flag not in allowed and len(by_value) > 1:
            (first, here), (second, there), *_ = by_value.items()
            yield (
                f'a flag has leaked: {flag} is {first} in "{here}" and {second} in "{there}", and no factor'
                " is about it; set it the same in both, or make it a factor"
            )


def _keeps(variant: Variant, found: Fingerprint) -> bool:
    promised = promised_half(variant)
    if promised is None:
        return True
    if promised == "":
        return not found.half
    return bool(found.half) if promised == "any" else promised in found.half


def _are_swapped(wrong: Sequence[Variant]) -> bool:
    promises = {promised_half(variant) == "" for variant in wrong}
    return promises == {True, False}


def _what_ran(variant: Variant, found: Mapping[str, Fingerprint]) -> str:
    half = found[variant.name].half
    ran = ", ".join(f"{count} operators in {kind}" for kind, count in half.items())
    return f'"{variant.name}" ran {ran or "no operator in half precision"}'
