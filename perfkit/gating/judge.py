"""Launches and policy in, estimate and verdict out."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from perfkit.model import COLD_START, SIDES, Benchmark, Row
from perfkit.model.comparisons import (
    LEAST_CPU_CHANGE,
    SAME_CODE,
    UNDECIDED,
    Calls,
    Comparison,
    Estimate,
    ExactComparison,
    FirstCall,
    LaunchPair,
    Need,
    Policy,
    TimedVerdict,
    Verdict,
)
from perfkit.stats.interval import (
    Interval,
    halves_differ,
    location,
    location_interval,
    neighbours_alike,
    widening,
)
from perfkit.stats.planning import (
    Spread,
    deciding_look,
    expected_half_width,
    pooled_spread,
    sessions_to_decide,
    unpaired_half_width,
)
from perfkit.units import counted

# From this many launches on, their own scatter is known well enough to be believed however small it is.
WELL_KNOWN = 10
# What their deviation is taken to be at least until then, on the log scale: few launches that are slow by lot
# may agree by chance.
LEAST_SD = 0.01
LARGEST_LOG = math.log(sys.float_info.max)
# The share of a look's error that goes to lower-quartile calls, where those were timed apart; the interval
# over all calls has the rest. A slowdown of every call is more frequent than one of some calls only.
_TYPICAL_SHARE = 0.8
# The share that goes to the total time over all calls, pauses included, where the CPU time is known: that
# separates a pause of the program from one of the machine. It is part of what all calls have.
_TOTAL_SHARE = 0.1
_PASSING: tuple[TimedVerdict, ...] = ("UNCHANGED", "NOT SLOWER")
# An assumption that holds is doubted in one of a thousand benchmarks. Fewer launches show too little.
_DOUBTED = 0.001
# A first call is slower where it takes this many times as long, and this many seconds more, in each of at
# least this many launches.
_FIRST_CALL_RATIO, _FIRST_CALL_S, _FEWEST_FIRST_CALLS = 1.5, 0.05, 6
# One that takes this many times as long as later ones, and not only as its process is cold, does other work.
_UNLIKE, _LEAST_UNLIKE_S = 50, 0.001
_FEWEST_LAUNCHES = 12


def estimate(pairs: Sequence[LaunchPair], policy: Policy, calls: Calls = "typical") -> Estimate | None:
    """Return the ratio and its interval at the last look that was reached, None before the first.

    It is that of a lower-quartile call, or of all calls, where those were not timed or ``calls`` is "all".
    ``pairs`` stand in the order they were measured in; those after the look are left for the next one.
    """
    launches = last_look(len(pairs), policy)
    if launches is None:
        return None
    seen = pairs[:launches]
    logs = [pair_location(pair, calls) for pair in seen]
    error = interval_error(seen, policy, calls, look=launches)
    which: Calls = calls if _are_sliced(seen) else "all"
    return _estimated(seen, logs, policy, error=error, calls=which)


def total_estimate(pairs: Sequence[LaunchPair], policy: Policy) -> Estimate | None:
    """Return the ratio of total times over all calls at the last look, None where CPU times are not known.

    Pauses and collections of garbage are part of it, and so are pauses of the machine.
    """
    launches = last_look(len(pairs), policy)
    if launches is None or not has_totals(pairs):
        return None
    seen = pairs[:launches]
    logs = [math.log(head / base) for base, head in (pair.total_s for pair in seen)]
    error = policy.error_at(launches) * _TOTAL_SHARE
    return _estimated(seen, logs, policy, error=error, calls="all")


def _estimated(
    seen: Sequence[LaunchPair], logs: Sequence[float], policy: Policy, *, error: float, calls: Calls
) -> Estimate:
    """Return the ratio and its interval from the log ratio of each launch, at a two-sided ``error``."""
    launches = len(seen)
    interval = look_interval(logs, [pair.group for pair in seen], policy, error=error)
    centre, half_width = float(interval.centre), float(interval.half_width)
    return Estimate(
        ratio=math.exp(centre),
        low=_ratio(centre - half_width),
        high=_ratio(centre + half_width),
        confidence=1 - error,
        launches=launches,
        launch_sd=statistics.stdev(logs) if launches > 1 else None,
        unit="preloaders" if interval.by_zygotes else "launches",
        calls=calls,
    )


def has_totals(pairs: Sequence[LaunchPair]) -> bool:
    """Return whether the CPU times of all launches are known."""
    return all(pair.base_cpu_s is not None and pair.head_cpu_s is not None for pair in pairs)


def look_interval(
    logs: npt.ArrayLike, groups: Sequence[int] | npt.NDArray[np.intp], policy: Policy, *, error: float
) -> Interval:
    """Return the interval of log ratios, in shape (..., launches), at a look with two-sided ``error``."""
    return location_interval(
        logs,
        groups,
        error=error,
        shared_variance=policy.shared_variance,
        least_sd=policy.least_sd if len(groups) < WELL_KNOWN else 0.0,
        trimmed_from=policy.trimmed_from,
    )


def pair_location(pair: LaunchPair, calls: Calls = "typical") -> float:
    """Return the log ratio of a launch: of lower-quartile calls, where those were timed apart, or of all."""
    return location(*pair.sides(calls))


def timed_verdict(
    estimate: Estimate, margin: float, *, threshold: float | None = None, one_sided: bool = False
) -> TimedVerdict:
    """Return the verdict of the interval alone; ``margin`` is a relative change (0.02 is 2 %)."""
    return interval_verdict(estimate.low, estimate.high, margin, threshold=threshold, one_sided=one_sided)


def interval_verdict(
    low: float, high: float, margin: float, *, threshold: float | None = None, one_sided: bool = False
) -> TimedVerdict:
    """Return the verdict of an interval of a ratio, where lower is better.

    It accuses or praises where it lies wholly beyond ``threshold`` (not given: the margin), although that may
    still be within the margin. If ``one_sided``, an upper limit below the margin is enough for NOT SLOWER.
    """
    beyond = margin if threshold is None else threshold
    if low > 1 + beyond:
        return "REGRESSED"
    if high < 1 - beyond:
        return "IMPROVED"
    if 1 - margin < low and high < 1 + margin:
        return "UNCHANGED"
    return "NOT SLOWER" if one_sided and high < 1 + margin else "INCONCLUSIVE"


def is_faster(comparison: Comparison) -> bool:
    """Return whether a benchmark is proven to be faster, if only by less than its margin."""
    judged = comparison.estimate
    known = comparison.verdict == "NOT SLOWER" and judged is not None and judged.high < 1
    return known or comparison.verdict == "IMPROVED"


def compare(
    benchmark: Benchmark,
    pairs: Sequence[LaunchPair],
    policy: Policy,
    *,
    margin: float,
    gating: bool = True,
    launch_s: float | None = None,
    first_only: str | None = None,
) -> Comparison:
    """Judge one benchmark by its launches; ``launch_s`` is what one more of them takes, in seconds.

    ``first_only`` is how little of the first call's code a later one runs, where that is known.
    """
    judged = estimate(pairs, policy)
    other = estimate(pairs, policy, "all") if judged and judged.calls == "typical" else None
    threshold = policy.threshold(margin)
    verdict: Verdict = (
        timed_verdict(judged, margin, threshold=threshold, one_sided=policy.one_sided)
        if judged
        else "NOT REACHED"
    )
    if judged and other:
        verdict, judged, other = _weighed(judged, other, margin, policy)
    total, cpu_ratio = (
        total_estimate(pairs, policy),
        _cpu_ratio(pairs[: judged.launches] if judged else pairs),
    )
    if judged and total and verdict != "REGRESSED" and _pauses(total, cpu_ratio, margin):
        # What few calls take, such as collecting the garbage of all others, is head's own.
        judged, other = total, judged
        accused = timed_verdict(total, margin, threshold=threshold) == "REGRESSED"
        verdict = "REGRESSED" if accused else "INCONCLUSIVE"
    elif judged and total and judged.calls == "typical":
        other = total
    # Inputs drawn at random, or the machine, may make equal code differ.
    excused = policy.same_code and verdict in ("REGRESSED", "IMPROVED")
    if excused:
        verdict = "UNCHANGED"
    which: Calls = judged.calls if judged else "all"
    seen = pairs[: judged.launches] if judged else pairs
    missing = need(judged, pairs, policy, margin=margin, launch_s=launch_s)
    base_s, head_s = _middle_times([pair.sides(which) for pair in seen], judged)
    return Comparison(
        benchmark=benchmark,
        verdict=verdict,
        margin=margin,
        gating=gating,
        estimate=judged,
        other=other,
        base_s=base_s,
        head_s=head_s,
        need=missing if verdict in UNDECIDED else None,
        message=SAME_CODE if excused else None if judged else _before_first_look(len(pairs), policy),
        excused_by=_excuse(judged, policy) if verdict == "INCONCLUSIVE" else None,
        cpu_ratio=cpu_ratio,
        first_call=first_call(pairs, policy, first_only),
    )


def first_call(
    pairs: Sequence[LaunchPair], policy: Policy, first_only: str | None = None
) -> FirstCall | None:
    """Return the first calls of launches, None where none was timed by itself."""
    known = [pair for pair in pairs if pair.base_first_s is not None and pair.head_first_s is not None]
    if not known:
        return None
    first = np.array([(pair.base_first_s, pair.head_first_s) for pair in known], dtype=np.float64)
    base_s, head_s = map(float, np.median(first, axis=0))
    is_long = max(base_s, head_s) >= _LEAST_UNLIKE_S
    # Finding the later calls' times takes long, and those of a short first call mean nothing.
    medians = [[np.median(side) for side in pair.sides("typical")] for pair in known if is_long]
    later = np.array(medians) if is_long else np.ones_like(first)
    # A first call that is slower by as much as later ones are is their finding.
    allowed = first[:, 0] + np.maximum(later[:, 1] - later[:, 0], 0.0)
    beyond = (first[:, 1] > _FIRST_CALL_RATIO * allowed) & (first[:, 1] - allowed > _FIRST_CALL_S)
    # What all launches of one zygote have in common is no property of the code.
    enough = len(known) >= _FEWEST_FIRST_CALLS and len({pair.group for pair in known}) > 1
    times = float(np.median(first / later, axis=0).max())
    less = f"it takes {float(f'{times:.2g}'):,.0f} times as long as a later one" if times >= _UNLIKE else None
    return FirstCall(
        base_s=base_s,
        head_s=head_s,
        ratio=head_s / base_s if base_s else None,
        launches=len(known),
        slower=(enough or None) if beyond.all() and not policy.same_code else False,
        unlike="; ".join(filter(None, (less, first_only))) or None,
    )


def slow_first_calls(comparisons: Iterable[Comparison]) -> Iterator[ExactComparison]:
    """Yield a finding for each benchmark whose first call is slower on head in every launch."""
    for one in comparisons:
        if (first := one.first_call) is not None and first.slower:
            yield ExactComparison(
                benchmark=one.benchmark,
                metric=COLD_START,
                verdict="REGRESSED",
                margin=_FIRST_CALL_RATIO - 1,
                gating=one.gating,
                base=first.base_s,
                head=first.head_s,
                message=f"slower in each of {first.launches} launches; later calls do not show it",
            )


def _pauses(total: Estimate, cpu_ratio: float | None, margin: float) -> bool:
    # CPU time comes in ticks, so that of few short calls may grow by chance.
    least = 1 + max(margin, LEAST_CPU_CHANGE)
    return cpu_ratio is not None and cpu_ratio > least and total.ratio > least


def _cpu_ratio(pairs: Sequence[LaunchPair]) -> float | None:
    base = [pair.base_cpu_s for pair in pairs if pair.base_cpu_s is not None]
    head = [pair.head_cpu_s for pair in pairs if pair.head_cpu_s is not None]
    if not pairs or min(len(base), len(head)) < len(pairs) or not math.fsum(base):
        return None
    return math.fsum(head) / math.fsum(base)


def _excuse(judged: Estimate | None, policy: Policy) -> str | None:
    """Return the setting by which an undecided benchmark passes; None where it fails.

    What has no upper limit was as good as not measured, and never passes.
    """
    if policy.inconclusive != "pass" or judged is None or math.isinf(judged.high):
        return None
    return 'fail_on = "proven"' if policy.fail_on == "proven" else 'inconclusive = "pass"'


def need(
    judged: Estimate | None,
    pairs: Sequence[LaunchPair],
    policy: Policy,
    *,
    margin: float,
    launch_s: float | None = None,
) -> Need | None:
    """Return about how many more launches would decide, None where no look that is left would.

    The ratio and scatter of ``judged``, the estimate from ``pairs``, are taken for the true ones; before the
    first look, the launches that it still lacks are returned. One more launch takes ``launch_s`` seconds.
    """
    look = _deciding_look(judged, pairs, policy, margin) if judged else policy.looks[0]
    if look is None:
        return None
    launches = look - len(pairs)
    return Need(launches=launches, seconds=None if launch_s is None else launches * launch_s)


def interval_error(
    pairs: Sequence[LaunchPair], policy: Policy, calls: Calls = "typical", *, look: int
) -> float:
    """Return the two-sided error of one interval: where a look has two, each has its share of the error."""
    total = _TOTAL_SHARE if pairs and has_totals(pairs) else 0.0
    if not _are_sliced(pairs):
        return policy.error_at(look) * (1 - total)
    return policy.error_at(look) * (_TYPICAL_SHARE if calls == "typical" else 1 - _TYPICAL_SHARE - total)


def last_look(launches: int, policy: Policy) -> int | None:
    """Return the last look that this many launches reach, None before the first."""
    return max((look for look in policy.looks if look <= launches), default=None)


def _weighed(
    typical: Estimate, whole: Estimate, margin: float, policy: Policy
) -> tuple[TimedVerdict, Estimate, Estimate | None]:
    """Return the verdict of both estimates, the one that made it, and the other.

    Each estimate alone may lead to REGRESSED or IMPROVED, since each has its share of alpha. A lower-quartile
    inside the margin is not enough to pass while the ratio of all calls lies outside: some calls may have
    become slower.
    """
    threshold, one_sided = policy.threshold(margin), policy.one_sided
    verdicts = (
        timed_verdict(typical, margin, threshold=threshold, one_sided=one_sided),
        timed_verdict(whole, margin, threshold=threshold, one_sided=one_sided),
    )
    for accusing in ("REGRESSED", "IMPROVED"):
        if accusing in verdicts:
            by_typical = verdicts[0] == accusing
            return accusing, *((typical, whole) if by_typical else (whole, typical))
    if verdicts[0] == "UNCHANGED" and abs(whole.ratio - 1) <= margin:
        return "UNCHANGED", typical, whole
    if verdicts[0] in _PASSING and one_sided and whole.ratio <= 1 + margin:
        return "NOT SLOWER", typical, whole
    if any(verdict in _PASSING for verdict in verdicts):
        return verdicts[1], whole, typical
    return "INCONCLUSIVE", typical, whole


def _are_sliced(pairs: Sequence[LaunchPair]) -> bool:
    return any(pair.sliced for pair in pairs)


def _ratio(log: float) -> float:
    # An interval over two fork servers that differ is so wide that it is of little use.
    return math.exp(log) if log < LARGEST_LOG else math.inf


def _deciding_look(
    judged: Estimate, pairs: Sequence[LaunchPair], policy: Policy, margin: float
) -> int | None:
    seen = [pair.group for pair in pairs[: judged.launches]]
    if judged.unit == "preloaders":
        units = len(set(seen))
        half_width, error = math.log(judged.high / judged.ratio), 1 - judged.confidence
        sd = half_width / expected_half_width(1.0, units, error=error, trimmed_from=policy.trimmed_from)
    else:
        units = judged.launches
        sd = (judged.launch_sd or 0.0) * widening(seen, policy.shared_variance)
    calls = judged.calls if _are_sliced(pairs) else "all"
    return deciding_look(
        math.log(judged.ratio),
        sd,
        errors={
            look: interval_error(pairs, policy, calls, look=look)
            for look in policy.looks
            if look > len(pairs)
        },
        margin=margin,
        threshold=policy.threshold(margin),
        launches_per_unit=judged.launches / units,
        one_sided=policy.one_sided,
        trimmed_from=policy.trimmed_from,
    )


def _before_first_look(launches: int, policy: Policy) -> str:
    return f"{launches} of the {policy.looks[0]} launches that the first look needs"


def _middle_times(
    launches: Sequence[tuple[Sequence[float], Sequence[float]]], judged: Estimate | None
) -> tuple[float, float] | tuple[None, None]:
    """Return base's and head's time: the median over launches of both together, set apart by the ratio.

    A launch's time is that of its median round. Before the first look there is no ratio, and each side has
    its own median over launches.
    """
    middles = [(statistics.median(base), statistics.median(head)) for base, head in launches]
    if not middles:
        return None, None
    if judged is None:
        return statistics.median(base for base, _ in middles), statistics.median(head for _, head in middles)
    # A core with two speeds gives launches at either one: the sides' own medians may come from launches at
    # different speeds, and would then contradict the ratio that is shown beside them.
    level = statistics.median(math.sqrt(base * head) for base, head in middles)
    apart = math.sqrt(judged.ratio)
    return level / apart, level * apart


def doubts(pairs: Sequence[LaunchPair], judged: Estimate | None) -> Iterator[str]:
    """Yield the assumptions that the launches of a benchmark contradict, each as the end of a sentence."""
    if judged is None or len(pairs) < _FEWEST_LAUNCHES:
        return
    located = [(pair.begins, pair_location(pair, judged.calls)) for pair in pairs]
    if judged.unit == "preloaders":
        yield "launches from one process resemble each other, so that processes were counted instead"
    else:
        alike = neighbours_alike([log for _, log in located])
        if alike.p_value < _DOUBTED:
            yield f"launches resemble the ones before them (correlation {alike.size:.2f})"
    begun_by = {side: [log for begins, log in located if begins == side] for side in SIDES}
    order = halves_differ(begun_by["base"], begun_by["head"])
    if order.p_value < _DOUBTED:
        # Where base begins and head / base is larger, it is base that reads faster.
        word = "faster" if order.size > 0 else "slower"
        yield f"the side that begins reads {100 * abs(order.size) / 2:.1f} % {word}"


def joined_pairs(runs: Sequence[Sequence[LaunchPair]]) -> tuple[LaunchPair, ...]:
    """Return the launches of several runs on one pair as one series; no two runs share a fork server."""
    joined: list[LaunchPair] = []
    for pairs in runs:
        offset = max((pair.group for pair in joined), default=0)
        joined += [
            replace(pair, launch=len(joined) + place, group=offset + pair.group)
            for place, pair in enumerate(pairs)
        ]
    return tuple(joined)


# The levels of identical code differ the more, the more time lies between them, up to three quarters of an
# hour: docs/measured/evidence.md has the figures.
_LEAST_GAP = timedelta(hours=1)
# One or two sessions may be unusual ones and not show it: then up to 11 % of real comparisons of identical
# code accused, however much was known of other commits.
FEWEST_SESSIONS = 3
_SHA_DIGITS = 10


def compare_unpaired(
    benchmark: Benchmark,
    *,
    base: Sequence[Row],
    head: Sequence[Row],
    history: Sequence[Row],
    policy: Policy,
    margin: float,
    gating: bool,
) -> Comparison:
    """Judge one benchmark by the rows of both commits; ``history`` has those of all commits, these included.

    All rows have values and are of one version, machine and environment. There is no verdict where a commit
    has fewer than three sessions.
    """
    gap = max(_LEAST_GAP, _between(base, head))
    base_levels, head_levels = session_levels(base, gap), session_levels(head, gap)
    sizes = (len(base_levels), len(head_levels))
    commits: dict[str, list[Row]] = {}
    for row in history:
        commits.setdefault(row.commit.sha, []).append(row)
    spread = pooled_spread([session_levels(rows, gap) for rows in commits.values()])
    verdict: Verdict = "INCONCLUSIVE"
    estimate = None
    if spread is None or min(sizes) < FEWEST_SESSIONS:
        message: str | None = _too_few(sizes, gap, base[0].commit.sha, head[0].commit.sha)
    else:
        difference = statistics.fmean(head_levels) - statistics.fmean(base_levels)
        estimate = _estimate(difference, spread, sizes, policy)
        verdict = timed_verdict(estimate, margin, one_sided=policy.one_sided)
        undecided = verdict == "INCONCLUSIVE"
        message = _to_decide(difference, spread, sizes, policy, margin) if undecided else None
    return Comparison(
        benchmark=benchmark,
        verdict=verdict,
        margin=margin,
        gating=gating,
        estimate=estimate,
        base_s=math.exp(statistics.fmean(base_levels)),
        head_s=math.exp(statistics.fmean(head_levels)),
        message=message,
    )


def session_levels(rows: Iterable[Row], gap: timedelta) -> list[float]:
    """Return the level of each session: the mean over its launches of the log of their median round.

    A session ends where nothing was measured for as long as ``gap``.
    """
    sessions: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: row.recorded_at):
        if not sessions or row.recorded_at - sessions[-1][-1].recorded_at >= gap:
            sessions.append([])
        sessions[-1].append(row)
    return [
        statistics.fmean(math.log(statistics.median(row.outcome.values)) for row in session)
        for session in sessions
    ]


def _between(base: Sequence[Row], head: Sequence[Row]) -> timedelta:
    """Return the time between all of one commit's rows and all of the other's, negative for none.

    The machine may have changed over that time, which rows of one commit that lie closer do not show.
    """
    old, new = ([row.recorded_at for row in rows] for rows in (base, head))
    return max(min(new) - max(old), min(old) - max(new))


def _estimate(difference: float, spread: Spread, sizes: tuple[int, int], policy: Policy) -> Estimate:
    error = policy.error_at(policy.looks[0])
    half_width = unpaired_half_width(spread, sizes, error=error)
    return Estimate(
        ratio=math.exp(difference),
        low=math.exp(difference - half_width),
        high=math.exp(min(difference + half_width, LARGEST_LOG)),
        confidence=1 - error,
        launches=sum(sizes),
        launch_sd=spread.sd,
        unit="occasions",
    )


def _too_few(sizes: tuple[int, int], gap: timedelta, base: str, head: str) -> str:
    """Return how many sessions there are, how many are needed and why, and the commands to run."""
    far, why = "an hour", ""
    if gap > _LEAST_GAP:
        far, why = f"{math.ceil(gap / timedelta(hours=1))} hours", ", as base and head lie,"
    return (
        f"base was measured in {counted(sizes[0], 'session')} and head in {sizes[1]} (runs less than"
        f" {far} apart{why} are one); {FEWEST_SESSIONS} of each are needed, since the machine's speed changes"
        f" from hour to hour: repeat `perfkit backfill {base[:_SHA_DIGITS]} {head[:_SHA_DIGITS]}` at other"
        f" hours, or `perfkit gate --base {base[:_SHA_DIGITS]} --head {head[:_SHA_DIGITS]}`"
    )


def _to_decide(
    difference: float, spread: Spread, sizes: tuple[int, int], policy: Policy, margin: float
) -> str:
    noise = f"sessions of the same code differ by {100 * spread.sd:.1f} % (sd)"
    error = policy.error_at(policy.looks[0])
    more = sessions_to_decide(
        difference, spread, sizes, error=error, margin=margin, one_sided=policy.one_sided
    )
    if more is None:
        return f"{noise}: no reasonable number of them would decide, `perfkit gate` may"
    return f"{noise}: about {counted(more, 'more session')} of each commit would decide"
