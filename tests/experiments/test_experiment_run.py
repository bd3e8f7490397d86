"""Experiments run in real processes: untimed looks, blocks, failures and mistakes that are caught."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from experiment_targets import TRAINING

from perfkit.errors import NotMeasuredError, UsageError
from perfkit.features.experiments.child import returned_numbers
from perfkit.features.experiments.command import (
    ExperimentRun,
    broken_autocast,
    broken_promises,
    leaked_flags,
    places,
)
from perfkit.features.experiments.records import (
    Experiment,
    ExperimentRecord,
    Factor,
    Fingerprint,
    Level,
    Trial,
    Variant,
)
from perfkit.features.experiments.trial import Task, TrialProcesses, TrialResult, TrialSpec
from perfkit.model import Environment
from perfkit.profiling.passes.targets import Target

PRECISION = Factor(name="precision", levels=("default", "bf16"))
EXPERIMENT = Experiment(
    name="small",
    target="training:train",
    factors=(PRECISION,),
    fixed={"steps": 8},
    returned={"accuracy": "accuracy"},
    seed_argument="seed",
    blocks=2,
    warmup_s=0.001,
    threads=1,
)


@dataclass
class Kept:
    """What was kept, and what was printed."""

    trials: list[Trial] = field(default_factory=list)
    fingerprints: dict[str, Fingerprint] = field(default_factory=dict)
    environments: list[Environment | None] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)

    def keep_trial(self, trial: Trial, environment: Environment | None, version: str) -> None:
        """Keep a trial."""
        assert trial.status != "ok" or version
        self.trials.append(trial)
        self.environments.append(environment)

    def keep_fingerprint(
        self, variant: str, found: Fingerprint, environment: Environment | None, version: str
    ) -> None:
        """Keep a look."""
        assert version
        self.environments.append(environment)
        self.fingerprints[variant] = found

    def info(self, text: str) -> None:
        """Remember it."""
        self.printed.append(text)

    def advance(self, share: float) -> None:
        """Check it."""
        assert 0 <= share <= 1


@pytest.fixture(scope="module")
def processes() -> Iterator[TrialProcesses]:
    """Return what starts trials, from one process that has imported torch for all of them."""
    with TrialProcesses(os.environ) as made:
        yield made


def _run(
    processes: TrialProcesses,
    folder: Path,
    experiment: Experiment = EXPERIMENT,
    kept: Kept | None = None,
    **known: object,
) -> tuple[ExperimentRecord, Kept]:
    kept = kept or Kept()
    (folder / "training.py").write_text(TRAINING)
    run = ExperimentRun(
        experiment=experiment,
        target=Target(name="train", place=experiment.target),
        root=folder,
        own=(),
        processes=processes,
        keeper=kept,
        progress=kept,
        **known,  # type: ignore[arg-type]
    )
    return run.run(), kept


def _with(mistake: str, *factors: Factor) -> Experiment:
    fixed = {**EXPERIMENT.fixed, "mistake": mistake}
    return replace(EXPERIMENT, fixed=fixed, factors=factors or EXPERIMENT.factors)


def _trial(
    processes: TrialProcesses,
    folder: Path,
    task: Task,
    target: str = "training:train",
    returned: tuple[str, ...] = (),
    **arguments: Level,
) -> TrialResult:
    (folder / "training.py").write_text(TRAINING)
    experiment = Experiment(
        name="one",
        target=target,
        factors=(),
        fixed=arguments,
        returned=dict(zip(returned, returned, strict=True)),
        threads=1,
        limit_s=100,
    )
    place = Target(name="train", place=target)
    spec = TrialSpec(task=task, target=place, experiment=experiment, number=0, seed=0, root=str(folder))
    return processes.run(spec)


def test_later_trials_begin_with_what_earlier_ones_imported(tmp_path: Path) -> None:
    """Each has a process of its own, and every fourth seed brings other hashes of texts."""
    (tmp_path / "lazy.py").write_text(
        "import os, sys\n"
        "def train():\n"
        "    known = 'sqlite3.dbapi2' in sys.modules\n"
        "    import sqlite3\n"
        "    return {'known': known, 'process': os.getpid(), 'hash': hash('text')}\n"
    )
    returned = {name: name for name in ("known", "process", "hash")}
    experiment = Experiment(name="lazy", target="lazy:train", factors=(), returned=returned, threads=1)
    target = Target(name="train", place="lazy:train")
    with TrialProcesses(os.environ) as processes:
        found = [
            processes.run(
                TrialSpec(
                    task="time", target=target, experiment=experiment, number=0, seed=seed, root=str(tmp_path)
                )
            ).responses
            for seed in (1, 1, 2, 3, 4, 5)
        ]

    assert [0, 1, 1, 1, 1, 1] == [one["known"] for one in found]
    assert len(found) == len({one["process"] for one in found})
    assert [0, 0, 0, 0, 0, 1] == [one["hash"] != found[0]["hash"] for one in found]


@pytest.fixture(scope="module")
def measured(
    processes: TrialProcesses, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ExperimentRecord, Kept]:
    """Return an experiment that was run once for all tests of what it gives."""
    return _run(processes, tmp_path_factory.mktemp("measured"))


def test_every_variant_runs_in_every_block(measured: tuple[ExperimentRecord, Kept]) -> None:
    record, kept = measured
    assert "all blocks are done" == record.stopped
    assert {
        (0, "precision=default"),
        (0, "precision=bf16"),
        (1, "precision=default"),
        (1, "precision=bf16"),
    } == {(trial.block, trial.variant) for trial in record.trials}
    for trial in record.trials:
        assert {"total_time", "step_time", "sample_time", "host_peak", "accuracy"} == set(trial.responses)
        assert trial.responses["sample_time"] == pytest.approx(trial.responses["step_time"] / 8)
    default, mixed = record.fingerprints["precision=default"], record.fingerprints["precision=bf16"]
    assert {} == default.half
    assert mixed.half["bfloat16"] > 0
    assert default.operators < mixed.operators
    assert (5, 5) == (default.steps, mixed.steps)
    assert min(default.tensor_peak, mixed.tensor_peak) > 0
    assert ((), ()) == (default.mistakes, mixed.mistakes)
    assert list(record.trials) == kept.trials
    assert 2 == len({(trial.block, trial.seed) for trial in record.trials})
    assert None not in kept.environments


def test_what_is_known_is_not_measured_again(
    processes: TrialProcesses, tmp_path: Path, measured: tuple[ExperimentRecord, Kept]
) -> None:
    record, _ = measured

    again, kept = _run(
        processes, tmp_path, fingerprints=dict(record.fingerprints), trials=list(record.trials[:3])
    )

    (anew,) = kept.trials
    assert {} == kept.fingerprints
    assert record.trials[3].responses["accuracy"] == anew.responses["accuracy"]
    assert [(trial.block, trial.variant) for trial in record.trials] == [
        (trial.block, trial.variant) for trial in again.trials
    ]


@pytest.mark.parametrize(
    ("mistake", "shown"),
    [
        ("swapped labels", "the labels are swapped"),
        pytest.param("leaked flag", "a flag has leaked: cudnn_benchmark", marks=pytest.mark.slow),
    ],
)
def test_what_makes_an_experiment_void_stops_it(
    processes: TrialProcesses, tmp_path: Path, mistake: str, shown: str
) -> None:
    kept = Kept()

    with pytest.raises(NotMeasuredError) as caught:
        _run(processes, tmp_path, _with(mistake), kept)

    assert shown in str(caught.value)
    assert [] == [trial for trial in kept.trials if trial.status == "ok"]


@pytest.mark.parametrize(
    ("mistake", "shown"),
    [
        ("sigmoid", "a sigmoid stands before a loss that takes logits at training.py:"),
        ("kept graph", "a loss is accumulated with its graph at training.py:"),
        ("half range", "float16 holds numbers up to 65504 at training.py:"),
    ],
)
def test_mistakes_that_run_are_reported(
    processes: TrialProcesses, tmp_path: Path, mistake: str, shown: str
) -> None:
    found = _trial(processes, tmp_path, "look", steps=8, mistake=mistake).fingerprint

    assert found is not None
    (found_mistake,) = found.mistakes
    assert shown in found_mistake


def test_a_number_that_is_not_finite_costs_no_times(processes: TrialProcesses, tmp_path: Path) -> None:
    found = _trial(processes, tmp_path, "time", returned=("accuracy",), steps=4, mistake="diverged")

    assert found.problem is None
    assert {"total_time", "step_time", "sample_time"} <= found.responses.keys()
    assert "accuracy" not in found.responses
    assert ("accuracy is nan, no finite number, and is left out",) == found.notes


def test_a_process_that_is_killed_ran_out_of_memory(processes: TrialProcesses, tmp_path: Path) -> None:
    problem = _trial(processes, tmp_path, "look", steps=8, mistake="died").problem

    assert problem is not None
    assert "oom" == problem.status


@pytest.mark.slow
def test_a_cell_that_fails_is_a_result(processes: TrialProcesses, tmp_path: Path) -> None:
    sizes = Factor(name="batch_size", levels=(4, 8))

    record, _ = _run(processes, tmp_path, replace(_with("out of memory", sizes), blocks=4))

    (failed,) = [trial for trial in record.trials if trial.status != "ok"]
    assert ("oom", "batch_size=8") == (failed.status, failed.variant)
    assert "no room for a batch of 8" in (failed.message or "")
    # Two blocks give its own mean and deviation, and more of them nothing of an effect.
    assert ["batch_size=4"] * 2 == [trial.variant for trial in record.trials if trial.status == "ok"]
    assert "no two variants that an effect compares are left" == record.stopped


@pytest.mark.parametrize("fails", [False, True])
def test_code_from_elsewhere_is_no_trial(processes: TrialProcesses, tmp_path: Path, *, fails: bool) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    for folder in (root, elsewhere):
        folder.mkdir()
        (folder / "helper.py").write_text("")
    detour = f"import sys\nsys.path.insert(0, {str(elsewhere)!r})\nimport helper\n"
    (root / "detour.py").write_text(f"{detour}def train(): {'1 / 0' if fails else 'pass'}\n")

    problem = _trial(processes, root, "time", target="detour:train").problem

    assert problem is not None
    assert f'"helper" was imported from {elsewhere}/helper.py' in problem.message


@pytest.mark.slow
def test_a_trial_that_takes_too_long_is_ended(processes: TrialProcesses, tmp_path: Path) -> None:
    with pytest.raises(NotMeasuredError, match="took longer than 3 s"):
        _run(processes, tmp_path, replace(EXPERIMENT, fixed={"steps": 10**9}, limit_s=3.0))


def test_a_budget_too_small_for_a_block_is_reported(processes: TrialProcesses, tmp_path: Path) -> None:
    kept = Kept()

    with pytest.raises(UsageError, match="too small for one block of 2 variants"):
        _run(processes, tmp_path, replace(EXPERIMENT, budget_s=0.1), kept)

    assert 2 == len(kept.fingerprints)


def test_a_refused_level_is_reported_before_anything_runs(processes: TrialProcesses, tmp_path: Path) -> None:
    kept = Kept()
    refused = Factor(name="batch_size", levels=(4, 0))

    with pytest.raises(UsageError, match="expected batch_size of at least 1, found 0"):
        _run(processes, tmp_path, replace(EXPERIMENT, factors=(refused,)), kept)

    assert ({}, []) == (kept.fingerprints, kept.trials)


def test_what_the_target_does_not_return_is_reported() -> None:
    found = returned_numbers({"recall": 0.5}, {"accuracy": "recall"})

    assert {"accuracy": 0.5} == found
    with pytest.raises(UsageError, match='was to return "recall", a number; found nothing of that name'):
        returned_numbers(object(), {"accuracy": "recall"})


def _experiment(*levels: Level, factor: str = "precision") -> Experiment:
    return Experiment(name="one", target="m:f", factors=(Factor(name=factor, levels=levels),))


def _print(half: dict[str, int], **settings: str) -> Fingerprint:
    return Fingerprint(operators=10, half=half, tensor_peak=1, settings=settings, steps=5)


@pytest.mark.parametrize(
    ("half", "level"),
    [({"bfloat16": 4}, "bf16"), ({"float16": 4}, "fp16"), ({"float16": 1}, "amp"), ({"bfloat16": 1}, True)],
)
def test_what_did_as_named_passes(half: dict[str, int], level: Level) -> None:
    experiment = _experiment("default", level)
    reference, mixed = (variant.name for variant in experiment.variants)

    assert [] == list(broken_promises(experiment, {reference: _print({}), mixed: _print(half)}))


@pytest.mark.parametrize(
    ("default", "mixed", "shown"),
    [
        ({}, {}, '"precision=bf16" ran no operator in half precision'),
        ({}, {"float16": 3}, '"precision=bf16" ran 3 operators in float16'),
        ({"bfloat16": 3}, {"bfloat16": 3}, '"precision=default" ran 3 operators in bfloat16'),
        ({"bfloat16": 3}, {}, "the labels are swapped"),
    ],
)
def test_what_did_not_is_named(default: dict[str, int], mixed: dict[str, int], shown: str) -> None:
    found = {"precision=default": _print(default), "precision=bf16": _print(mixed)}

    (problem,) = broken_promises(_experiment("default", "bf16"), found)

    assert shown in problem


def test_a_leaked_flag_is_named() -> None:
    settings = {
        "precision=default": {"cudnn_benchmark": "False", "threads": "2"},
        "precision=bf16": {"cudnn_benchmark": "True", "threads": "2"},
    }

    (problem,) = leaked_flags(_experiment("default", "bf16"), settings)

    assert 'cudnn_benchmark is False in "precision=default" and True in "precision=bf16"' in problem
    assert [] == list(leaked_flags(_experiment(False, True, factor="cudnn_benchmark"), settings))  # noqa: FBT003


def test_a_factor_of_something_else_promises_no_precision() -> None:
    experiment = _experiment("default", "mixed", factor="sampling")
    found = {variant.name: _print({"float16": 2}) for variant in experiment.variants}

    assert [] == list(broken_promises(experiment, found))


@pytest.mark.parametrize(
    ("level", "casts", "wrong"),
    [
        ("default", (), False),
        ("default", ("bfloat16",), True),
        ("bf16", ("bfloat16",), False),
        ("bf16", ("float16",), True),
        ("bf16", (), False),
        ("amp", ("float16",), False),
    ],
)
def test_a_timed_trial_is_watched_too(level: str, casts: tuple[str, ...], wrong: bool) -> None:  # noqa: FBT001
    wrong_cast = broken_autocast(Variant(levels={"precision": level}), casts)

    assert wrong == (wrong_cast is not None)


DESIGN = Experiment(
    name="one",
    target="m:f",
    factors=(Factor(name="a", levels=(1, 2)), Factor(name="b", levels=("x", "y", "z"))),
    blocks=60,
    seed=5,
)


def test_blocks_are_complete() -> None:
    for number, block in itertools.groupby(places(DESIGN), key=lambda place: place.block):
        found = list(block)
        assert {variant.name for variant in DESIGN.variants} == {place.variant.name for place in found}
        assert list(range(6)) == [place.order for place in found]
        assert 1 == len({place.seed for place in found}), number


def test_the_order_is_drawn() -> None:
    first = Counter(place.variant.name for place in places(DESIGN) if place.order == 0)

    assert 6 == len(first)
    assert max(first.values()) < 25
    assert list(places(DESIGN)) == list(places(DESIGN))
    assert list(places(DESIGN)) != list(places(replace(DESIGN, seed=6)))
