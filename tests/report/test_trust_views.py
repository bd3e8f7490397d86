"""Results of doctor, calibration and comparison, and surroundings, are rendered for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType
from synthetic import ENVIRONMENT, MACHINE, build_comparison, build_report

from perfkit.errors import EXIT_NOT_MEASURED
from perfkit.model.calibration import (
    Calibration,
    Components,
    Condition,
    Fitness,
    Noise,
    Power,
    Share,
    Steadiness,
)
from perfkit.model.comparisons import ApartReport, Comparison, Policy, exit_code
from perfkit.model.surroundings import FactChange
from perfkit.report.calibration import calibration_view, doctor_view, offered_configuration
from perfkit.report.gate.terminal import compare_view
from perfkit.report.surroundings import change_words, difference_of_sides, options_of

POLICY = Policy(alpha=0.01, family=6, looks=(10, 20))
WIDTH = 80


def _text(view: RenderableType) -> str:
    console = Console(width=WIDTH, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(view, markup=False)
    text = capture.get()
    assert max(map(len, text.splitlines())) <= WIDTH
    return text


def _words(view: RenderableType) -> str:
    return " ".join(_text(view).split())


def _share(count: int, of: int) -> Share:
    return Share(count=count, of=of, low=0.1, high=0.2)


def _calibration(
    *, code: int = 0, decidable: Sequence[float | None] = (0.015,), accused: int = 0, failed: int = 0
) -> Calibration:
    return Calibration(
        planned=60,
        gates=40,
        policy=POLICY,
        margin=0.02,
        accused=_share(accused, 20),
        unchanged=_share(100, 120),
        undecided=_share(20, 120),
        unmeasured=failed,
        powers=(Power(plant=0.05, found=_share(18, 20), others_accused=1, median_reading=0.048),),
        benchmarks=tuple(
            Steadiness(
                benchmark=f"benchmarks/bench_{number}.py::test_{number}",
                seconds=0.004,
                unchanged=_share(18, 20),
                components=Components(preloaders=None, launches=0.011, rounds=0.04),
                launches=17.5,
                effect=None if limit is None else 0.031,
                decidable=limit,
            )
            for number, limit in enumerate(decidable)
        ),
        median_gate_s=61.2,
        exit_code=code,
    )


@pytest.mark.parametrize(
    ("code", "output"),
    [
        (0, "0 of 20 gates of identical code accused or praised it (at most 20.0 %, at 95 % confidence)"),
        (1, "NOT TO BE TRUSTED: 20 of 20 gates of identical code accused or praised it, more than"),
        (3, "TOO NOISY for a margin of 2 %: 17 % of the verdicts stayed undecided"),
        (4, "NOT MEASURED: 3 of 120 verdicts on identical code came of a benchmark that failed or took too"),
    ],
)
def test_a_calibration_ends_with_its_decision(code: int, output: str) -> None:
    failed = 3 if code == EXIT_NOT_MEASURED else 0
    words = _words(calibration_view(_calibration(code=code, accused=20 if code == 1 else 0, failed=failed)))

    assert output in words
    assert words.endswith(f"exit code {code}")
    assert ("identical code: not measured 3 of 120" in words) == bool(failed)


def test_a_calibration_reports_counts_with_bounds() -> None:
    words = _words(calibration_view(_calibration()))

    assert "40 of 60 gates" in words
    assert "injected +5 %: found, read as" in words
    assert "18 of 20 90 % >= 10.0 %" in words
    assert "accused in 1" in words
    assert "test_0 4.00 ms 17.5 - 1.1 % 4.0 % +3.1 %" in words


def test_margins_are_offered_where_the_given_one_is_too_narrow() -> None:
    offered = offered_configuration(_calibration(decidable=(0.015, 0.021, 0.9, None)))

    assert (
        '[[tool.perfkit.rules]]\nmatch = "benchmarks/bench_1.py::test_1"\nmargin = "3%"\n\n'
        '[[tool.perfkit.rules]]\nmatch = "benchmarks/bench_2.py::test_2"\ngate = false'
    ) == offered
    assert "" == offered_configuration(_calibration())


def test_offered_rules_can_be_pasted_from_a_narrow_terminal() -> None:
    (one,) = _calibration(decidable=(0.021,)).benchmarks
    name = f"benchmarks/bench_losses.py::test_of_a_long_name[{'-'.join('abcdefghij' * 4)}]"
    found = replace(_calibration(), benchmarks=(replace(one, benchmark=name),))
    console = Console(width=60)

    with console.capture() as capture:
        console.print(calibration_view(found), markup=False, highlight=False, crop=False)

    assert offered_configuration(found) in capture.get()


def _fitness(*, fit: bool, noises: int = 2) -> Fitness:
    noise = Noise(
        benchmark="bench_machine_check.py::test_python",
        measured=17,
        launch_sd=0.015,
        launch_s=0.3,
        launches=60,
        half_width=0.008,
        effect=0.031,
    )
    blind = Noise(
        benchmark="bench_machine_check.py::test_tensors",
        measured=17,
        launch_sd=0.015,
        launch_s=30.0,
        launches=0,
        half_width=None,
        effect=None,
    )
    return Fitness(
        machine=MACHINE,
        margin=0.02,
        policy=POLICY,
        seconds_per_benchmark=20,
        conditions=(
            Condition(name="load", found="3.1 over the last minute", state="bad", advice="stop the rest"),
            Condition(name="turbo", found="on", state="notable", advice="switch it off"),
            Condition(name="swap", found="unused", state="good"),
        ),
        noises=(noise, blind)[:noises],
        fit=fit,
        exit_code=0 if fit else 3,
    )


def test_the_doctor_states_what_it_found_and_what_helps() -> None:
    words = _words(doctor_view(_fitness(fit=False)))

    assert "load BAD 3.1 over the last minute" in words
    assert words.index("load: stop the rest") < words.index("turbo: switch it off")
    assert "test_python 17 1.5 % 60 ±0.8 % +3.1 %" in words
    assert "test_tensors 17 1.5 % too few - -" in words
    assert "UNFIT for a margin of 2 %: identical code would stay undecided; see load; exit code 3" in words


def test_a_fit_machine_is_reported_what_it_detects() -> None:
    words = _words(doctor_view(_fitness(fit=True, noises=1)))

    assert "FIT for a margin of 2 %: a slowdown of 3.1 % would be found 19 times of 20; exit code 0" in words


def _apart(*comparisons: Comparison) -> ApartReport:
    gate = build_report(*comparisons)
    return ApartReport(
        base=gate.base,
        head=gate.head,
        machine=MACHINE,
        environment=ENVIRONMENT,
        policy=POLICY,
        comparisons=comparisons,
        exit_code=exit_code(comparisons),
        notes=("left out, measured with uncommitted changes: 1 run",),
    )


def test_runs_that_state_nothing_are_not_called_unmeasured() -> None:
    few = build_comparison("test_a", "INCONCLUSIVE", message="too few runs to say anything")

    assert "nothing known yet)" in _words(compare_view(_apart(few)))


@pytest.mark.parametrize(
    ("fact", "before", "after", "shown"),
    [
        ("torch", "2.12.1", "2.13.0", "torch 2.12.1 became 2.13.0"),
        ("package numpy", "2.4.0", "absent", "numpy 2.4.0 is not there any more"),
        ("package numpy", "absent", "2.4.0", "numpy 2.4.0 came in"),
        ("governor", None, "powersave", "CPU governor is powersave in one and not known in the other"),
        ("gpus", "", "H100", "GPUs none became H100"),
        ("OMP_NUM_THREADS", "1", "2", "OMP_NUM_THREADS 1 became 2"),
        ("gpu_driver", "550", "570", "driver of the GPUs 550 became 570"),
        ("gpu0_sm_mhz_before", "1980", "1410", "GPU 0: clock in MHz, before 1980 became 1410"),
        ("gpu10_compute_mode", "default", "prohibited", "GPU 10: compute mode default became prohibited"),
    ],
)
def test_a_change_is_a_sentence(fact: str, before: str | None, after: str | None, shown: str) -> None:
    change = FactChange(of="environment", fact=fact, before=before, after=after, weight="forbids")
    assert shown == change_words(change)


def test_a_report_reports_how_its_sides_differ() -> None:
    report = build_report()
    packages = {f"package p{number}": "absent" for number in range(5)}
    base = replace(ENVIRONMENT, facts={**ENVIRONMENT.facts, **packages, "package x": "1"})
    head = replace(ENVIRONMENT, facts={**ENVIRONMENT.facts, **dict.fromkeys(packages, "3"), "package x": "2"})
    assert None is difference_of_sides(report)
    alike = replace(report, base_environment=report.environment)
    assert "environments  alike on both sides" == difference_of_sides(alike)
    differing = replace(report, base_environment=base, environment=head)
    shown = "environments  x 1 became 2; only head has p0, p1, p2 and 2 more"
    assert shown == difference_of_sides(differing)


def test_what_was_asked_for_can_be_typed_again() -> None:
    expected = ["--base-with", "a==1", "--base-with", "b", "--head-with", "c"]
    assert expected == options_of({"head": ("c",), "base": ("a==1", "b")})
