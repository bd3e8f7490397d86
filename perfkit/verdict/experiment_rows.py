"""An experiment as rows of the ledger, and back: every effect can be recomputed from them alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from perfkit.records import Benchmark, Metric, Outcome, Placement
from perfkit.records.experiments import (
    TENSOR_PEAK,
    Experiment,
    ExperimentRecord,
    Fingerprint,
    Trial,
    Variant,
    level_text,
    response_named,
)
from perfkit.records.results import Row

# Entries of a row's policy.
STUDY = "experiment"
PLAN = "plan"
_FINGERPRINT = "fingerprint"
STOPPED = "stopped"
_FAILED = "trial"


def trial_outcomes(
    experiment: Experiment, trial: Trial, *, version: str
) -> list[tuple[Outcome, Placement, dict[str, str]]]:
    """Return what rows say of a trial: one for each response, or one that says how it failed.

    ``version`` is that of the target's source.
    """
    benchmark = _benchmark(experiment, trial.variant, version)
    placement = Placement(launch=trial.block, block=trial.block, order=trial.order, seed=trial.seed)
    if trial.status != "ok":
        metric = Metric(name=_FAILED, unit="1")
        failed = Outcome(benchmark=benchmark, metric=metric, status=trial.status, message=trial.message)
        return [(failed, placement, {})]
    return [
        (
            Outcome(benchmark=benchmark, metric=_metric(name), values=(value,)),
            placement,
            {},
        )
        for name, value in trial.responses.items()
    ]


def fingerprint_outcome(
    experiment: Experiment, variant: str, found: Fingerprint, *, version: str
) -> tuple[Outcome, Placement, dict[str, str]]:
    """Return what a row says of a variant's fingerprint."""
    metric = Metric(name=TENSOR_PEAK.name, unit=TENSOR_PEAK.unit, exact=True)
    outcome = Outcome(
        benchmark=_benchmark(experiment, variant, version), metric=metric, values=(float(found.tensor_peak),)
    )
    return outcome, Placement(), {_FINGERPRINT: msgspec.json.encode(found).decode()}


def plan_entries(experiment: Experiment, *, study: str) -> dict[str, str]:
    """Return what every row of an experiment says of it; ``study`` tells it from all others."""
    return {STUDY: study, PLAN: msgspec.json.encode(experiment).decode()}


def record_of(rows: Sequence[Row]) -> ExperimentRecord:
    """Return the experiment that rows of one run hold.

    Raises:
        ValueError: the rows are of no experiment.
    """
    if not rows or PLAN not in rows[0].policy:
        raise ValueError("the rows are of no experiment")
    experiment = msgspec.json.decode(rows[0].policy[PLAN], type=Experiment)
    return ExperimentRecord(
        experiment=experiment,
        fingerprints={
            _variant(experiment, row): msgspec.json.decode(row.policy[_FINGERPRINT], type=Fingerprint)
            for row in rows
            if _FINGERPRINT in row.policy
        },
        trials=tuple(_trials(experiment, (row for row in rows if _FINGERPRINT not in row.policy))),
        stopped=rows[-1].policy.get(STOPPED, ""),
    )


def _trials(experiment: Experiment, rows: Iterable[Row]) -> list[Trial]:
    groups: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.placement.block or 0, _variant(experiment, row)), []).append(row)
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
        responses={row.outcome.metric.name: row.outcome.values[0] for row in rows if row.outcome.values},
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
