"""An experiment: its factors and variants, what each trial gave, and both as rows of the ledger."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from typing import Literal

from perfkit.model import Benchmark, Metric, Outcome, Placement
from perfkit.model.policies import stored_as
from perfkit.model.results import Better, Row, RowPolicy, Status

Level = bool | int | float | str
Scale = Literal["ratio", "difference"]
# The level of a factor that applies a trick from outside, without it.
OFF = "off"


@dataclass(frozen=True, kw_only=True)
class Factor:
    """Something that is varied; the first level is the reference that the others are compared with."""

    name: str
    levels: tuple[Level, ...]

    @property
    def is_numeric(self) -> bool:
        """Whether the levels are numbers, so that they have an order and values between them."""
        return all(isinstance(level, (int, float)) and not isinstance(level, bool) for level in self.levels)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One level of every factor."""

    levels: Mapping[str, Level]

    @property
    def name(self) -> str:
        """The levels in the order of the factors: "precision=bf16, batch_size=2"."""
        return ", ".join(f"{factor}={level_text(level)}" for factor, level in self.levels.items())


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is varied, what is run, and by which rules it is judged; fixed before anything is measured.

    Attributes:
        name: What it is called.
        target: "package.module:function", or a script.
        factors: What is varied; every combination of levels is a variant.
        fixed: Arguments of the target that are the same in all variants.
        returned: Response -> attribute of what the target returns.
        seed_argument: The target's argument that gets each block's seed; None where it takes none.
        blocks: The most blocks; in each, every variant runs once.
        budget_s: Seconds after which no further block is begun.
        margin: The largest relative change that nobody need care about.
        alpha: The probability that any of the effects is judged wrongly.
        seed: Draws the order in blocks, and the seeds of the blocks.
        warmup_steps: Steps at the start of each trial that its step time leaves out.
        warmup_s: Seconds at the start of each trial that it leaves out as well.
        limit_s: Seconds after which a trial is ended.
        threads: Torch's threads in each trial; None leaves torch's own choice.
        argument: How a command line takes an argument, such as "--{name}={value}"; None for the spelling
            found in the target's source.
        folder: Where the target runs, seen from the project's root.
        command_line: Words that a script gets in front of its arguments.
        tricks: Factor -> trick that its levels other than "off" apply from outside, since the target has no
            such argument.
    """

    name: str
    target: str
    factors: tuple[Factor, ...]
    fixed: Mapping[str, Level] = field(default_factory=dict)
    returned: Mapping[str, str] = field(default_factory=dict)
    seed_argument: str | None = None
    blocks: int = 20
    budget_s: float = 300.0
    margin: float = 0.02
    alpha: float = 0.05
    seed: int = 0
    warmup_steps: int = 2
    warmup_s: float = 0.5
    limit_s: float = 600.0
    threads: int | None = None
    argument: str | None = None
    folder: str = "."
    command_line: tuple[str, ...] = ()
    tricks: Mapping[str, str] = field(default_factory=dict)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Every combination of levels, the last factor's changing fastest; the first is the reference."""
        names = [factor.name for factor in self.factors]
        combinations = itertools.product(*(factor.levels for factor in self.factors))
        return tuple(Variant(levels=dict(zip(names, levels, strict=True))) for levels in combinations)


@dataclass(frozen=True, kw_only=True)
class Response:
    """A number that each trial gives, with how two of them are compared and which direction is better."""

    name: str
    title: str
    unit: str
    better: Better = "lower"
    scale: Scale = "ratio"


TOTAL_TIME = Response(name="total_time", title="total time", unit="s")
STEP_TIME = Response(name="step_time", title="step time", unit="s")
SAMPLE_TIME = Response(name="sample_time", title="time per sample", unit="s")
TENSOR_PEAK = Response(name="tensor_peak", title="peak of tensors", unit="B")
HOST_PEAK = Response(name="host_peak", title="host peak", unit="B")
DEVICE_PEAK = Response(name="device_peak", title="device peak, allocated", unit="B")
DEVICE_RESERVED = Response(name="device_reserved", title="device peak, reserved", unit="B")
ACCURACY = Response(name="accuracy", title="accuracy", unit="1", better="higher", scale="difference")
LOSS = Response(name="loss", title="loss", unit="1", scale="difference")
SKIPPED_STEPS = Response(name="skipped_steps", title="skipped steps", unit="1", scale="difference")
RESPONSES = {
    response.name: response
    for response in (
        TOTAL_TIME, STEP_TIME, SAMPLE_TIME, TENSOR_PEAK, HOST_PEAK, DEVICE_PEAK, DEVICE_RESERVED,
        ACCURACY, LOSS, SKIPPED_STEPS,
    )
}  # fmt: skip
TIMES = (TOTAL_TIME, STEP_TIME, SAMPLE_TIME)


def response_named(name: str) -> Response:
    """Return the response of a name; one that perfkit does not know is compared by its difference."""
    return RESPONSES.get(name) or Response(
        name=name, title=name.replace("_", " "), unit="1", scale="difference"
    )


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """What a variant really does, as observed in its first steps, which are not timed.

    Attributes:
        operators: How many operators were dispatched.
        half: Operators that computed in half precision, by type: {"bfloat16": 120}.
        tensor_peak: The most bytes that tensors of the host and of devices took together at one time.
        settings: Torch's flags when the variant had done its steps.
        steps: Optimizer steps that were watched; 0 for a target that makes none.
        mistakes: Sentences on what is known to go wrong later, such as a loss kept with its graph.
    """

    operators: int
    half: Mapping[str, int]
    tensor_peak: int
    settings: Mapping[str, str]
    steps: int
    mistakes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One launch of one variant, in a fresh process.

    ``message`` is the failure, or names responses that were left out.
    """

    variant: str
    block: int
    order: int
    seed: int
    status: Status = "ok"
    message: str | None = None
    responses: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ExperimentRecord:
    """All that was measured of an experiment, in measured order; fingerprints by the variant's name.

    ``stopped`` is the reason why no more blocks were run.
    """

    experiment: Experiment
    fingerprints: Mapping[str, Fingerprint]
    trials: tuple[Trial, ...]
    stopped: str = ""


def level_text(level: Level) -> str:
    """Return a level as one writes it in a command: yes and no in lower case."""
    return str(level).lower() if isinstance(level, bool) else str(level)


_FAILED = "trial"


@dataclass(frozen=True, kw_only=True)
class ExperimentPolicy(RowPolicy):
    """An experiment's plan and identity, what its variants showed, and why it ended."""

    study: str = stored_as("experiment", MISSING)
    plan: Experiment
    fingerprint: Fingerprint | None = None
    stopped: str = ""


def trial_outcomes(experiment: Experiment, trial: Trial, *, version: str) -> list[tuple[Outcome, Placement]]:
    """Return the outcomes of a trial: one for each response, or one with the failure.

    ``version`` is that of the target's source.
    """
    benchmark = _benchmark(experiment, trial.variant, version)
    placement = Placement(launch=trial.block, block=trial.block, order=trial.order, seed=trial.seed)
    if trial.status != "ok":
        metric = Metric(name=_FAILED, unit="1")
        failed = Outcome(benchmark=benchmark, metric=metric, status=trial.status, message=trial.message)
        return [(failed, placement)]
    return [
        (
            Outcome(benchmark=benchmark, metric=_metric(name), values=(value,), message=trial.message),
            placement,
        )
        for name, value in trial.responses.items()
    ]


def fingerprint_outcome(
    experiment: Experiment, variant: str, found: Fingerprint, *, version: str
) -> tuple[Outcome, Placement]:
    """Return the outcome of a variant's fingerprint, which its row's policy has."""
    metric = Metric(name=TENSOR_PEAK.name, unit=TENSOR_PEAK.unit, exact=True)
    outcome = Outcome(
        benchmark=_benchmark(experiment, variant, version), metric=metric, values=(float(found.tensor_peak),)
    )
    return outcome, Placement()


def record_of(rows: Sequence[Row]) -> ExperimentRecord:
    """Return the experiment that rows of one run hold.

    Raises:
        ValueError: the rows are of no experiment.
    """
    both = [(row, row.policy) for row in rows if isinstance(row.policy, ExperimentPolicy)]
    if not both or len(both) != len(rows):
        raise ValueError("the rows are of no experiment")
    whole = both[0][1]
    experiment = whole.plan
    return ExperimentRecord(
        experiment=experiment,
        fingerprints={
            _variant(experiment, row): policy.fingerprint
            for row, policy in both
            if policy.fingerprint is not None
        },
        trials=tuple(_trials(experiment, (row for row, policy in both if policy.fingerprint is None))),
        stopped=whole.stopped,
    )


def _trials(experiment: Experiment, rows: Iterable[Row]) -> list[Trial]:
    groups: dict[tuple[int | None, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.placement.block, _variant(experiment, row)), []).append(row)
    trials = [_trial(variant, group) for (_, variant), group in groups.items()]
    return sorted(trials, key=lambda trial: (trial.block, trial.order))


def _trial(variant: str, rows: Sequence[Row]) -> Trial:
    first = rows[0]
    return Trial(
        variant=variant,
        block=first.placement.block or 0,
        order=first.placement.order or 0,
        seed=first.placement.seed or 0,
        status=first.outcome.status,
        message=first.outcome.message,
        responses={row.outcome.metric.name: value for row in rows for value in row.outcome.values},
    )


def _benchmark(experiment: Experiment, variant: str, version: str) -> Benchmark:
    levels = next(known for known in experiment.variants if known.name == variant).levels
    return Benchmark(
        name=f"{experiment.name}[{variant}]",
        version=version,
        params={name: level_text(level) for name, level in levels.items()},
        group=experiment.name,
    )


def _variant(experiment: Experiment, row: Row) -> str:
    params = row.outcome.benchmark.params
    levels = {factor.name: params[factor.name] for factor in experiment.factors}
    return Variant(levels=levels).name


def _metric(name: str) -> Metric:
    response = response_named(name)
    return Metric(name=name, unit=response.unit, better=response.better)
