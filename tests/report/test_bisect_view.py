"""A bisection's answer is reported in a sentence, in the terminal and as markdown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rendered import rendered
from synthetic import ENVIRONMENT, MACHINE, START, build_count

from perfkit.model import WALL_TIME, Benchmark, Commit, Metric
from perfkit.model.bisection import (
    BisectionReport,
    FoundStep,
    LeftRange,
    Level,
    SearchState,
    SkippedCommit,
    Suspect,
)
from perfkit.model.comparisons import MovedCause
from perfkit.report.bisect import BisectLine, answer_sentence, bisection_markdown, bisection_view
from perfkit.report.markdown_table import escape

COMMITS = [Commit(sha=digit * 40, time=START, subject=f"Change {digit}") for digit in "abcd"]


def _suspect(commit: Commit, skipped: str | None = None) -> Suspect:
    return Suspect(commit=commit, author="A Tester", files=1, added=2, removed=3, skipped=skipped)


STEP = FoundStep(
    suspects=(_suspect(COMMITS[2]),),
    last_before=COMMITS[1],
    ratio=1.0521,
    low=1.0463,
    high=1.0584,
    probability=0.9912,
    before=Level(mean=0.001, sd=0.00002, launches=4),
    after=Level(mean=0.00105, sd=0.00003, launches=4),
)
REPORT = BisectionReport(
    recorded_at=START,
    good=COMMITS[0],
    bad=COMMITS[3],
    benchmark=Benchmark(name="benchmarks/bench_a.py::test_x[4]", version="v1"),
    metric=WALL_TIME,
    confidence=0.95,
    answer="found",
    why="the launches agree",
    steps=(STEP,),
    left=None,
    commits=3,
    measured=3,
    launches=12,
    earlier=4,
    skipped=(),
    runs=("run-1",),
    machine=MACHINE,
    environment=ENVIRONMENT,
    budget_s=600.0,
    wall_s=34.0,
    exit_code=0,
)
COUNTED = replace(
    REPORT,
    metric=Metric(name="syncs", unit="1", exact=True),
    steps=(
        replace(
            STEP,
            ratio=None,
            low=None,
            high=None,
            probability=1.0,
            counted=build_count(
                "test_x", "syncs", 0, 1, MovedCause(what="Tensor.item", place="a.py:3", base=0, head=1)
            ),
        ),
    ),
)
MANY = replace(
    REPORT,
    steps=(replace(STEP, suspects=(_suspect(COMMITS[1], "no module"), _suspect(COMMITS[2]))),),
    skipped=(SkippedCommit(commit=COMMITS[1], reason="no module"),),
)
FASTER = replace(REPORT, steps=(replace(STEP, ratio=0.9, low=0.88, high=0.92, probability=0.99999),))
UNDECIDED = replace(
    REPORT,
    answer="undecided",
    why="the budget is spent",
    steps=(),
    wall_s=601.0,
    left=LeftRange(last_before=COMMITS[0], bad=COMMITS[2], commits=2, probability=0.951),
)
UNCHANGED = replace(REPORT, answer="no change", why="both ends are alike", steps=())


def _shown(report: BisectionReport) -> str:
    return rendered(bisection_view(report), 100)


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (REPORT, "cccccccccc made test_x[4] 5.2 % slower (95 % interval 4.6 to 5.8 %), probability 0.991."),
        (FASTER, "cccccccccc made test_x[4] 10.0 % faster (95 % interval 8.0 to 12.0 %), probability 0.999."),
        (
            MANY,
            (
                "One of 2 commits, bbbbbbbbbb to cccccccccc, made test_x[4] 5.2 % slower (95 % interval"
                " 4.6 to 5.8 %), probability 0.991."
            ),
        ),
        (COUNTED, "cccccccccc changed the host-device syncs of test_x[4] from 0 to 1 (+1)."),
        (
            UNDECIDED,
            (
                "Undecided: the budget is spent; with probability 0.95 one of 2 commits after aaaaaaaaaa up"
                " to cccccccccc made a change. The same command goes on."
            ),
        ),
        (
            UNCHANGED,
            "No commit changed the time of test_x[4]: both ends are alike, aaaaaaaaaa and dddddddddd.",
        ),
    ],
)
def test_the_answer_is_a_sentence(report: BisectionReport, sentence: str) -> None:
    assert sentence == answer_sentence(report)
    assert " ".join(_shown(report).split()).startswith(sentence)
    assert f"\n\n{escape(sentence)}\n" in bisection_markdown(report)


def test_subjects_are_no_markup() -> None:
    good, bad = (replace(commit, subject="*<img src=x>* @ada") for commit in (COMMITS[0], COMMITS[3]))

    text = bisection_markdown(replace(REPORT, good=good, bad=bad))

    assert text.endswith(f'to {bad.sha[:10]} "{escape(bad.subject or "")}"\n')
    assert "<img" not in text.replace(r"\<img", "")
    assert "@ada" not in text


def test_each_pair_has_a_line_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with BisectLine() as line:
        line.begin([one.sha[:10] for one in COMMITS], "bisecting test_x: 3 commits")
        for launches in range(3):
            line.update(SearchState(base=0, head=3, launches=launches, left=3, left_s=60.0))
        line.update(SearchState(base=1, head=1, launches=0, left=1, left_s=50.0))

    assert [
        "bisecting test_x: 3 commits",
        "measuring aaaaaaaaaa and dddddddddd: 3 commits suspected, 60 s left",
        "measuring bbbbbbbbbb: 1 commit suspected, 50 s left",
    ] == capsys.readouterr().err.splitlines()
