"""Samples measured at different times: their differences include what the same code differs by then."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfkit.stats.interval import student_quantile
from perfkit.stats.planning import distance_to_margin

_MOST_OCCASIONS = 100


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A standard deviation and the degrees of freedom it rests on."""

    sd: float
    degrees: int


def pooled_spread(
    samples: Sequence[Sequence[float]], variance: Callable[[Sequence[float]], float] = statistics.variance
) -> Spread | None:
    """Return the deviation within samples, pooled over them; None where no sample has two values."""
    repeated = [sample for sample in samples if len(sample) > 1]
    degrees = sum(len(sample) - 1 for sample in repeated)
    if not degrees:
        return None
    squares = sum(variance(sample) * (len(sample) - 1) for sample in repeated)
    return Spread(sd=math.sqrt(squares / degrees), degrees=degrees)


def half_width_apart(spread: Spread, sizes: tuple[int, int], *, error: float) -> float:
    """Return the half-width of the difference of two means, of so many values each, by Student's t."""
    scale = math.sqrt(sum(1 / size for size in sizes))
    return student_quantile(spread.degrees, error) * spread.sd * scale


def occasions_to_decide(
    difference: float,
    spread: Spread,
    sizes: tuple[int, int],
    *,
    error: float,
    margin: float,
    one_sided: bool = False,
) -> int | None:
    """Return how many more values of each sample would decide, None where a hundred would not.

    ``difference`` (a log ratio) and the spread are taken for the true ones; each value adds a degree of
    freedom.
    """
    distance = distance_to_margin(difference, margin, one_sided=one_sided)
    for more in range(1, _MOST_OCCASIONS + 1):
        grown = Spread(sd=spread.sd, degrees=spread.degrees + 2 * more)
        if half_width_apart(grown, (sizes[0] + more, sizes[1] + more), error=error) < distance:
            return more
    return None
