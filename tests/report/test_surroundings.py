"""What differs between two environments or machines is reported in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic import ENVIRONMENT, build_report

from perfkit.model.surroundings import FactChange
from perfkit.report.surroundings import change_words, difference_of_sides, options_of


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
