"""How a session's times differ from those of the last runs here, which nobody measured beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from perfkit.ledger.history.steps import noise_of
from perfkit.ledger.history.trends import occasions, select
from perfkit.model.history import Moved, Trend
from perfkit.model.results import WALL_TIME, Row


def moved_since_last(rows: Iterable[Row], trends: Iterable[Trend]) -> list[Moved]:
    """Return how each timed benchmark of a session moved, the farthest first.

    ``trends`` are of the session's machine and environment, in the order of recording; those of another
    version of a benchmark, of other ways to measure, and the session's own run are left out. As in trends, a
    level is the quickest round.
    """
    known = {(one.benchmark, one.version): one for one in trends if not one.lockstep}
    found = []
    for row in rows:
        outcome = row.outcome
        trend = known.get((outcome.benchmark.name, outcome.benchmark.version))
        if trend is None or outcome.metric != WALL_TIME or outcome.status != "ok" or not outcome.values:
            continue
        past = select(trend, [place for place, run in enumerate(trend.run_ids) if run != row.run_id])
        level = min(outcome.values)
        if len(past) and min(*past.levels, level, math.inf) > 0:
            spread = noise_of(select(past, _last_of_each(past)), ())
            ratio = level / past.levels[-1]
            found.append(
                Moved(benchmark=outcome.benchmark.name, ratio=ratio, commit=past.commits[-1], spread=spread)
            )
    return sorted(found, key=lambda one: -one.size)


def _last_of_each(trend: Trend) -> Sequence[int]:
    """Return the place of the last run of each occasion."""
    return sorted({occasion: place for place, occasion in enumerate(occasions(trend))}.values())
