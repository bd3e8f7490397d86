"""A time that did not follow the counts of its benchmark is reported in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from synthetic import build_comparison, build_count

from perfkit.gating.counter_verdicts import disagreements
from perfkit.model.comparisons import Comparison, ExactComparison

SLOWER = build_comparison("test_a", "REGRESSED", 1.09, 1.08, 1.1)
FASTER = build_comparison("test_a", "IMPROVED", 0.91, 0.9, 0.92)
SAME = build_comparison("test_a", "UNCHANGED", 1.0, 0.99, 1.01)
OPEN = build_comparison("test_a", "INCONCLUSIVE", 1.0, 0.9, 1.1)
WIDE = build_comparison("test_a", "UNCHANGED", 0.7, 0.7, 0.8, margin=0.5)
WIDEST = build_comparison("test_a", "UNCHANGED", 0.7, 0.4, 0.9, margin=0.7)
WIDE_UP = build_comparison("test_a", "UNCHANGED", 1.4, 1.2, 1.6, margin=0.7)


def _counts(**amounts: tuple[float | None, float | None]) -> list[ExactComparison]:
    return [build_count("test_a", metric, base, head) for metric, (base, head) in amounts.items()]


@pytest.mark.parametrize(
    ("found", "counts", "output"),
    [
        (
            SAME,
            _counts(operators=(120, 60)),
            "half of the operators (120 to 60), the same time: the time is spent elsewhere",
        ),
        (
            SAME,
            _counts(python_calls=(1000, 300), operators=(0, 0)),
            "70 % fewer Python calls (1,000 to 300), the same time: the time is spent elsewhere",
        ),
        (
            SAME,
            _counts(operators=(50, 100)),
            "twice the operators (50 to 100), the same time: what was added takes too little to show",
        ),
        (
            SLOWER,
            _counts(instructions=(10_000, 10_004), operators=(5, 5)),
            "the same counts, 9.0 % slower: the machine, a library or the cache, not more work",
        ),
        (
            SLOWER,
            _counts(operators=(5, 5), flops=(80, 80), syncs=(0, 0)),
            (
                "the same counts, 9.0 % slower: the machine, a library, the cache"
                " or plain Python between operators, not more operators"
            ),
        ),
        (
            FASTER,
            _counts(python_calls=(5, 5)),
            (
                "the same counts, 9.0 % faster: the machine, a library, the cache"
                " or a longer loop within a function, not fewer Python calls"
            ),
        ),
        (
            build_comparison("test_a", "REGRESSED", 3.14, 3.0, 3.3),
            _counts(instructions=(5, 5)),
            "the same counts, 3.1 times as slow: the machine, a library or the cache, not more work",
        ),
        (
            SLOWER,
            _counts(operators=(100, 50)),
            (
                "half of the operators (100 to 50), yet 9.0 % slower:"
                " each takes longer, or something else does"
            ),
        ),
        (
            FASTER,
            _counts(operators=(10, 35)),
            (
                "3.5 times the operators (10 to 35), yet 9.0 % faster:"
                " each takes less time, or something else does"
            ),
        ),
        (
            SAME,
            _counts(operators=(100, 50), python_calls=(1000, 1005)),
            "half of the operators (100 to 50), the same time: the time is spent elsewhere",
        ),
        (
            SAME,
            _counts(operators=(100, 200), python_calls=(1000, 995)),
            "twice the operators (100 to 200), the same time: what was added takes too little to show",
        ),
        (
            SAME,
            _counts(operators=(100, 0)),
            "100 % fewer operators (100 to 0), the same time: the time is spent elsewhere",
        ),
    ],
)
def test_a_time_that_did_not_follow_is_reported(
    found: Comparison, counts: Sequence[ExactComparison], output: str
) -> None:
    assert [(found.benchmark.name, output)] == [
        (one.benchmark, one.sentence) for one in disagreements([found], counts)
    ]


@pytest.mark.parametrize(
    ("found", "counts"),
    [
        pytest.param(SAME, _counts(operators=(100, 100)), id="nothing moved"),
        pytest.param(SAME, _counts(operators=(100, 90)), id="too little moved to show in the time"),
        pytest.param(SLOWER, _counts(operators=(100, 150)), id="more work, slower"),
        pytest.param(FASTER, _counts(operators=(100, 50)), id="less work, faster"),
        pytest.param(OPEN, _counts(operators=(100, 50)), id="the time is not decided"),
        pytest.param(WIDE, _counts(operators=(100, 50)), id="within a wide margin it may have followed"),
        pytest.param(SLOWER, _counts(operators=(5, 5), flops=(80, 90)), id="more in each operator"),
        pytest.param(SLOWER, _counts(operators=(5, 5), syncs=(0, 1)), id="a new sync"),
        pytest.param(SLOWER, _counts(flops=(80, 80)), id="nothing that stands for time"),
        pytest.param(SLOWER, _counts(operators=(0, 0)), id="nothing to count"),
        pytest.param(SLOWER, _counts(operators=(None, 5)), id="not known of base"),
        pytest.param(SLOWER, [build_count("test_a", "operators", 5, 5, exact=False)], id="not repeated"),
        pytest.param(SLOWER, [build_count("test_b", "operators", 5, 5)], id="another benchmark's"),
        pytest.param(SLOWER, [build_count("test_0", "operators", 5, 5)], id="an earlier one's"),
        pytest.param(SAME, _counts(operators=(100, 50), python_calls=(10, 20)), id="counts disagree"),
        pytest.param(SAME, _counts(operators=(100, 50), python_calls=(1000, 1006)), id="one of them grew"),
        pytest.param(SAME, _counts(operators=(100, 200), python_calls=(1000, 994)), id="one of them fell"),
        pytest.param(WIDE, _counts(operators=(100, 40)), id="as far as half-way"),
        pytest.param(WIDEST, _counts(operators=(100, 0)), id="it may have followed all the way"),
        pytest.param(WIDE_UP, _counts(operators=(100, 200)), id="within a wide margin above"),
        pytest.param(WIDE_UP, _counts(operators=(100, 220)), id="as far as half-way above"),
    ],
)
def test_nothing_is_reported_where_nothing_contradicts(
    found: Comparison, counts: Sequence[ExactComparison]
) -> None:
    assert [] == list(disagreements([found], counts))


def test_only_much_less_work_without_gain_is_worth_a_profile() -> None:
    found = {
        one.verdict: next(iter(disagreements([one], _counts(operators=(100, 50))))).elsewhere
        for one in (SAME, SLOWER)
    }

    assert {"UNCHANGED": True, "REGRESSED": False} == found
