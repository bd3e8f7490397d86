"""Results of doctor, calibration and comparison, and surroundings, are rendered for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from rendered import check_golden
from rich.console import Console, RenderableType
from synthetic import MACHINE

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
from perfkit.model.comparisons import Policy
from perfkit.model.surroundings import FactChange
from perfkit.report.calibration import calibration_view, doctor_view, offered_configuration
from perfkit.report.surroundings import change_words, options_of

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


def test_what_was_asked_for_can_be_typed_again() -> None:
    expected = ["--base-with", "a==1", "--base-with", "b", "--head-with", "c"]
    assert expected == options_of({"head": ("c",), "base": ("a==1", "b")})


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


FACTS: tuple[tuple[str, str | None, str | None], ...] = (
    ("torch", "2.12.1", "2.13.0"),
    ("package numpy", "2.4.0", "absent"),
    ("package numpy", "absent", "2.4.0"),
    ("governor", None, "powersave"),
    ("gpus", "", "H100"),
    ("OMP_NUM_THREADS", "1", "2"),
    ("gpu_driver", "550", "570"),
    ("gpu0_sm_mhz_before", "1980", "1410"),
    ("gpu10_compute_mode", "default", "prohibited"),
)


def test_what_is_reported_of_a_machine_is_worded_as_it_was() -> None:
    changes = (
        FactChange(of="environment", fact=fact, before=before, after=after, weight="forbids")
        for fact, before, after in FACTS
    )
    check_golden(
        "machines",
        _text(doctor_view(_fitness(fit=False))),
        _text(doctor_view(_fitness(fit=True, noises=1))),
        _text(calibration_view(_calibration())),
        "\n".join(map(change_words, changes)),
    )
