"""Counters are judged as more, less or the same, with their causes and where times disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from synthetic import build_comparison, build_count

from perfkit.agent.counters.model import INSTRUCTIONS, NO_TORCH, PEAK_MEMORY, TRACKED, Cause, Count, Counts
from perfkit.gating.accept import mark, unused_notes
from perfkit.gating.counter_verdicts import (
    CounterPolicy,
    compare_count,
    compare_counts,
    disagreements,
    numbers_that_decide,
)
from perfkit.gating.counters import left_out
from perfkit.gating.rules import ComparedBenchmark
from perfkit.model import Benchmark, Metric
from perfkit.model.comparisons import Acceptance, Comparison, ExactComparison, MovedCause, exit_code
from perfkit.model.counters import moved_counts, repeated

STEP = Benchmark(name="train", version="v")
POLICY = CounterPolicy(gating=("syncs", "operators"), tolerance=0.05)


def counted(metric: str, *values: float, causes: tuple[Cause, ...] = ()) -> Count:
    """Return a count of two iterations, or of so many."""
    return Count(metric=metric, unit="1", values=values, causes=causes)


def counts(*found: Count, not_counted: Mapping[str, str] | None = None) -> Counts:
    return Counts(counts=found, not_counted=not_counted or {})


def compared(base: Count, head: Count, *, training: bool = True) -> ExactComparison:
    (one,) = compare_counts(STEP, counts(base), counts(head), POLICY, training=training, gating=True)
    return one


def test_a_count_that_decides_and_had_no_time_stays_open() -> None:
    one = ComparedBenchmark(benchmark=STEP, margin=0.02, gating=True, limit_s=30.0)
    found = left_out([one], {STEP.name}, POLICY)
    without = left_out([one], (), POLICY)

    assert (3, "not compared") == (exit_code(found.compared(POLICY)), found.results[STEP.name].result)
    assert ((), 1, 1) == (without.compared(POLICY), len(without.notes), len(without.results))
    assert not left_out([], (), POLICY).notes


@pytest.mark.parametrize(
    ("head", "verdict"),
    [(100, "UNCHANGED"), (105, "UNCHANGED"), (106, "REGRESSED"), (95, "UNCHANGED"), (94, "IMPROVED")],
)
def test_growth_beyond_the_tolerance_decides(head: float, verdict: str) -> None:
    one = compared(counted("operators", 100, 100), counted("operators", head, head))

    assert (verdict, True, 0.05) == (one.verdict, one.gating, one.margin)
    assert (1 if verdict == "REGRESSED" else 0) == exit_code([one])


def test_one_new_sync_in_a_training_step_decides() -> None:
    step = compared(counted("syncs", 30, 30), counted("syncs", 31, 31))
    benchmark = compared(counted("syncs", 30, 30), counted("syncs", 31, 31), training=False)

    assert [("REGRESSED", True), ("REGRESSED", False)] == [
        (one.verdict, one.gating) for one in (step, benchmark)
    ]
    assert [1, 4] == [exit_code([one]) for one in (step, benchmark)]


@pytest.mark.parametrize(
    ("metric", "decides"), [("operators", False), ("allocated", False), ("peak", True), ("syncs", True)]
)
def test_more_work_does_not_outweigh_a_proven_gain(metric: str, *, decides: bool) -> None:
    policy = CounterPolicy(gating=("syncs", "operators", "allocated", "peak"), tolerance=0.05)
    base, head = (counts(counted(metric, number, number)) for number in (100, 120))

    (one,) = compare_counts(STEP, base, head, policy, training=True, gating=True, faster=True)

    assert ("REGRESSED", decides) == (one.verdict, one.gating)


@pytest.mark.parametrize("trained", [("base", "head"), ("base",), ("head",)])
def test_one_new_sync_in_a_benchmark_that_trains_decides(trained: tuple[str, ...]) -> None:
    base, head = (
        replace(counts(counted("syncs", number, number)), training=side in trained)
        for side, number in (("base", 30), ("head", 31))
    )
    (one,) = compare_counts(STEP, base, head, POLICY, training=False, gating=True)

    assert ("REGRESSED", True) == (one.verdict, one.gating)


def _bytes(metric: str, mib: float) -> Counts:
    return counts(Count(metric=metric, unit="B", values=(mib * (1 << 20),) * 2, causes=()))


@pytest.mark.parametrize(
    ("training", "faster", "base_mib", "head_mib", "verdict"),
    [
        (False, False, 1.0, 1.9, "UNCHANGED"),
        (False, False, 1.0, 2.1, "REGRESSED"),
        (False, False, 100.0, 104.0, "UNCHANGED"),
        (False, True, 1.0, 10.9, "UNCHANGED"),
        (False, True, 1.0, 11.1, "REGRESSED"),
        (True, False, 10.0, 25.0, "UNCHANGED"),
        (True, False, 10.0, 27.0, "REGRESSED"),
        (True, True, 10.0, 169.0, "UNCHANGED"),
        (True, True, 10.0, 171.0, "REGRESSED"),
    ],
)
def test_bytes_decide_beyond_a_floor(
    verdict: str, base_mib: float, head_mib: float, *, training: bool, faster: bool
) -> None:
    policy = CounterPolicy(gating=("peak",), tolerance=0.05)
    base, head = (_bytes("peak", mib) for mib in (base_mib, head_mib))

    (one,) = compare_counts(STEP, base, head, policy, training=training, gating=True, faster=faster)

    assert (verdict, True) == (one.verdict, one.gating)
    again = compare_count(STEP, *base.counts, *head.counts, margin=one.margin, gating=True)
    assert verdict == again.verdict, "its row holds the margin by which it is judged anew"


@pytest.mark.parametrize(
    ("base", "head", "verdict"),
    [
        ((0, 0), (255, 300), "UNCHANGED"),
        ((0, 0), (256, 300), "REGRESSED"),
        ((0, 0), (4096, 4104, 0, 0), "UNCHANGED"),
        ((4096, 4104), (4100, 4096), "UNCHANGED"),
        ((100_000, 100_000), (101_000, 101_000), "UNCHANGED"),
        ((4096, 4096), (0, 24), "IMPROVED"),
    ],
)
def test_what_is_kept_decides_from_256_bytes_on(
    base: tuple[int, ...], head: tuple[int, ...], verdict: str
) -> None:
    old, new = (Count(metric="kept", unit="B", values=values, causes=()) for values in (base, head))
    policy = replace(POLICY, gating=("kept",))

    (one,) = compare_counts(STEP, counts(old), counts(new), policy, training=True, gating=True)

    assert (verdict, True) == (one.verdict, one.gating)
    assert verdict == compare_count(STEP, old, new, margin=one.margin, gating=True).verdict
    # There may be no time for more calls on one side.
    (lost,) = compare_counts(STEP, counts(old), counts(), policy, training=True, gating=True)
    assert ("INCONCLUSIVE", False) == (lost.verdict, lost.gating)


@pytest.mark.parametrize(
    ("metric", "base", "moved", "verdict"),
    [
        ("import_time", 0.1, (0.06,) * 5, "REGRESSED"),
        ("import_time", 0.1, (0.06, 0.06, 0.01, 0.06, 0.06), "REGRESSED"),
        ("import_time", 0.1, (0.06, 0.01, 0.01, 0.06, 0.06), "UNCHANGED"),
        ("import_time", 0.1, (0.06,) * 2, "UNCHANGED"),
        ("import_time", 0.1, (0.04,) * 5, "UNCHANGED"),
        ("import_time", 2.0, (0.06,) * 5, "UNCHANGED"),
        ("peak_resident", 5e7, (2e7,) * 4, "REGRESSED"),
        ("peak_resident", 5e7, (1e7,) * 4, "UNCHANGED"),
        ("peak_resident", 1e9, (2e7,) * 4, "UNCHANGED"),
    ],
)
def test_what_is_measured_in_pairs_decides_beyond_a_floor_and_the_tolerance(
    metric: str, base: float, moved: tuple[float, ...], verdict: str
) -> None:
    old = Count(metric=metric, unit="s", values=(base,) * len(moved), causes=())
    new = replace(old, values=tuple(base + one for one in moved))
    policy = replace(POLICY, gating=(metric,))

    (one,) = compare_counts(STEP, counts(old), counts(new), policy, training=False, gating=True)

    assert (verdict, True) == (one.verdict, one.gating)
    assert verdict == compare_count(STEP, old, new, margin=one.margin, gating=True).verdict


@pytest.mark.parametrize(("head_mib", "decides"), [(0.5, False), (1.5, True)])
def test_bytes_from_nothing_decide_beyond_the_same_floor(head_mib: float, *, decides: bool) -> None:
    policy = CounterPolicy(gating=("peak",), tolerance=0.05)

    (one,) = compare_counts(
        STEP, _bytes("peak", 0.0), _bytes("peak", head_mib), policy, training=False, gating=True
    )

    assert ("REGRESSED", decides) == (one.verdict, one.gating)


@pytest.mark.parametrize(
    ("base", "head", "found"),
    [
        ((1, 1), (7, 7), ("REGRESSED", True)),
        ((40, 40), (41, 41), ("REGRESSED", True)),
        ((1, 1), (2, 3), ("REGRESSED", True)),
        ((2, 3), (3, 4), ("INCONCLUSIVE", False)),
        ((7, 7), (1, 1), ("IMPROVED", True)),
    ],
)
def test_more_compiled_graphs_decide(
    base: tuple[int, int], head: tuple[int, int], found: tuple[str, bool]
) -> None:
    policy = CounterPolicy(gating=("graphs",), tolerance=0.05)
    one = compare_counts(
        STEP,
        counts(counted("graphs", *base)),
        counts(counted("graphs", *head)),
        policy,
        training=False,
        gating=True,
    )

    assert [found] == [(count.verdict, count.gating) for count in one]


@pytest.mark.parametrize(
    ("timed", "operators", "decides"),
    [(False, None, True), (False, 0, True), (False, 3, False), (True, None, False)],
)
def test_python_calls_decide_where_nothing_is_timed_and_no_torch_used(
    operators: int | None, *, timed: bool, decides: bool
) -> None:
    policy = CounterPolicy(gating=("operators",), tolerance=0.05, timed=timed)
    others = () if operators is None else (counted("operators", operators, operators),)
    missing = {"operators": NO_TORCH} if operators is None else {}
    base, head = (
        counts(counted("python_calls", number, number), *others, not_counted=missing) for number in (10, 20)
    )

    found = compare_counts(STEP, base, head, policy, training=False, gating=True)

    assert [decides] == [one.gating for one in found if one.metric.name == "python_calls"]


LOST = counts(not_counted={"operators": "compiled"})


def lost(base: Count, *, head: Counts = LOST, gating: bool = True) -> ExactComparison:
    (one,) = compare_counts(STEP, counts(base), head, POLICY, training=False, gating=gating)
    return one


@pytest.mark.parametrize(
    ("head", "message"), [(LOST, "not counted on head: compiled"), (counts(), "not counted on head")]
)
def test_what_decides_and_head_could_not_count_is_not_measured(head: Counts, message: str) -> None:
    one = lost(counted("operators", 7, 7), head=head)

    assert ("MISSING", True, message) == (one.verdict, one.gating, one.message)
    assert (7, None) == (one.base, one.head)
    assert 4 == exit_code([one])


@pytest.mark.parametrize(
    ("base", "gating"),
    [(counted("flops", 7, 7), True), (counted("operators", 7, 7), False), (counted("operators", 7, 8), True)],
)
def test_what_would_not_have_decided_is_not_missed(base: Count, *, gating: bool) -> None:
    one = lost(base, head=counts(), gating=gating)

    assert ("INCONCLUSIVE", False) == (one.verdict, one.gating)
    # By itself it would be all of a gate in which nothing decides.
    assert 0 == exit_code([one, compared(counted("operators", 7, 7), counted("operators", 7, 7))])


def cause(what: str, place: str, amount: float, text: str = "") -> Cause:
    """Return a cause whose line reads like its own number, unless a text is given."""
    return Cause(what=what, place=place, amount=amount, text=text or place)


def test_what_moved_is_behind_it_with_its_line() -> None:
    one = compared(
        counted(
            "operators",
            30,
            30,
            causes=(
                cause("aten::mm", "net.py:10", 20, "return x @ w"),
                cause("aten::add", "net.py:11", 10, "return x + b"),
            ),
        ),
        counted(
            "operators",
            235,
            235,
            causes=(
                cause("aten::item", "losses.py:41", 200, "value.item()"),
                cause("aten::mm", "net.py:15", 20, "return x @ w"),
                cause("aten::add", "net.py:16", 15, "return x + b"),
            ),
        ),
    )

    assert (
        MovedCause(what="aten::item", place="losses.py:41", base=0, head=200),
        MovedCause(what="aten::add", place="net.py:16", base=10, head=15),
    ) == one.causes


def test_an_edited_line_is_one_line() -> None:
    one = compared(
        counted("operators", 3, 3, causes=(cause("a", "f.py:3", 1), cause("a", "f.py:9", 2))),
        counted("operators", 7, 7, causes=(cause("a", "f.py:10", 4), cause("a", "f.py:4", 3))),
    )

    assert {
        MovedCause(what="a", place="f.py:4", base=1, head=3),
        MovedCause(what="a", place="f.py:10", base=2, head=4),
    } == set(one.causes)


REGRESSED = compared(counted("operators", 100, 100), counted("operators", 200, 200))


def acceptance(
    counts: Mapping[str, float] | None, *, benchmark: str = "train", ratio: float | None = None
) -> Acceptance:
    return Acceptance(
        benchmark=benchmark, reason="why", commit="c" * 40, verdict="REGRESSED", counts=counts, ratio=ratio
    )


@pytest.mark.parametrize(
    ("counts", "covered"),
    [
        (None, True),
        ({"operators": 200.0}, True),
        ({"operators": 199.0}, False),
        ({"syncs": 900.0}, False),
        ({}, False),
    ],
)
def test_an_acceptance_covers_the_counts_it_names(counts: dict[str, float] | None, *, covered: bool) -> None:
    (found,) = mark([REGRESSED], [acceptance(counts)])

    assert covered == (found.accepted is not None)
    assert (0 if covered else 1) == exit_code([found])
    assert (0 if covered else 1) == len(unused_notes([], [acceptance(counts)], [REGRESSED]))


@pytest.mark.parametrize(
    ("word", "covered"),
    [
        (replace(acceptance({}), verdict="MISSING", uncounted=("operators",)), True),
        (replace(acceptance({}), verdict="REGRESSED", uncounted=("operators",)), True),
        (replace(acceptance({}), verdict="MISSING", uncounted=("syncs",)), False),
        (acceptance({"operators": 900.0}), False),
        (replace(acceptance(None), verdict=None), True),
        (acceptance(None), False),
    ],
)
def test_what_head_could_not_count_passes_where_that_was_accepted(word: Acceptance, *, covered: bool) -> None:
    missing = lost(counted("operators", 7, 7))
    (found,) = mark([missing], [word])

    assert covered == (found.accepted is not None)
    assert (0 if covered else 4) == exit_code([found])


def moved(
    base: float,
    head: float,
    *,
    metric: str = "operators",
    unit: str = "1",
    exact: bool = False,
    margin: float = 0.0,
) -> ExactComparison:
    """Return a count that moved, and that did not repeat unless it is ``exact``."""
    return ExactComparison(
        benchmark=STEP,
        metric=Metric(name=metric, unit=unit, exact=exact),
        verdict="REGRESSED" if head > base else "IMPROVED",
        margin=margin,
        gating=True,
        base=base,
        head=head,
    )


@pytest.mark.parametrize(
    ("shown", "one"),
    [
        (True, moved(100, 106)),
        (False, moved(100, 104)),
        (True, moved(100, 94)),
        (False, moved(100, 96)),
        (False, moved(100, 109, margin=0.10)),
        (True, moved(100, 111, margin=0.10)),
        (False, moved(64, 66, margin=0.03125)),
        (False, moved(64, 80, margin=0.25)),
        # From nothing: no share, but more than a few bytes.
        (True, moved(0, 1)),
        (False, moved(0, (16 << 20) - 1, unit="B")),
        (True, moved(0, 16 << 20, unit="B")),
        (False, moved(100, 200, unit="B")),
        (True, moved(16 << 20, 32 << 20, unit="B")),
        (True, moved(32 << 20, 16 << 20, unit="B")),
        (True, moved(64 << 20, 96 << 20, unit="B")),
        (False, moved(20 << 20, 22 << 20, unit="B")),
        (True, moved(16 << 20, 0, unit="B")),
        (False, moved((16 << 20) - 1, 0, unit="B")),
        # To the digit, each difference is reported, but for instructions.
        (True, moved(1000000, 1000001, exact=True)),
        (True, moved(1000000, 1000001, exact=True, metric="flops")),
        (False, moved(1000000, 1000001, exact=True, metric=INSTRUCTIONS)),
        (True, moved(0, 1, exact=True, metric=INSTRUCTIONS)),
    ],
)
def test_what_is_not_exact_is_reported_where_it_moved_by_much(one: ExactComparison, *, shown: bool) -> None:
    assert shown == bool(moved_counts([one]))


def test_a_number_decides_by_the_benchmarks_margin_all_the_policy_names() -> None:
    base, head = (counts(counted("flops", value, value)) for value in (100, 103))

    def found(margin: float | None, *, gating: bool = True) -> tuple[str, bool, float]:
        (one,) = compare_counts(STEP, base, head, POLICY, training=False, gating=gating, margin=margin)
        return one.verdict, one.gating, one.margin

    assert ("UNCHANGED", False, 0.05) == found(None)
    assert ("REGRESSED", True, 0.02) == found(0.02)
    assert ("REGRESSED", True, 0.0) == found(0.0)
    assert ("REGRESSED", False, 0.02) == found(0.02, gating=False)


def instructions(*values: float) -> Count:
    return Count(metric=INSTRUCTIONS, unit=INSTRUCTIONS, values=values, causes=())


def compared_instructions(
    base: Count, head: Count, *, gating: tuple[str, ...] = ("operators",)
) -> ExactComparison:
    old, new = (Counts(counts=(count,), not_counted={}) for count in (base, head))
    policy = CounterPolicy(gating=gating, tolerance=0.05)
    benchmark = Benchmark(name="test_it", version="v")
    (one,) = compare_counts(benchmark, old, new, policy, training=False, gating=True)
    return one


def test_turns_within_half_a_percent_repeat() -> None:
    assert [True, True, False, False] == [
        repeated(count)
        for count in (
            instructions(1000, 1000),
            instructions(1000, 1004.9),
            instructions(1000, 1006),
            instructions(1000),
        )
    ]


def test_instructions_decide_where_they_are_named() -> None:
    grown = instructions(1e6, 1e6), instructions(1.06e6, 1.06e6)

    assert ("REGRESSED", False) == (
        compared_instructions(*grown).verdict,
        compared_instructions(*grown).gating,
    )
    assert compared_instructions(*grown, gating=(INSTRUCTIONS,)).gating


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
            "as many instructions as before, 9.0 % slower: the machine, a library or the cache",
        ),
        (
            SLOWER,
            _counts(operators=(5, 5), flops=(80, 80), syncs=(0, 0)),
            (
                "as many operators as before, 9.0 % slower: the machine, a library, the cache"
                " or plain Python between operators"
            ),
        ),
        (
            FASTER,
            _counts(python_calls=(5, 5)),
            (
                "as many Python calls as before, 9.0 % faster: the machine, a library, the cache"
                " or a longer loop within a function"
            ),
        ),
        (
            build_comparison("test_a", "REGRESSED", 3.14, 3.0, 3.3),
            _counts(instructions=(5, 5)),
            "as many instructions as before, 3.1 times as slow: the machine, a library or the cache",
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


BENCHMARK = Benchmark(name="benchmarks/a.py::peakmem_a", version="1")


@pytest.mark.parametrize(
    ("base", "head", "verdict"),
    [
        ((100, 101, 102), (105, 106, 107), "REGRESSED"),
        ((105, 106, 107), (100, 101, 102), "IMPROVED"),
        ((100, 101, 100), (101, 100, 101), "UNCHANGED"),
        ((100, 110, 120), (115, 125, 135), "INCONCLUSIVE"),
        ((-5, -5, -5), (-5, -5, -5), "UNCHANGED"),
        ((-5, -5, -5), (-4, -4, -4), "REGRESSED"),
        ((0, 0, 0), (0, 0, 0), "UNCHANGED"),
        ((0, 0, 0), (1, 1, 1), "REGRESSED"),
    ],
)
def test_all_values_decide(base: tuple[float, ...], head: tuple[float, ...], verdict: str) -> None:
    old, new = (Count(metric=PEAK_MEMORY, unit="B", values=values, causes=()) for values in (base, head))
    found = compare_count(BENCHMARK, old, new, margin=0.02, gating=True)
    assert (verdict, True) == (found.verdict, found.gating)


@pytest.mark.parametrize(
    ("error", "launches"), [(0.01, 5), (0.01 / 20, 8), (0.5, 3), (2 / 20, 3), (2 / 70, 4)]
)
def test_launches_follow_from_the_error(error: float, launches: int) -> None:
    assert launches == numbers_that_decide(error)


@pytest.mark.parametrize(
    ("base", "head", "verdict"),
    [
        # Exactly by the margin is not beyond it.
        ((100, 100), (102, 102), "UNCHANGED"),
        ((100, 100), (98, 98), "UNCHANGED"),
        ((100, 100), (98, 103), "INCONCLUSIVE"),
        ((-100, -100), (-97, -97), "REGRESSED"),
        ((-100, -100), (-103, -103), "IMPROVED"),
    ],
)
def test_a_number_may_move_by_the_margin(
    base: tuple[float, ...], head: tuple[float, ...], verdict: str
) -> None:
    old, new = (Count(metric=TRACKED, unit="1", values=values, causes=()) for values in (base, head))

    assert verdict == compare_count(BENCHMARK, old, new, margin=0.02, gating=True).verdict
