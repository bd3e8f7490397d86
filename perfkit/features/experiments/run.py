"""An experiment from the check of its variants to its last block; an interruption loses no result."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from perfkit.errors import NotMeasuredError, UsageError
from perfkit.features.experiments.design import Place, places
from perfkit.features.experiments.effects import (
    FEWEST_BLOCKS,
    finished_blocks,
    is_comparable,
    is_decided,
    looks_of,
)
from perfkit.features.experiments.exchange import Task, TrialResult, TrialSpec
from perfkit.features.experiments.honesty import broken_cast, broken_promises, leaked_flags
from perfkit.features.experiments.process import run_trial
from perfkit.features.experiments.records import Experiment, ExperimentRecord, Fingerprint, Trial, Variant
from perfkit.model import Environment
from perfkit.model.progress import Progress
from perfkit.profiling.passes.targets import Target


@dataclass(frozen=True, kw_only=True)
class TrialSetting:
    """Where trials run: the target, the project's root and own packages, and the variables they inherit.

    ``environment_reader`` names, as "module:function", what tells a trial's settings.
    """

    target: Target
    root: Path
    own: tuple[str, ...]
    variables: Mapping[str, str]
    environment_reader: str


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
    """Runs an experiment on its setting; what is ``known`` of it from before is not measured again."""

    experiment: Experiment
    setting: TrialSetting
    keeper: Keeper
    progress: Progress
    fingerprints: dict[str, Fingerprint] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    _settings: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def run(self) -> ExperimentRecord:
        """Check each variant, then run blocks until all is decided or the time is over.

        Raises:
            UsageError: the target refuses an argument, or the budget is too small for one block.
            NotMeasuredError: a variant does not do what its name says, or every variant fails.
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
            self.progress.tell(number / len(self.experiment.variants))
            found = self._launch("look", variant, seed=self.experiment.seed)
            if found.problem is not None:
                self._keep_failure(Place(variant=variant, block=0, order=number, seed=0), found)
            elif found.fingerprint is not None:
                self.fingerprints[variant.name] = found.fingerprint
                self.keeper.keep_fingerprint(
                    variant.name, found.fingerprint, found.environment, found.version
                )
        self._refuse_if(broken_promises(self.experiment, self.fingerprints))
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
                self._share_of(begun, block)
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
        wrong = broken_cast(place.variant, found.casts)
        if wrong is not None:
            raise NotMeasuredError(f"{wrong}; it does not do what its name says")
        if found.problem is not None:
            self._keep_failure(place, found)
            self._refuse_if_all_failed()
            return
        self._settings[place.variant.name] = found.settings
        self._refuse_if(leaked_flags(self.experiment, self._settings))
        self._keep(_trial(place, found), found)

    def _launch(self, task: Task, variant: Variant, *, seed: int) -> TrialResult:
        experiment, setting = self.experiment, self.setting
        variants = experiment.variants
        seeded = {experiment.seed_argument: seed} if experiment.seed_argument else {}
        spec = TrialSpec(
            task=task,
            target=setting.target,
            arguments=tuple({**experiment.fixed, **seeded, **one.levels} for one in variants),
            number=[one.name for one in variants].index(variant.name),
            root=str(setting.root),
            folder="",
            own=setting.own,
            returned=experiment.returned,
            warmup_steps=experiment.warmup_steps,
            warmup_s=experiment.warmup_s,
            threads=experiment.threads,
            environment_reader=setting.environment_reader,
            template=experiment.argument,
        )
        return run_trial(spec, environment=setting.variables, limit_s=experiment.limit_s, seed=seed)

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

    def _refuse_if(self, wrong: Iterable[str]) -> None:
        for problem in wrong:
            raise NotMeasuredError(problem)

    def _share_of(self, begun: float, block: int) -> None:
        by_time = (time.monotonic() - begun) / self.experiment.budget_s
        self.progress.tell(min(max(by_time, block / self.experiment.blocks), 1.0))


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
