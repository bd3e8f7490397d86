"""A verdict follows from launches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from noise import FOLLOWED, POLICY, as_pairs, normal

from perfkit.gating.judge import LEAST_SD, compare, estimate, need, slow_first_calls, timed_verdict
from perfkit.model import Benchmark
from perfkit.model.comparisons import Comparison, Estimate, LaunchPair, Policy
from perfkit.stats.planning import deciding_look

BENCHMARK = Benchmark(name="bench.py::test", version="v1")
PROVEN = replace(POLICY, fail_on="proven", noise_floor=0.005, inconclusive="pass")
times = st.floats(min_value=1e-3, max_value=1e3)
launches = st.lists(st.lists(st.tuples(times, times), min_size=1, max_size=5), min_size=10, max_size=20)


def _pairs(sample: list[list[tuple[float, float]]], *, swapped: bool = False) -> list[LaunchPair]:
    sides = [tuple(zip(*rounds, strict=True))[:: -1 if swapped else 1] for rounds in sample]
    return [
        LaunchPair(launch=launch, group=launch // 4, base_s=base, head_s=head)
        for launch, (base, head) in enumerate(sides)
    ]


def _estimate(low: float, high: float) -> Estimate:
    middle = math.sqrt(low * high)
    return Estimate(ratio=middle, low=low, high=high, confidence=0.99, launches=10, launch_sd=0.01)


def _estimated(pairs: Sequence[LaunchPair], policy: Policy) -> Estimate:
    found = estimate(pairs, policy)
    assert found is not None
    return found


def _noisy(ratio: float, sd: float, count: int) -> list[LaunchPair]:
    return as_pairs(normal(sd)(np.random.default_rng(8), (1, count))[0] + math.log(ratio))


@pytest.mark.parametrize(
    ("verdict", "low", "high"),
    [
        ("REGRESSED", 1.021, 1.05),
        ("INCONCLUSIVE", 1.019, 1.05),
        ("IMPROVED", 0.95, 0.979),
        ("INCONCLUSIVE", 0.95, 0.981),
        ("UNCHANGED", 0.981, 1.019),
        ("UNCHANGED", 1.004, 1.019),
        ("INCONCLUSIVE", 0.95, 1.05),
        ("INCONCLUSIVE", 0.981, 1.021),
        ("INCONCLUSIVE", 1.02, 1.05),
        ("INCONCLUSIVE", 1.0, 1.02),
    ],
)
def test_the_verdict_follows_from_the_interval(verdict: str, low: float, high: float) -> None:
    assert verdict == timed_verdict(_estimate(low, high), 0.02)


@pytest.mark.parametrize(
    ("verdict", "low", "high"),
    [
        ("IMPROVED", 0.95, 0.979),
        ("NOT SLOWER", 0.971, 0.987),
        ("NOT SLOWER", 0.95, 1.019),
        ("UNCHANGED", 0.981, 1.019),
        ("INCONCLUSIVE", 0.95, 1.021),
        ("REGRESSED", 1.021, 1.05),
    ],
)
def test_an_upper_limit_below_the_margin_is_enough(verdict: str, low: float, high: float) -> None:
    assert verdict == timed_verdict(_estimate(low, high), 0.02, one_sided=True)


def test_a_change_just_faster_than_the_margin_is_decided_by_its_upper_limit() -> None:
    pairs = _noisy(0.978, 0.01, 12)
    one_sided = replace(POLICY, one_sided=True)

    before, after = (compare(BENCHMARK, pairs, policy, margin=0.02) for policy in (POLICY, one_sided))

    assert ("INCONCLUSIVE", "NOT SLOWER") == (before.verdict, after.verdict)
    assert after.need is None
    errors = {look: POLICY.error_at(look) for look in POLICY.looks}
    looks = [
        deciding_look(math.log(0.978), 0.01, errors=errors, margin=0.02, one_sided=sides)
        for sides in (False, True)
    ]
    assert looks[1] is not None
    assert looks[0] is None or looks[1] < looks[0]


@pytest.mark.parametrize(
    ("verdict", "low", "high"),
    [
        ("REGRESSED", 1.021, 1.05),
        ("REGRESSED", 1.006, 1.05),
        # Proven, although it is wholly within the margin.
        ("REGRESSED", 1.006, 1.015),
        ("INCONCLUSIVE", 1.005, 1.05),
        ("INCONCLUSIVE", 1.004, 1.05),
        ("UNCHANGED", 1.004, 1.019),
        ("UNCHANGED", 0.981, 1.019),
        ("INCONCLUSIVE", 0.981, 1.02),
        ("INCONCLUSIVE", 0.9, 1.1),
    ],
)
def test_a_proven_change_is_wholly_beyond_the_noise_floor(verdict: str, low: float, high: float) -> None:
    mirrored = {"REGRESSED": "IMPROVED"}.get(verdict, verdict)

    assert verdict == timed_verdict(_estimate(low, high), 0.02, threshold=0.005)
    assert mirrored == timed_verdict(_estimate(2 - high, 2 - low), 0.02, threshold=0.005)


@pytest.mark.parametrize(
    ("verdict", "policy", "ratio"),
    [
        ("UNCHANGED", POLICY, 1.012),
        ("REGRESSED", PROVEN, 1.012),
        ("IMPROVED", PROVEN, 0.988),
        ("UNCHANGED", PROVEN, 1.0),
        ("UNCHANGED", replace(PROVEN, noise_floor=0.05), 1.012),
    ],
)
def test_the_policy_states_what_fails(verdict: str, policy: Policy, ratio: float) -> None:
    pairs = _noisy(ratio, 0.002, 26)

    assert verdict == compare(BENCHMARK, pairs, policy, margin=0.02).verdict
    assert verdict == compare(BENCHMARK, _sliced(pairs, pairs), policy, margin=0.02).verdict


@pytest.mark.parametrize(
    ("policy", "setting"),
    [
        (POLICY, None),
        (replace(POLICY, inconclusive="go on"), None),
        (replace(POLICY, inconclusive="pass"), 'inconclusive = "pass"'),
        (PROVEN, 'fail_on = "proven"'),
        (replace(PROVEN, inconclusive="fail"), None),
    ],
)
def test_a_setting_may_let_an_undecided_benchmark_pass(policy: Policy, setting: str | None) -> None:
    noisy = _noisy(1.0, 0.05, 10)

    found = compare(BENCHMARK, noisy, policy, margin=0.02)

    assert ("INCONCLUSIVE", setting) == (found.verdict, found.excused_by)
    assert ("NOT REACHED", None) == _passing(compare(BENCHMARK, noisy[:2], policy, margin=0.02))
    assert None is compare(BENCHMARK, _noisy(1.5, 0.01, 10), policy, margin=0.02).excused_by


def _passing(found: Comparison) -> tuple[str, str | None]:
    return found.verdict, found.excused_by


def _sliced(typical: list[LaunchPair], whole: list[LaunchPair]) -> list[LaunchPair]:
    return [
        replace(all_calls, base_typical_s=pair.base_s, head_typical_s=pair.head_s)
        for pair, all_calls in zip(typical, whole, strict=True)
    ]


@pytest.mark.parametrize(
    ("verdict", "calls", "typical", "whole"),
    [
        ("UNCHANGED", "typical", (1.0, 0.005), (1.0, 0.005)),
        # Too noisy to decide by all calls; a typical one decides.
        ("UNCHANGED", "typical", (1.0, 0.005), (1.0, 0.03)),
        ("REGRESSED", "typical", (1.05, 0.005), (1.05, 0.03)),
        ("IMPROVED", "typical", (0.9, 0.005), (0.95, 0.03)),
        # Some calls alone became slower: what all take together accuses, or keeps it open.
        ("REGRESSED", "all", (1.0, 0.005), (1.05, 0.005)),
        ("INCONCLUSIVE", "all", (1.0, 0.005), (1.06, 0.06)),
        ("REGRESSED", "all", (0.9, 0.005), (1.1, 0.005)),
        ("IMPROVED", "all", (1.0, 0.005), (0.9, 0.005)),
        # The other way round: all calls lie inside the margin, wherever a typical one lies.
        ("UNCHANGED", "all", (1.0, 0.03), (1.0, 0.005)),
        ("INCONCLUSIVE", "typical", (1.0, 0.03), (1.0, 0.03)),
    ],
)
def test_a_typical_call_and_all_calls_have_both_a_state(
    verdict: str, calls: str, typical: tuple[float, float], whole: tuple[float, float]
) -> None:
    pairs = _sliced(_noisy(*typical, 20), _noisy(*whole, 20))

    found = compare(BENCHMARK, pairs, POLICY, margin=0.02)

    assert found.estimate is not None
    assert found.other is not None
    assert (verdict, calls) == (found.verdict, found.estimate.calls)
    assert {"typical", "all"} == {found.estimate.calls, found.other.calls}
    assert (typical if calls == "typical" else whole)[0] == pytest.approx(found.estimate.ratio, abs=0.03)


def test_two_estimates_share_the_error_of_a_look() -> None:
    alone = _noisy(1.0, 0.01, 20)
    sliced = _sliced(alone, alone)

    estimates = [estimate(alone, POLICY), estimate(sliced, POLICY), estimate(sliced, POLICY, "all")]

    errors = [1 - one.confidence for one in estimates if one is not None]
    assert [1.0, 0.8, 0.2] == pytest.approx([error / errors[0] for error in errors])
    assert errors[0] == pytest.approx(POLICY.error_at(20))


def test_launches_after_a_look_wait_for_the_next() -> None:
    pairs = _noisy(1.0, 0.01, 16)

    assert _estimated(pairs[:12], POLICY) == _estimated(pairs[:15], POLICY)
    sixteen = _estimated(pairs, POLICY)
    assert 16 == sixteen.launches


def test_alpha_is_shared_out() -> None:
    found = _estimated(_noisy(1.0, 0.01, 12), POLICY)
    alone = _estimated(_noisy(1.0, 0.01, 12), Policy(alpha=0.01, family=1, looks=(12,)))

    assert pytest.approx(1 - 0.1 * 0.95 * 0.01 / 6) == found.confidence
    assert pytest.approx(0.05 * 0.01 / 18) == POLICY.error_at(3) == POLICY.error_at(6)
    late = [POLICY.error_at(look) for look in POLICY.looks[3:]]
    assert pytest.approx([0.9] * (len(late) - 1)) == np.divide(late[1:], late[:-1]).tolist()
    # A tenth of the last share, for the looks that would follow: all together they have what alpha has.
    assert pytest.approx(0.01 / 6) == sum(map(POLICY.error_at, POLICY.looks)) + late[-1] * 0.9 / 0.1
    assert pytest.approx(0.99) == alone.confidence
    assert found.low < alone.low < alone.high < found.high


def test_the_interval_is_students_over_launches() -> None:
    logs = np.array([0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07])
    pairs = [
        LaunchPair(launch=place, group=0, base_s=(1.0, 2.0), head_s=(math.exp(log), 2 * math.exp(log)))
        for place, log in enumerate(logs)
    ]

    found = _estimated(pairs, Policy(alpha=0.01, family=1, looks=(8,)))

    half_width = 3.499483 * logs.std(ddof=1) / math.sqrt(8)
    assert pytest.approx((math.exp(0.035 - half_width), math.exp(0.035 + half_width))) == (
        found.low,
        found.high,
    )
    assert pytest.approx((math.exp(0.035), logs.std(ddof=1))) == (found.ratio, found.launch_sd)
    assert "launches" == found.unit


@given(sample=launches)
def test_swapping_the_sides_inverts_ratio_and_interval(sample: list[list[tuple[float, float]]]) -> None:
    forward, backward = (_estimated(_pairs(sample, swapped=swapped), POLICY) for swapped in (False, True))

    assert pytest.approx(1.0) == forward.ratio * backward.ratio
    assert pytest.approx(1 / forward.high, rel=1e-5, abs=1e-300) == backward.low
    assert pytest.approx(1 / backward.high, rel=1e-5, abs=1e-300) == forward.low


def test_what_two_differing_fork_servers_state_is_bounded_by_nothing() -> None:
    values = np.repeat([0.0, 1.0], [10, 2]) + np.tile([0.0, 0.01], 6)
    pairs = [replace(pair, group=place // 10) for place, pair in enumerate(as_pairs(values))]

    found = compare(BENCHMARK, pairs, POLICY, margin=0.02)

    assert found.estimate is not None
    assert (0.0, math.inf, "preloaders") == (found.estimate.low, found.estimate.high, found.estimate.unit)
    assert ("INCONCLUSIVE", None) == (found.verdict, found.need)
    # Nor does a setting let pass what has no upper limit: that is as good as not measured.
    assert ("INCONCLUSIVE", None) == _passing(compare(BENCHMARK, pairs, PROVEN, margin=0.02))


@given(sample=launches, exponent=st.integers(min_value=-8, max_value=8))
def test_the_unit_of_time_changes_no_verdict(sample: list[list[tuple[float, float]]], exponent: int) -> None:
    scaled = [[(base * 2.0**exponent, head * 2.0**exponent) for base, head in rounds] for rounds in sample]
    plain, other = _estimated(_pairs(sample), POLICY), _estimated(_pairs(scaled), POLICY)

    assert pytest.approx((plain.ratio, plain.low, plain.high)) == (other.ratio, other.low, other.high)


def test_two_speeds_of_a_core_leave_base_and_head_apart_by_the_ratio() -> None:
    fast, slow = 1.0, 1.2
    launches = [(fast, fast)] * 5 + [(fast, slow)] * 2 + [(slow, slow)] * 5
    pairs = [
        LaunchPair(launch=place, group=0, base_s=(base,), head_s=(head,))
        for place, (base, head) in enumerate(launches)
    ]

    found = compare(BENCHMARK, pairs, POLICY, margin=0.02)

    assert found.estimate is not None
    assert found.base_s is not None
    assert found.head_s is not None
    assert pytest.approx(found.estimate.ratio) == found.head_s / found.base_s
    assert pytest.approx(math.sqrt(fast * slow)) == math.sqrt(found.base_s * found.head_s)


@pytest.mark.parametrize(
    ("verdict", "ratio", "margin"),
    [
        ("UNCHANGED", 1.0, 0.02),
        ("REGRESSED", 1.05, 0.02),
        ("IMPROVED", 0.95, 0.02),
        ("REGRESSED", 1.03, 0.01),
    ],
)
def test_a_quiet_benchmark_is_decided_and_needs_nothing(verdict: str, ratio: float, margin: float) -> None:
    found = compare(BENCHMARK, _noisy(ratio, 0.002, 12), POLICY, margin=margin)

    assert (verdict, None, None) == (found.verdict, found.need, found.message)


def test_a_noisy_benchmark_states_what_it_needs() -> None:
    pairs = _noisy(1.0, 0.011, 12)

    found = compare(BENCHMARK, pairs, POLICY, margin=0.02, launch_s=0.5)

    assert "INCONCLUSIVE" == found.verdict
    assert found.need is not None
    assert found.need.launches + 12 in POLICY.looks
    assert pytest.approx(found.need.launches * 0.5) == found.need.seconds


def test_what_is_needed_is_enough_as_a_rule() -> None:
    series = normal(0.015)(np.random.default_rng(10), (100, FOLLOWED))
    kept = 0
    for logs in series:
        pairs = as_pairs(logs)
        wanted = need(estimate(pairs[:10], POLICY), pairs[:10], POLICY, margin=0.02)
        look = 10 + wanted.launches if wanted else FOLLOWED
        kept += compare(BENCHMARK, pairs[:look], POLICY, margin=0.02).verdict == "UNCHANGED"

    assert kept >= 60


def test_before_the_first_look_a_comparison_waits() -> None:
    found = compare(BENCHMARK, _noisy(1.0, 0.002, 2), POLICY, margin=0.02)

    assert ("NOT REACHED", None) == (found.verdict, found.estimate)
    assert "2 of the 3 launches that the first look needs" == found.message
    assert found.need is not None
    assert (1, None) == (found.need.launches, found.need.seconds)


@pytest.mark.parametrize(("least_sd", "error"), [(0.03, 0.01), (LEAST_SD, 0.01 / 3)])
def test_fewer_than_ten_launches_scatter_by_the_least_deviation(least_sd: float, error: float) -> None:
    policy = Policy(alpha=0.1, family=1, looks=(9, 10), least_sd=least_sd, trimmed_from=20)

    nine, ten = (_estimated(_noisy(1.0, 0.0, count), policy) for count in (9, 10))

    # t of 8 degrees at 95 % is 2.306004.
    assert pytest.approx(math.exp(2.306004 * error)) == nine.high
    assert (1.0, 1.0) == (ten.low, ten.high)


def test_the_policy_states_what_launches_share_and_from_when_they_are_trimmed() -> None:
    pairs = _noisy(1.0, 0.01, 10)
    policy = Policy(alpha=0.01, family=1, looks=(10,), trimmed_from=20)
    burst = [*pairs[:-1], replace(pairs[-1], head_s=(9.0,))]

    plain, shared = (_estimated(pairs, replace(policy, shared_variance=one)) for one in (0.0, 1.0))
    kept, trimmed = (_estimated(burst, replace(policy, trimmed_from=one)) for one in (11, 10))

    # Groups of 4, 4 and 2: 3.6 launches stand together, and 32/45 of what they share is seen.
    wider = math.sqrt((1 + 3.6) / (1 + 6.4 / 9))
    assert pytest.approx(wider) == math.log(shared.high / shared.ratio) / math.log(plain.high / plain.ratio)
    assert trimmed.high < 1.1 < kept.high


def _with_pauses(cpu: float) -> list[LaunchPair]:
    """Return launches with equal typical calls, of which head has a pause in one round of ten."""
    equal = tuple(1.0 + 0.001 * place for place in range(10))
    return [
        LaunchPair(
            launch=launch,
            group=launch,
            base_s=equal,
            head_s=(*equal[:9], 11.0 + 0.1 * launch),
            base_typical_s=equal,
            head_typical_s=equal,
            base_cpu_s=1.0,
            head_cpu_s=cpu,
        )
        for launch in range(20)
    ]


def test_a_pause_of_one_side_is_that_sides_where_its_cpu_time_grew() -> None:
    found = compare(BENCHMARK, _with_pauses(2.0), POLICY, margin=0.05)

    assert found.estimate is not None
    assert ("REGRESSED", "all") == (found.verdict, found.estimate.calls)
    assert pytest.approx(2.1, abs=0.1) == found.estimate.ratio


def test_a_pause_of_the_machine_does_not_accuse() -> None:
    found = compare(BENCHMARK, _with_pauses(1.0), POLICY, margin=0.05)

    assert "UNCHANGED" == found.verdict
    assert found.other is not None
    assert found.other.low < 2.1 < found.other.high


def test_garbage_that_is_left_to_collect_is_part_of_all_calls() -> None:
    pairs = [
        replace(pair, head_s=pair.base_s, head_collected_s=1.0 + 0.01 * pair.launch)
        for pair in _with_pauses(2.0)
    ]

    found = compare(BENCHMARK, pairs, POLICY, margin=0.05)

    assert "REGRESSED" == found.verdict


def test_work_that_takes_more_cpu_time_in_less_time_is_marked() -> None:
    faster = [replace(pair, base_cpu_s=1.0, head_cpu_s=3.0) for pair in _noisy(0.5, 0.005, 20)]
    saved = [replace(pair, head_cpu_s=0.5) for pair in faster]

    more, less, unknown = (
        compare(BENCHMARK, pairs, POLICY, margin=0.02) for pairs in (faster, saved, _noisy(0.5, 0.005, 20))
    )

    assert {"IMPROVED"} == {one.verdict for one in (more, less, unknown)}
    assert (True, False, False) == (more.costs_more_cpu, less.costs_more_cpu, unknown.costs_more_cpu)
    assert unknown.cpu_ratio is None


def test_sides_without_a_difference_are_never_accused() -> None:
    policy = replace(POLICY, same_code=True)

    found = [compare(BENCHMARK, _noisy(ratio, 0.005, 20), policy, margin=0.02) for ratio in (0.5, 2.0)]

    assert ["UNCHANGED"] * 2 == [one.verdict for one in found]
    assert all(one.message for one in found)


def _first_calls(
    *seconds: tuple[float, float], groups: int = 6, later: tuple[float, float] = (0.01, 0.01)
) -> list[LaunchPair]:
    return [
        LaunchPair(
            launch=launch,
            group=launch % groups,
            base_s=(later[0],) * 3,
            head_s=(later[1],) * 3,
            base_first_s=base,
            head_first_s=head,
        )
        for launch, (base, head) in enumerate(seconds)
    ]


@pytest.mark.parametrize(
    ("slower", "pairs"),
    [
        (True, _first_calls(*[(0.01, 0.07)] * 6)),
        # One launch without a slower first call is enough, and a few without an equal one are too few.
        (False, _first_calls(*[(0.01, 0.07)] * 6, (0.3, 0.07))),
        (None, _first_calls(*[(0.01, 0.07)] * 5)),
        (None, _first_calls(*[(0.01, 0.07)] * 6, groups=1)),
        (False, _first_calls(*[(0.01, 0.059)] * 6)),
        (False, _first_calls(*[(0.2, 0.29)] * 6)),
        # Later calls are as much slower.
        (False, _first_calls(*[(0.2, 0.6)] * 6, later=(0.1, 0.3))),
        (False, _first_calls(*[(0.07, 0.01)] * 6)),
    ],
)
def test_a_first_call_is_slower_that_is_so_in_every_launch(
    pairs: Sequence[LaunchPair], *, slower: bool | None
) -> None:
    found, same = (
        compare(BENCHMARK, pairs, policy, margin=0.02) for policy in (POLICY, replace(POLICY, same_code=True))
    )

    assert found.first_call is not None
    assert same.first_call is not None
    assert (slower, False) == (found.first_call.slower, same.first_call.slower)
    assert bool(slower) == bool(list(slow_first_calls([found])))


@pytest.mark.parametrize(
    ("seconds", "later", "unlike"),
    [
        ((0.002, 0.001), 0.00004, "it takes 50 times as long as a later one"),
        ((0.002, 0.001), 0.00005, None),
        # A cold process is as slow.
        ((0.0009, 0.0009), 0.000001, None),
        ((0.0, 0.0), 0.01, None),
    ],
)
def test_a_first_call_is_reported_that_takes_much_longer_than_later_ones(
    seconds: tuple[float, float], later: float, unlike: str | None
) -> None:
    found = compare(BENCHMARK, _first_calls(seconds, later=(later, later)), POLICY, margin=0.02).first_call

    assert found is not None
    assert unlike == found.unlike
