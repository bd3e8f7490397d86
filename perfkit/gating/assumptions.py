"""What a benchmark's own launches say against the assumptions that its interval rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfkit.gating.judge import pair_location
from perfkit.model import SIDES
from perfkit.model.comparisons import Estimate, LaunchPair
from perfkit.stats.interval import halves_differ, neighbours_alike

# An assumption that holds is doubted in one of a thousand benchmarks. Fewer launches show too little.
_DOUBTED = 0.001
_FEWEST_LAUNCHES = 12


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
