"""Results of tricks follow from their measurements, and are reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import pytest
from rendered import rendered
from synthetic import ENVIRONMENT, MACHINE

from perfkit.features.experiments.records import Level
from perfkit.features.tricks.catalogue.operators import IDENTICAL
from perfkit.features.tricks.report import (
    TrickResult,
    TricksReport,
    helping,
    interactions,
    size_crossings,
    sizes_chart,
    suggested,
    tricks_document,
    tricks_view,
)
from perfkit.features.tricks.trick import Equivalence, Trick, TrickCase
from perfkit.model import Benchmark, Commit, Metric
from perfkit.model.comparisons import Comparison, Estimate, ExactComparison, Policy, Verdict

SAME = Equivalence(equal=True, largest=0.0)


def _comparison(verdict: Verdict, ratio: float | None = None) -> Comparison:
    estimate = (
        Estimate(ratio=ratio, low=ratio, high=ratio, confidence=0.99, launches=10, launch_sd=0.01)
        if ratio
        else None
    )
    return Comparison(
        benchmark=Benchmark(name="one", version="1"), verdict=verdict, margin=0.02, estimate=estimate
    )


def _result(
    verdict: Verdict,
    ratio: float | None = None,
    *,
    name: str = "one",
    size: int = 1,
    same: Equivalence = SAME,
) -> TrickResult:
    case = TrickCase(trick=name, size=size, title=name, size_means="rows")
    return TrickResult(case=case, comparison=_comparison(verdict, ratio), equivalence=same)


@pytest.mark.parametrize(
    ("verdict", "answer"),
    [
        ("IMPROVED", "helps"),
        ("REGRESSED", "hurts"),
        ("UNCHANGED", "no difference"),
        ("INCONCLUSIVE", "cannot tell"),
        ("NOT REACHED", "cannot tell"),
        ("FAILED", "failed"),
        ("TIMEOUT", "failed"),
    ],
)
def test_each_verdict_is_an_answer(verdict: Verdict, answer: str) -> None:
    assert answer == _result(verdict).answer


def test_sides_that_differ_have_no_answer() -> None:
    assert "not the same" == _result("IMPROVED", 0.5, same=Equivalence(equal=False, largest=7.0)).answer
    assert "failed" == _result("IMPROVED", 0.5, same=Equivalence(equal=False, problem="broken")).answer


def test_where_the_answer_turns() -> None:
    results = [
        _result("REGRESSED", 2.0, size=4),
        _result("INCONCLUSIVE", 1.01, size=16),
        _result("IMPROVED", 0.5, size=64),
        _result("IMPROVED", 0.5, name="other", size=4),
        _result("IMPROVED", 0.4, name="other", size=64),
    ]

    (found,) = size_crossings(results)

    below, above, size, helps_above = found
    assert ("one", 4, 64, True) == (below.trick, below.size, above.size, helps_above)
    assert size == pytest.approx(16)


def _count(metric: str, base: float | None, head: float | None) -> ExactComparison:
    return ExactComparison(
        benchmark=Benchmark(name="one", version="1"),
        metric=Metric(name=metric, unit="B", exact=True),
        verdict="UNCHANGED",
        margin=0.05,
        gating=False,
        base=base,
        head=head,
    )


@pytest.mark.parametrize(
    ("counts", "moved"),
    [
        ([], None),
        ([_count("allocated", 7.0, 9.0)], None),
        ([_count("allocated", 7.0, 9.0), _count("peak", 100.0, 60.0)], -40.0),
        ([_count("peak", None, 60.0)], None),
        ([_count("peak", 100.0, None)], None),
    ],
)
def test_the_peak_is_reported_where_both_sides_have_one(
    counts: list[ExactComparison], moved: float | None
) -> None:
    assert moved == replace(_result("UNCHANGED", 1.0), exact=tuple(counts)).peak_moved


def _on_loop(
    verdict: Verdict, ratio: float, name: str, *, low: float | None = None, high: float | None = None
) -> TrickResult:
    estimate = Estimate(
        ratio=ratio, low=low or ratio, high=high or ratio, confidence=0.99, launches=10, launch_sd=0.01
    )
    found = replace(_comparison(verdict), estimate=estimate)
    return TrickResult(
        case=TrickCase(trick=name, loop="train", title=name), comparison=found, equivalence=SAME
    )


def test_only_what_helps_a_loop_is_suggested() -> None:
    results = [
        _on_loop("IMPROVED", 0.9, "b"),
        _on_loop("IMPROVED", 0.7, "a"),
        _on_loop("UNCHANGED", 1.0, "c"),
        _on_loop("IMPROVED", 0.6, "a+b"),
        _result("IMPROVED", 0.2, name="d"),
    ]

    assert ["a", "b"] == [one.case.trick for one in suggested(results)]
    tried = [(one.case, one.comparison) for one in results if "+" not in one.case.trick]
    assert ["a", "b"] == [case.trick for case in helping(tried)]


@pytest.mark.parametrize(("ratio", "verdict"), [(0.72, "UNCHANGED"), (0.8, "REGRESSED"), (0.6, "IMPROVED")])
def test_two_tricks_take_from_or_add_to_each_other(ratio: float, verdict: str) -> None:
    results = [
        _on_loop("IMPROVED", 0.8, "a"),
        _on_loop("IMPROVED", 0.9, "b"),
        _on_loop("IMPROVED", ratio, "a+b"),
    ]

    (found,) = interactions(results)

    assert pytest.approx((0.72, ratio / 0.72)) == (found.expected, found.low)
    assert verdict == found.verdict


def test_the_interval_of_an_interaction_is_made_of_all_three() -> None:
    results = [
        _on_loop("IMPROVED", 0.8, "a", low=0.7, high=0.9),
        _on_loop("IMPROVED", 0.9, "b", low=0.8, high=0.95),
        _on_loop("IMPROVED", 0.72, "a+b", low=0.7, high=0.75),
    ]

    (found,) = interactions(results)

    assert pytest.approx((0.7 / (0.9 * 0.95), 0.75 / (0.7 * 0.8))) == (found.low, found.high)
    assert "INCONCLUSIVE" == found.verdict


def test_tricks_without_a_time_of_their_own_have_no_interaction() -> None:
    both = _on_loop("IMPROVED", 0.72, "a+b")
    without = replace(_on_loop("IMPROVED", 0.9, "b"), comparison=_comparison("FAILED"))

    assert not interactions([both, _on_loop("IMPROVED", 0.8, "a")])
    assert not interactions([both, _on_loop("IMPROVED", 0.8, "a"), without])
    assert not interactions([_on_loop("IMPROVED", 0.8, name) for name in ("a", "b", "c", "a+b+c")])


SVG = "{http://www.w3.org/2000/svg}"
CODES = {"fused": "Adam(parameters, fused=True)", "last": "images.to(...)"}


def _known(title: str, code: str = "fast()") -> Trick:
    return replace(
        IDENTICAL, title=title, what="It does less.", caveat="None | at all.", source="A page", code=code
    )


def _with_size(
    verdict: Verdict,
    ratio: float | None,
    *,
    trick: str = "fused",
    size: int = 0,
    loop: str = "",
    same: Equivalence = SAME,
) -> TrickResult:
    estimate = (
        Estimate(
            ratio=ratio, low=0.95 * ratio, high=1.05 * ratio, confidence=0.99, launches=6, launch_sd=0.01
        )
        if ratio
        else None
    )
    return TrickResult(
        case=TrickCase(trick=trick, size=size, loop=loop, title=trick.title(), size_means="rows"),
        comparison=Comparison(
            benchmark=Benchmark(name=trick, version="1"), verdict=verdict, margin=0.02, estimate=estimate
        ),
        equivalence=same,
    )


def _report(
    *results: TrickResult,
    left_out: Mapping[str, str] | None = None,
    arguments: Mapping[str, Level] | None = None,
) -> TricksReport:
    return TricksReport(
        run_id="0199c2aa-0000-7000-8000-0123456789ab",
        recorded_at=datetime(2026, 11, 22, tzinfo=UTC),
        commit=Commit(sha="a" * 40),
        machine=MACHINE,
        environment=ENVIRONMENT,
        policy=Policy(alpha=0.01, family=3, looks=(6, 10)),
        wall_s=61.0,
        results=results,
        left_out=left_out or {},
        arguments=arguments or {},
    )


def _terminal(report: TricksReport, width: int = 80) -> str:
    return rendered(tricks_view(report, CODES), width)


def test_those_that_help_come_first_and_fit_80_columns() -> None:
    text = _terminal(
        _report(
            _with_size("REGRESSED", 1.5, trick="last", size=16),
            _with_size("IMPROVED", 0.8, size=64),
            left_out={"pinned": "needs CUDA"},
        )
    )

    assert text.index("fused[64]") < text.index("last[16]")
    assert "helps" in text
    assert "-20.0 %" in text
    assert "not tried: pinned: needs CUDA" in text
    assert max(map(len, text.splitlines())) <= 80


def test_sizes_are_a_picture() -> None:
    report = _report(
        _with_size("REGRESSED", 1.25, size=4),
        _with_size("IMPROVED", 0.8, size=64),
        _with_size("IMPROVED", 0.5, trick="last", size=16),
        _with_size("IMPROVED", 0.5, trick="loop", loop="train"),
    )
    picture = sizes_chart(report)

    assert picture is not None
    drawn = ET.fromstring(picture)  # noqa: S314 (perfkit's own)
    texts = [text.text or "" for text in drawn.iter(f"{SVG}text")]
    assert {"Fused", "4 rows", "64 rows", "+25.0 %", "-20.0 %"} <= set(texts)
    assert not {"Last", "Loop"} & set(texts)
    slower, faster = (float(circle.attrib["cx"]) for circle in drawn.iter(f"{SVG}circle"))
    assert slower > faster


@pytest.mark.parametrize(
    "results",
    [
        [_with_size("IMPROVED", 0.8, size=4)],
        [_with_size("IMPROVED", 0.8, loop="train")],
        [_with_size("FAILED", None, size=4), _with_size("IMPROVED", 0.8, size=8)],
    ],
)
def test_without_several_sizes_there_is_no_picture(results: list[TrickResult]) -> None:
    assert sizes_chart(_report(*results)) is None
    assert "![" not in tricks_document(_report(*results), {"fused": _known("Fused")})
