"""Which rank of a distributed loop the others wait for, from the balance of each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from perfkit.model import Balance, PassSummary, Straggler
from perfkit.model.phases import RANKS, RESIDUAL

# It must be last in so many of the steps, and make the others wait for so much of a step.
_MOST_STEPS = 0.75
_WORTH_NAMING = 0.05
_FEWEST_RANKS = 2


def find_straggler(balances: Sequence[Balance]) -> Straggler | None:
    """Return the rank that keeps the others waiting, None where there is none.

    Whoever comes last to a collective waits least in it: so in each step the last is the rank with the least
    time among the other ranks, and what the others have more of it is their wait for that rank.
    """
    steps = min((len(balance.step_s) for balance in balances), default=0)
    if len(balances) < _FEWEST_RANKS or not steps:
        return None
    shortest = min(balances, key=lambda balance: len(balance.step_s))
    kept = range(shortest.typical.start, steps)
    together = [balance.seconds_of(RANKS) for balance in balances]
    last = [min(range(len(balances)), key=lambda rank: together[rank][step]) for step in kept]
    rank = statistics.mode(last)
    others = [other for other in range(len(balances)) if other != rank]
    waited_s = statistics.median(
        statistics.mean(together[other][step] for other in others) - together[rank][step] for step in kept
    )
    step_s = statistics.median(balances[rank].step_s[kept.start : kept.stop])
    if last.count(rank) < _MOST_STEPS * len(last) or waited_s < _WORTH_NAMING * step_s:
        return None
    phase, phase_s = _most_above(balances, rank, kept)
    return Straggler(
        rank=rank,
        last=last.count(rank),
        of=len(last),
        waited_s=waited_s,
        share=waited_s / step_s,
        phase=phase,
        phase_s=phase_s,
    )


def slowest_rank(passes: Sequence[PassSummary]) -> int:
    """Return the rank whose typical step takes longest, or whose whole time does where there are no steps."""
    return max(
        range(len(passes)), key=lambda rank: (passes[rank].typical_step_s or 0.0, passes[rank].total_s)
    )


def _most_above(balances: Sequence[Balance], rank: int, kept: range) -> tuple[str, float]:
    """Return the phase of which a rank has most more than the others, and how much more a step."""
    names = dict.fromkeys(phase.name for balance in balances for phase in balance.phases)
    above = {
        name: _median(balances[rank], name, kept)
        - statistics.median(_median(one, name, kept) for at, one in enumerate(balances) if at != rank)
        for name in (*names, RESIDUAL)
        if name != RANKS
    }
    return max(above.items(), key=lambda item: item[1])


def _median(balance: Balance, name: str, kept: range) -> float:
    seconds = balance.residual_s if name == RESIDUAL else balance.seconds_of(name)
    return statistics.median(seconds[kept.start : kept.stop])
