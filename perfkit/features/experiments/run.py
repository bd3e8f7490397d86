"""An experiment from the check of its variants to its last block; an interruption loses no result."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from perfkit.errors import NotMeasuredError, UsageError
from perfkit.features.experiments.effects import (
    FEWEST_BLOCKS,
    finished_blocks,
    is_comparable,
    is_decided,
    looks_of,
)
from perfkit.features.experiments.records import (
    Experiment,
    ExperimentRecord,
    Fingerprint,
    Trial,
    Variant,
)
from perfkit.features.experiments.trial import Task, TrialProcesses, TrialResult, TrialSpec
from perfkit.model import Environment
from perfkit.model.comparisons import Progress
from perfkit.profiling.passes.targets import Target

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
