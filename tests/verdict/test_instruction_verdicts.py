"""Instructions, which repeat nearly, are judged with a tolerance."""

from __future__ import annotations

from perfkit.gating.counter_verdicts import CounterPolicy, compare_counts
from perfkit.model import Benchmark
from perfkit.model.comparisons import ExactComparison
from perfkit.model.counters import repeated
from perfkit.model.counting import INSTRUCTIONS
from perfkit.runner.agent.counters.model import Count, Counts


def counted(*values: float) -> Count:
    return Count(metric=INSTRUCTIONS, unit=INSTRUCTIONS, values=values, causes=())


def compared(base: Count, head: Count, *, gating: tuple[str, ...] = ("operators",)) -> ExactComparison:
    old, new = (Counts(counts=(count,), not_counted={}) for count in (base, head))
    policy = CounterPolicy(gating=gating, tolerance=0.05)
    benchmark = Benchmark(name="test_it", version="v")
    (one,) = compare_counts(benchmark, old, new, policy, training=False, gating=True)
    return one


def test_turns_within_half_a_percent_repeat() -> None:
    assert [True, True, False, False] == [
        repeated(count)
        for count in (counted(1000, 1000), counted(1000, 1004.9), counted(1000, 1006), counted(1000))
    ]


def test_instructions_decide_where_they_are_named() -> None:
    grown = counted(1e6, 1e6), counted(1.06e6, 1.06e6)

    assert ("REGRESSED", False) == (compared(*grown).verdict, compared(*grown).gating)
    assert compared(*grown, gating=(INSTRUCTIONS,)).gating


def test_turns_that_differ_never_decide() -> None:
    one = compared(counted(1000, 1020), counted(2000, 2000), gating=(INSTRUCTIONS,))

    assert ("INCONCLUSIVE", False, False) == (one.verdict, one.gating, one.metric.exact)
    assert "did not repeat on base: not exact" == one.message
