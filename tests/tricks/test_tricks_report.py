"""Results of tricks are rendered for a terminal, as a document and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console
from synthetic import ENVIRONMENT, MACHINE

from perfkit.features.experiments.records import Level
from perfkit.features.tricks.catalogue.operators import IDENTICAL
from perfkit.features.tricks.records import Equivalence, TrickCase
from perfkit.features.tricks.report import sizes_chart, tricks_document, tricks_view
from perfkit.features.tricks.trick import Trick
from perfkit.features.tricks.verdict import TrickResult, TricksReport
from perfkit.model import Benchmark, Commit
from perfkit.model.comparisons import Comparison, Estimate, Policy, Verdict

SVG = "{http://www.w3.org/2000/svg}"
CODES = {"fused": "Adam(parameters, fused=True)", "last": "images.to(...)"}
SAME = Equivalence(equal=True, largest=0.0)


def _known(title: str, code: str = "fast()") -> Trick:
    return replace(
        IDENTICAL, title=title, what="It does less.", caveat="None | at all.", source="A page", code=code
    )


def _result(
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
    console = Console(width=width, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(tricks_view(report, CODES))
    return capture.get()


def _words(text: str) -> str:
    return " ".join(text.split())


def test_those_that_help_come_first_and_fit_80_columns() -> None:
    text = _terminal(
        _report(
            _result("REGRESSED", 1.5, trick="last", size=16),
            _result("IMPROVED", 0.8, size=64),
            left_out={"pinned": "needs CUDA"},
        )
    )

    assert text.index("fused[64]") < text.index("last[16]")
    assert "helps" in text
    assert "-20.0 %" in text
    assert "not tried: pinned: needs CUDA" in text
    assert max(map(len, text.splitlines())) <= 80


def test_sides_that_differ_have_no_time() -> None:
    report = _report(_result("IMPROVED", 0.5, size=64, same=Equivalence(equal=False, largest=3.0)))

    assert "-50.0 %" not in _terminal(report)
    assert "| not the same | - | - |" in tricks_document(report, {})


def test_a_size_at_which_the_answer_turns_is_reported() -> None:
    report = _report(_result("REGRESSED", 1.25, size=4), _result("IMPROVED", 0.8, size=64))

    output = "fused pays from about 16 rows (tried: 4 and 64)."
    assert output in _words(_terminal(report))
    document = tricks_document(report, {}, picture="sizes.svg")
    assert output in document
    assert "](sizes.svg)" in document


def test_a_loop_ends_in_what_to_change() -> None:
    report = _report(
        _result("IMPROVED", 0.9, trick="last", loop="train"),
        _result("IMPROVED", 0.8, loop="train"),
        _result("IMPROVED", 0.72, trick="fused+last", loop="train"),
        arguments={"epochs": 1},
    )
    descriptions = {"fused": _known("Fused", code=CODES["fused"]), "last": _known("Last", code=CODES["last"])}
    document = tricks_document(report, descriptions)

    for text in (_words(_terminal(report)), document):
        assert "To make train faster:" in text
        assert "1. fused: -20.0 % (-24.0 to -16.0 %), Adam(parameters, fused=True)" in text
        assert "2. last: -10.0 %" in text
        assert "fused and last together: -28.0 %" in text
        assert "it would be -28.0 %. Whether they change each other cannot be told" in text
    assert document.startswith("# Tricks on train\n")
    assert "epochs=1" in document


def test_a_loop_that_nothing_helps_is_reported() -> None:
    same = _result("UNCHANGED", 1.0, loop="train")
    open_one = _result("INCONCLUSIVE", 0.97, trick="last", loop="train")

    assert "Nothing of it makes train faster." in _terminal(_report(same))
    assert "of 1 a larger --budget could tell." in _words(_terminal(_report(same, open_one)))


def test_each_trick_is_explained_once() -> None:
    descriptions = {name: _known(name.title()) for name in ("fused", "last")}
    report = _report(
        _result("IMPROVED", 0.8, size=4), _result("IMPROVED", 0.7, size=64), left_out={"last": "needs CUDA"}
    )
    document = tricks_document(report, descriptions)

    assert ["### Fused", "### Last"] == [line for line in document.splitlines() if line.startswith("###")]
    assert r"Look out: None \| at all." in document
    assert "Written: `fast()`" in document


def test_sizes_are_a_picture() -> None:
    report = _report(
        _result("REGRESSED", 1.25, size=4),
        _result("IMPROVED", 0.8, size=64),
        _result("IMPROVED", 0.5, trick="last", size=16),
        _result("IMPROVED", 0.5, trick="loop", loop="train"),
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
        [_result("IMPROVED", 0.8, size=4)],
        [_result("IMPROVED", 0.8, loop="train")],
        [_result("FAILED", None, size=4), _result("IMPROVED", 0.8, size=8)],
    ],
)
def test_without_several_sizes_there_is_no_picture(results: list[TrickResult]) -> None:
    assert sizes_chart(_report(*results)) is None
    assert "![" not in tricks_document(_report(*results), {"fused": _known("Fused")})


def test_of_a_loop_only_what_it_could_use_is_explained() -> None:
    descriptions = {name: _known(name.title()) for name in ("fused", "last")}
    report = _report(_result("IMPROVED", 0.8, loop="train"), left_out={"last": "nothing that it changes"})
    document = tricks_document(report, descriptions)

    assert "- `last`: nothing that it changes" in document
    assert "### Fused" in document
    assert "### Last" not in document
