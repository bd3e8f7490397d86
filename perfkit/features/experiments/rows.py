"""An experiment as rows of the ledger, and back: every effect can be recomputed from them alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass

from perfkit.features.experiments.records import (
    TENSOR_PEAK,
    Experiment,
    ExperimentRecord,
    Fingerprint,
    Trial,
    Variant,
    level_text,
    response_named,
)
from perfkit.model import Benchmark, Metric, Outcome, Placement
from perfkit.model.policies import stored_as
from perfkit.model.results import Row, RowPolicy

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
