"""Plans and reports of calibration and the doctor follow from what was asked, rows and launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from synthetic import MACHINE, build_row

from perfkit.gating.aa_runs import calibration_of, finished_cases, judge_fitness, plan_cases
from perfkit.model import Row
from perfkit.model.calibration import Calibration, Condition, Fitness, Noise
from perfkit.model.comparisons import LaunchPair, Policy, Verdict
from perfkit.model.policies import CalibrationPolicy, Rehearsal, judged_policy

NAMES = ("b.py::test_a", "b.py::test_b")
POLICY = CalibrationPolicy(
    rules=Policy(alpha=0.01, family=2, looks=(10, 20)),
    margin=0.02,
    gating=True,
    wall_s=20.0,
    base="a" * 40,
    budget_s=60.0,
    mode="forked",
    as_is=False,
    rehearsal=Rehearsal(study="s", case=1),
)


def _gate(
    number: int,
    *,
    ratios: Mapping[str, float],
    sd: float = 0.005,
    slowed: tuple[str, float] | None = None,
    finished: bool = True,
    study: str = "s",
    launches: int = 20,
) -> Iterator[Row]:
    """Yield the rows of a gate of so many launches; ``ratios`` are the true ones by benchmark."""
    name_slowed, share = slowed or (None, None)
    policy = replace(
        POLICY,
        verdict="UNCHANGED" if finished else None,
        rehearsal=Rehearsal(study=study, case=number, plant=share, planted=name_slowed),
    )
    source = np.random.default_rng([number, 7])
    for name, ratio in ratios.items():
        for launch in range(launches):
            head = 0.01 * ratio * float(np.exp(source.normal(0, sd)))
            for side, seconds in (("base", 0.01), ("head", head)):
                yield build_row(
                    seconds, seconds, name=name, run=f"r{number}", launch=launch, policy=policy,
                    side="base" if side == "base" else "head", source="calibrate",
                )  # fmt: skip


def _study(*, gates: int = 6, sd: float = 0.005, ratio: float = 1.0, reading: float = 1.05) -> list[Row]:
    rows: list[Row] = []
    for number in range(1, gates + 1):
        rows += _gate(number, ratios=dict.fromkeys(NAMES, ratio), sd=sd)
    for number in range(gates + 1, 2 * gates + 1):
        name = NAMES[number % 2]
        rows += _gate(number, ratios={**dict.fromkeys(NAMES, 1.0), name: reading}, sd=sd, slowed=(name, 0.05))
    return rows


def _judged(rows: Sequence[Row], planned: int) -> Calibration:
    found = calibration_of(rows, study="s", planned=planned)
    assert found is not None
    return found


def test_a_good_gate_is_trusted() -> None:
    found = _judged(_study(), 12)

    assert (12, 12, 0) == (found.planned, found.gates, found.exit_code)
    assert (0, 6) == (found.accused.count, found.accused.of)
    assert (12, 12) == (found.unchanged.count, found.unchanged.of)
    (power,) = found.powers
    assert (6, 6, 0) == (power.found.count, power.found.of, power.others_accused)
    assert pytest.approx(0.05, abs=0.005) == power.median_reading
    assert pytest.approx(1 - 0.05 ** (1 / 6)) == found.accused.high


@pytest.mark.parametrize("reading", [-0.03, 0.1])
def test_an_injected_change_is_read_in_either_direction(reading: float) -> None:
    found = _judged(_study(sd=0.0, reading=1 + reading), 12)

    assert pytest.approx([reading]) == [power.median_reading for power in found.powers]


def test_a_gate_that_accuses_identical_code_is_not_trusted() -> None:
    found = _judged(_study(ratio=1.1), 12)

    assert (6, 1) == (found.accused.count, found.exit_code)


def test_what_does_not_gate_is_not_held_against_alpha() -> None:
    rows = [
        replace(row, policy=replace(judged_policy(row), gating=row.outcome.benchmark.name == NAMES[0]))
        for number in range(1, 7)
        for row in _gate(number, ratios={NAMES[0]: 1.0, NAMES[1]: 1.1})
    ]

    found = _judged(rows, 6)

    assert (0, 0) == (found.accused.count, found.exit_code)


@pytest.mark.parametrize(("open_ones", "code"), [(0, 0), (2, 0), (3, 3), (20, 3)])
def test_a_tenth_may_stay_open(open_ones: int, code: int) -> None:
    rows = [
        row
        for number in range(1, 11)
        for place, name in enumerate(NAMES, 2 * (number - 1))
        for row in _gate(number, ratios={name: 1.0}, sd=0.0, launches=5 if place < open_ones else 10)
    ]

    found = _judged(rows, 10)

    assert (open_ones, 20, code) == (found.undecided.count, found.undecided.of, found.exit_code)


def test_a_noisy_machine_leaves_too_much_open() -> None:
    found = _judged(_study(sd=0.05), 12)

    assert 3 == found.exit_code
    assert found.undecided.count > 6
    assert all(one.decidable is not None and one.decidable > 0.02 for one in found.benchmarks)


def _without_times(rows: Iterable[Row], verdict: Verdict) -> Iterator[Row]:
    """Yield rows of a benchmark that could not be compared, for a reason."""
    for row in rows:
        outcome = replace(row.outcome, status="error", values=())
        yield replace(row, outcome=outcome, policy=replace(judged_policy(row), verdict=verdict))


@pytest.mark.parametrize(("launches", "reaches"), [(0, False), (1, False), (2, True)])
def test_a_benchmark_that_hardly_ran_has_no_scatter_to_reckon_with(launches: int, *, reaches: bool) -> None:
    rows = [*_gate(1, ratios={NAMES[0]: 1.0}), *_gate(1, ratios={NAMES[1]: 1.0}, launches=launches)]
    rows += _without_times(_gate(1, ratios={NAMES[1]: 1.0}, launches=1), "FAILED")

    found = _judged(rows, 1)

    whole, failed = found.benchmarks
    assert whole.effect is not None
    assert (launches, None, 0) == (failed.launches, failed.seconds, failed.unchanged.count)
    assert [reaches, reaches] == [failed.effect is not None, failed.decidable is not None]


def test_a_gate_whose_only_benchmark_failed_is_one_of_the_study() -> None:
    failure, _ = _without_times(_gate(1, ratios={NAMES[0]: 1.0}, launches=1), "FAILED")

    found = _judged([failure], 1)

    assert (1, 20.0) == (found.gates, found.median_gate_s)
    assert (0, 1) == (found.unchanged.count, found.unchanged.of)


@pytest.mark.parametrize(
    ("verdict", "missed", "code"), [("FAILED", 1, 4), ("TIMEOUT", 1, 4), ("MISSING", 1, 4), ("SKIPPED", 0, 0)]
)
def test_what_could_not_be_measured_is_not_trusted(verdict: Verdict, missed: int, code: int) -> None:
    """However well the other gates went: nobody knows whether that benchmark would have been accused.

    What its own test skips was not to be measured.
    """
    rows = [*_study(reading=1.5), *_without_times(_gate(99, ratios={NAMES[0]: 1.0}, launches=1), verdict)]

    found = _judged(rows, 13)

    assert (missed, 0, code) == (found.unmeasured, found.accused.count, found.exit_code)


def test_gates_that_reach_no_look_find_nothing() -> None:
    found = _judged(list(_gate(1, ratios={NAMES[0]: 1.0}, launches=5)), 1)

    (one,) = found.benchmarks
    assert (5, None, None, 3) == (one.launches, one.effect, one.decidable, found.exit_code)


def test_only_finished_gates_of_the_study_count() -> None:
    alike = {NAMES[0]: 1.0}
    rows = [replace(row, partial=True) for row in _gate(8, ratios=alike)]
    rows += [build_row(0.01, name=NAMES[0]), *_gate(9, ratios=alike, finished=False)]
    rows += [*_gate(10, ratios=alike, study="other"), *_gate(11, ratios=alike, study="t"), *_study(gates=2)]

    found = calibration_of(rows, study="s", planned=4)

    assert {1, 2, 3, 4} == finished_cases(rows, "s")
    assert found is not None
    assert 4 == found.gates


def test_without_a_gate_there_is_nothing_to_state() -> None:
    assert calibration_of([], study="s", planned=4) is None


def test_injected_slowdowns_alone_are_no_calibration() -> None:
    rows = list(_gate(1, ratios={NAMES[0]: 1.05, NAMES[1]: 1.0}, slowed=(NAMES[0], 0.05)))

    found = _judged(rows, 2)

    assert 4 == found.exit_code


FITNESS_POLICY = Policy(alpha=0.01, family=6, looks=(10, 20, 40))
STEADY = Condition(name="governor", found="performance", state="good")


def _launches(sd: float, count: int) -> tuple[LaunchPair, ...]:
    ratios = np.exp(np.random.default_rng(5).normal(0, sd, count))
    return tuple(
        LaunchPair(launch=number, group=number // 4, base_s=(0.01,) * 5, head_s=(0.01 * ratio,) * 5)
        for number, ratio in enumerate(ratios)
    )


def _fitness(
    *sds: float, count: int = 200, seconds: float = 20, policy: Policy = FITNESS_POLICY, margin: float = 0.02
) -> Fitness:
    """Return the fitness of a machine on which benchmarks scatter by these deviations."""
    return judge_fitness(
        MACHINE,
        [STEADY],
        {f"b.py::test_{number}": _launches(sd, count) for number, sd in enumerate(sds)},
        launch_s=0.5,
        policy=policy,
        margin=margin,
        seconds_per_benchmark=seconds,
    )


def _noise(sd: float, *, seconds: float = 20, policy: Policy = FITNESS_POLICY) -> tuple[Noise, ...]:
    return _fitness(sd, seconds=seconds, policy=policy).noises


def test_noise_is_read_off_the_launches() -> None:
    (noise,) = _noise(0.01)

    assert pytest.approx(0.01, rel=0.1) == noise.launch_sd
    assert (200, 40) == (noise.measured, noise.launches)
    assert noise.half_width is not None
    assert noise.effect is not None
    assert 0.02 < noise.half_width + 0.02 < noise.effect < 0.04


@pytest.mark.parametrize(("seconds", "launches"), [(4, 0), (5, 10), (12, 20), (1000, 40)])
def test_the_budget_reaches_a_look(seconds: float, launches: int) -> None:
    (noise,) = _noise(0.01, seconds=seconds)

    assert launches == noise.launches
    assert (noise.half_width is None) == (launches == 0)


@pytest.mark.parametrize(("sd", "fit", "code"), [(0.01, True, 0), (0.1, False, 3)])
def test_a_machine_is_fit_where_identical_code_would_be_unchanged(sd: float, fit: bool, code: int) -> None:  # noqa: FBT001
    found = _fitness(sd)

    assert (fit, code) == (found.fit, found.exit_code)
    assert (STEADY,) == found.conditions


def test_an_interval_that_reaches_the_margin_does_not_fit() -> None:
    (noise,) = _noise(0.01)
    assert noise.half_width is not None

    assert _fitness(0.01, margin=noise.half_width * 1.001).fit
    assert not _fitness(0.01, margin=noise.half_width).fit


def test_what_launches_of_one_generation_share_widens_the_interval() -> None:
    (apart,) = _noise(0.01)
    (sharing,) = _noise(0.01, policy=replace(FITNESS_POLICY, shared_variance=1.0))

    assert apart.launch_sd == sharing.launch_sd
    assert apart.half_width is not None
    assert sharing.half_width is not None
    assert 1.5 * apart.half_width < sharing.half_width < 2.0 * apart.half_width


def test_too_few_launches_are_not_measured() -> None:
    assert [5] == [noise.measured for noise in _fitness(0.001, count=5).noises]
    found = _fitness(0.001, count=4)

    assert ((), False, 4) == (found.noises, found.fit, found.exit_code)


PLANNED = ("a", "b", "c")


def test_each_kind_has_its_number_and_each_benchmark_its_turn() -> None:
    cases = plan_cases(PLANNED, gates=7, slowdowns=(0.03, 0.05), seed=1)

    assert Counter({None: 7, 0.03: 7, 0.05: 7}) == Counter(case.slowdown for case in cases)
    for share in (0.03, 0.05):
        turns = Counter(case.benchmark for case in cases if case.slowdown == share)
        assert {2, 3} == set(turns.values())
    assert all((case.slowdown is None) == (case.benchmark is None) for case in cases)
    assert list(range(1, 22)) == [case.number for case in cases]


def test_the_order_is_drawn_from_the_seed() -> None:
    first, again, other = (plan_cases(PLANNED, gates=9, slowdowns=(0.05,), seed=seed) for seed in (1, 1, 2))

    assert first == again
    assert first != other
    assert [case.slowdown for case in first] != sorted((case.slowdown for case in first), key=str)
