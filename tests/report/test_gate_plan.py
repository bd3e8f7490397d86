"""A plan is reported in one plain sentence, then in a table, in the terminal and as markdown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rendered import rendered
from synthetic import MACHINE, START, build_comparison

from perfkit.model import Benchmark, Commit
from perfkit.model.comparisons import GatePlan, KnownFrom, PlannedBenchmark, Policy, Verdict
from perfkit.report.gate.plan import plan_markdown, plan_sentence, plan_view


def _benchmark(
    name: str,
    effect: float | None,
    *,
    gating: bool = True,
    known_from: KnownFrom = "its gates",
    launches: int = 60,
    decided: Verdict | None = None,
) -> PlannedBenchmark:
    return PlannedBenchmark(
        benchmark=Benchmark(name=f"benchmarks/bench_a.py::{name}", version="v1"),
        margin=0.02,
        gating=gating,
        launch_sd=0.0149,
        launch_s=0.3,
        known_from=known_from,
        gates=3 if known_from == "its gates" else 0,
        launches=launches,
        seconds=0.3 * launches,
        effect=effect,
        decided=decided,
    )


def _plan(*benchmarks: PlannedBenchmark, enough_s: float | None = None) -> GatePlan:
    return GatePlan(
        base=Commit(sha="a" * 40, time=START, subject="Change things"),
        head=Commit(sha="b" * 40, time=START, subject="Change | more things"),
        machine=MACHINE,
        policy=Policy(alpha=0.01, family=2, looks=(10, 60)),
        budget_s=600.0,
        set_up_s=4.2,
        unchanged_s=83.0,
        enough_s=enough_s,
        benchmarks=benchmarks,
        findings=(),
    )


def _shown(plan: GatePlan, columns: int = 80) -> str:
    return rendered(plan_view(plan), columns)


@pytest.mark.parametrize(
    ("benchmarks", "enough_s", "sentence"),
    [
        pytest.param(
            [_benchmark("test_a", 0.0311), _benchmark("test_b", 0.025)],
            None,
            "In 600 s this gate would find a slowdown of 3.2 % or more in each of 2 benchmarks,"
            " 19 times of 20.",
            id="the hardest counts, rounded up",
        ),
        pytest.param(
            [_benchmark("test_a", 0.032), _benchmark("test_b", 0.5, gating=False)],
            None,
            "In 600 s this gate would find a slowdown of 3.2 % or more in 1 benchmark, 19 times of 20.",
            id="what does not gate does not count",
        ),
        pytest.param(
            [_benchmark("test_a", 0.032), _benchmark("test_b", None, launches=0)],
            840.0,
            "In 600 s this gate would find a slowdown of 3.2 % or more in 1 benchmark, 19 times of 20,"
            " and would not reach 1 other (--budget 840 for all, or --select to measure fewer).",
            id="not reached",
        ),
        pytest.param(
            [_benchmark("test_a", None, launches=0)],
            840.0,
            "In 600 s this gate would decide none of 1 benchmark"
            " (--budget 840 for all, or --select to measure fewer).",
            id="none is reached",
        ),
        pytest.param(
            [_benchmark("test_a", 11.234)],
            None,
            "In 600 s this gate would find a slowdown of ×12.3 or more in 1 benchmark, 19 times of 20.",
            id="as a factor",
        ),
        pytest.param(
            [_benchmark("test_a", None, decided="UNCHANGED")],
            None,
            "In 600 s this gate would time nothing, since earlier gates have decided all of its benchmarks.",
            id="decided",
        ),
        pytest.param(
            [],
            None,
            "In 600 s this gate would time nothing, since no benchmark can be compared.",
            id="nothing to compare",
        ),
    ],
)
def test_one_sentence_states_what_would_be_found(
    benchmarks: list[PlannedBenchmark], enough_s: float | None, sentence: str
) -> None:
    plan = _plan(*benchmarks, enough_s=enough_s)

    assert sentence == plan_sentence(plan)
    assert " ".join(_shown(plan, 200).splitlines()[0].split()) == sentence
    assert plan_markdown(plan).splitlines()[2] == sentence


def test_what_is_not_timed_is_named() -> None:
    plan = _plan(_benchmark("test_a", 0.032), _benchmark("test_b", None, decided="REGRESSED", gating=False))
    plan = replace(plan, findings=(build_comparison("test_c", "NEW"),), notes=("a | note",))

    for text in (_shown(plan), plan_markdown(plan)):
        assert "NEW test_c: base has no such benchmark" in text
        assert "decided by earlier gates of this pair: test_b (REGRESSED)" in text
        assert "does not gate: test_b" in text
    assert r"- note: a \| note" in plan_markdown(plan)


def test_a_release_has_a_plan_of_its_own() -> None:
    plan = replace(_plan(_benchmark("test_a", 0.032)), against=replace(_plan(), release="v1.2"))

    for text in (_shown(plan, 200), plan_markdown(plan)):
        assert "In 600 s this gate would find" in text
        assert "In 600 s this gate against v1.2 would time nothing" in text
    assert "## perfkit gate: plan against v1.2" in plan_markdown(plan)
