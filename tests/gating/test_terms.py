"""On what terms two sides are compared follows from the command line, and else from the configuration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfkit.choices import FailOn, Inconclusive
from perfkit.config import Config, GateConfig, Project
from perfkit.gating.design import Terms, choose_method, gate_policy
from perfkit.gating.survey import Survey


@pytest.mark.parametrize(
    ("terms", "config", "expected"),
    [
        (Terms(), GateConfig(), ("margin", 0.0, "fail")),
        (Terms(fail_on="proven"), GateConfig(), ("proven", 0.005, "pass")),
        (Terms(), GateConfig(fail_on="proven", noise_floor="0.3%"), ("proven", 0.003, "pass")),
        (Terms(fail_on="margin"), GateConfig(fail_on="proven"), ("margin", 0.0, "fail")),
        (Terms(), GateConfig(inconclusive="go on"), ("margin", 0.0, "go on")),
        (Terms(inconclusive="pass"), GateConfig(inconclusive="go on"), ("margin", 0.0, "pass")),
        # A setting of what becomes of undecided benchmarks is obeyed, with proven slowdowns too.
        (Terms(fail_on="proven"), GateConfig(inconclusive="fail"), ("proven", 0.005, "fail")),
        (Terms(inconclusive="go on"), GateConfig(fail_on="proven"), ("proven", 0.005, "go on")),
    ],
)
def test_what_is_given_counts_before_what_is_configured(
    terms: Terms, config: GateConfig, expected: tuple[FailOn, float, Inconclusive]
) -> None:
    policy = terms.policy(config, family=3, served=True)

    assert expected == (policy.fail_on, policy.noise_floor, policy.inconclusive)
    assert (0.01, 3) == (policy.alpha, policy.family)


@pytest.mark.parametrize(
    ("of_environments", "timed", "decide"),
    [(False, True, True), (True, True, False), (True, False, True)],
)
def test_counts_of_different_versions_decide_only_where_nothing_is_timed(
    *, of_environments: bool, timed: bool, decide: bool
) -> None:
    surveyed = Survey(
        compared=(), findings=(), base_own=frozenset(), served=True, libraries=(), torch={}, notes=()
    )
    method = choose_method(
        Project(root=Path(), config=Config()),
        surveyed,
        Terms(),
        seed=0,
        timed=timed,
        counted=True,
        of_environments=of_environments,
    )

    assert decide == bool(method.counter_policy.gating)


def test_the_page_on_gates_names_the_looks() -> None:
    page = (Path(__file__).parents[2] / "docs/gate.md").read_text()

    (named,) = re.findall(r"After ((?:\d+, )+)… launches the gate looks", " ".join(page.split()))

    shown = tuple(int(one) for one in named.split(", ") if one)
    assert shown == gate_policy(alpha=0.01, family=1, served=True).looks[: len(shown)]
