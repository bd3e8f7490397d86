"""What launches show of a range is what adding up all that may have happened in it gives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from perfkit.stats.bisection import Chain, FloatArray, fit_chain

NO_STEP = math.exp(-0.2)


@dataclass(frozen=True, kw_only=True)
class Range:
    """Launches of pairs, the sums of weights up to each place, the least step, and the confidence."""

    launches: Mapping[tuple[int, int], Sequence[float]]
    shares: Sequence[float]
    least: float = 0.01
    confidence: float = 0.95

    def fitted(self) -> Chain:
        """Return what is reported of it."""
        return fit_chain(
            self.launches, shares=np.array(self.shares), least_step=self.least, confidence=self.confidence
        )


def evenly(places: int) -> list[float]:
    return [place / places for place in range(places + 1)]


def student(value: FloatArray) -> FloatArray:
    return 2 / (math.pi * math.sqrt(3) * (1 + value**2 / 3) ** 2)


class Model:
    """The model of a bisection for a range, with all that may have happened added up one by one."""

    def __init__(self, asked: Range) -> None:
        """Lay out levels four least steps beyond all medians, in quarters of one, or in 240 parts of all."""
        least = asked.least
        medians = [0.0, *(float(np.median(found)) for found in asked.launches.values() if found)]
        low, high = min(medians) - 4 * least, max(medians) + 4 * least
        self.asked = asked
        self.spacing = max(least / 4, (high - low) / 240)
        steps = range(math.floor(low / self.spacing), math.ceil(high / self.spacing) + 1)
        self.levels, self.zero = self.spacing * np.array(steps), steps.index(0)
        # Ten widths of the scatter from half a least step to 20 %, or to ten least steps: 1.2 % is usual, and
        # one of half or double that has the probability that a normal distribution has one deviation off.
        widest = max(0.2, 10 * least)
        self.scales = np.array([least / 2 * (widest / (least / 2)) ** (at / 9) for at in range(10)])
        self.usual = np.exp(-(np.log2(self.scales / 0.012) ** 2) / 2)
        self.usual /= self.usual.sum()
        # A bias of 0.3 least steps, or of half the distance of levels, is normal, up to four deviations.
        self.bias = max(0.3 * least, self.spacing / 2)
        reach = math.ceil(4 * self.bias / self.spacing)
        self.biases = {
            by: math.exp(-((by * self.spacing / self.bias) ** 2) / 2) for by in range(-reach, reach + 1)
        }

    def likelihood(self, values: Sequence[float], levels: FloatArray) -> FloatArray:
        """Return how likely launches are at each level and scale, where a bias leads to another level."""
        unbiased = np.ones((len(levels), len(self.scales)))
        if not values:
            return unbiased
        for value in values:
            unbiased = unbiased * student((value - levels[:, None]) / self.scales) / self.scales
        biased = np.zeros_like(unbiased)
        for at, (by, weight) in itertools.product(range(len(levels)), self.biases.items()):
            if 0 <= at + by < len(levels):
                biased[at] += weight / sum(self.biases.values()) * unbiased[at + by]
        return biased

    def leaps(self) -> FloatArray:
        """Return how probable a jump is from a level to another: of Pareto's distribution, up or down."""

        def beyond(size: float) -> float:
            return self.asked.least / max(size, self.asked.least)

        sizes = [abs(after - before) for before in self.levels for after in self.levels]
        half = self.spacing / 2
        found = np.array([beyond(size - half) - beyond(size + half) for size in sizes]) / 2
        return found.reshape(len(self.levels), -1)

    def nodes(self) -> list[int]:
        """Return the places that were measured, and the ends."""
        return sorted({0, len(self.asked.shares) - 1, *itertools.chain(*self.asked.launches)})

    def histories(self) -> Iterator[tuple[tuple[bool, ...], FloatArray]]:
        """Yield in which gaps jumps are, and how probable all levels at the nodes and the scale are then."""
        nodes, launches = self.nodes(), self.asked.launches
        gaps, size = list(itertools.pairwise(nodes)), len(self.levels)
        fits = [self.likelihood(launches.get((0, node), ()), self.levels) for node in nodes]
        away = np.arange(1 - size, size, dtype=np.float64)
        apart = np.arange(size)[None, :] - np.arange(size)[:, None] + size - 1
        between = [
            self.likelihood(launches.get(gap, ()) if gap[0] else (), self.spacing * away)[apart]
            for gap in gaps
        ]
        leaps, stays = self.leaps(), np.eye(size)
        for jumping in itertools.product((False, True), repeat=len(gaps)):
            paths = self.usual[None, :]
            for at, (first, last) in enumerate(gaps):
                leap = -math.expm1(-0.2 * (self.asked.shares[last] - self.asked.shares[first]))
                moves = leap * leaps if jumping[at] else (1 - leap) * stays
                ways = moves[:, :, None] * between[at] * fits[at + 1]
                paths = paths[..., None, :] * (ways if at else ways[[self.zero]])
            yield jumping, paths


class Expected:
    """What all histories of a range give together, a step anywhere being as likely beforehand as none."""

    def __init__(self, asked: Range) -> None:
        self.model = Model(asked)
        gaps, size = len(self.model.nodes()) - 1, len(self.model.levels)
        self.marginals = np.zeros((gaps + 1, size))
        self.joints = np.zeros((gaps, size, size))
        with_step = without = scale = total = 0.0
        for jumping, paths in self.model.histories():
            likely = paths.sum()
            beforehand = 0.5 / (1 - NO_STEP if any(jumping) else NO_STEP)
            if any(jumping):
                with_step += likely / (1 - NO_STEP)
            else:
                without += likely / NO_STEP
            # The scale is estimated from the launches with steps as rare as they are.
            scale += paths.reshape(-1, len(self.model.scales)).sum(axis=0) @ self.model.scales
            total += likely
            self.marginals[0, self.model.zero] += beforehand * likely
            for gap in range(gaps):
                others = tuple(axis for axis in range(paths.ndim) if axis not in {gap, gap + 1})
                joint = beforehand * paths.sum(axis=others)
                self.marginals[gap + 1] += joint.sum(axis=0)
                if jumping[gap]:
                    self.joints[gap, slice(None) if gap else [self.model.zero]] += joint
        self.evidence, self.scale = with_step / without, scale / total
        everything = self.marginals[0].sum()
        self.marginals /= everything
        self.joints /= everything

    def sizes(self, gap: int, parts: Sequence[float]) -> list[float]:
        """Return the sizes of a gap's jump below which it is with some probabilities.

        A jump between two levels has any of the sizes as near to their distance as to no other.
        """
        distances = range(1 - len(self.model.levels), len(self.model.levels))
        mass = {by: np.trace(self.joints[gap], by) / self.joints[gap].sum() for by in distances}
        found = []
        for part in parts:
            left = part
            for by in distances:
                if left <= mass[by]:
                    found.append(self.model.spacing * (by - 0.5 + left / mass[by]))
                    break
                left -= mass[by]
        return found


# What a test of a sum over all histories can look at has few nodes.
RANGES = {
    "one pair": Range(launches={(0, 3): (0.03, 0.051, 0.034)}, shares=[0, 0.2, 0.5, 1]),
    "faster": Range(launches={(0, 3): (-0.03, -0.051, -0.034)}, shares=[0, 0.2, 0.5, 1], confidence=0.8),
    "an inner place only": Range(launches={(0, 1): (0.021,)}, shares=[0, 0.3, 1]),
    "two pairs": Range(launches={(0, 2): (0.004, -0.002), (0, 5): (0.048, 0.035)}, shares=evenly(5)),
    "neighbours, too": Range(
        launches={(0, 2): (0.031, 0.022), (2, 3): (0.03, 0.012, 0.018), (0, 3): (0.06,)},
        shares=[0, 0.05, 0.4, 1],
    ),
    "a later end": Range(launches={(0, 1): (-0.01,), (1, 2): (0.012, 0.02)}, shares=evenly(3)),
    "a pair without a launch": Range(launches={(0, 2): (), (0, 4): (0.05,), (2, 4): ()}, shares=evenly(4)),
    "a coarse step": Range(launches={(0, 2): (0.3, 0.55), (0, 3): (0.5,)}, shares=evenly(3), least=0.1),
    "far apart": Range(launches={(0, 1): (-1.2, -1.7), (0, 2): (4.3, 4.0, 0.1)}, shares=evenly(2)),
    "one place": Range(launches={(0, 1): (0.02, 0.02)}, shares=[0, 1], confidence=0.5),
}


@pytest.mark.parametrize("name", RANGES)
def test_the_chain_gives_what_all_histories_give_together(name: str) -> None:
    asked = RANGES[name]
    chain, shown = asked.fitted(), Expected(asked)

    assert shown.model.nodes() == list(chain.nodes)
    assert pytest.approx(shown.model.levels) == chain.levels
    assert pytest.approx(shown.marginals, rel=1e-6, abs=1e-12) == chain.marginals
    assert pytest.approx(shown.evidence) == chain.evidence
    assert pytest.approx(shown.scale) == chain.scale
    assert pytest.approx(shown.model.bias) == chain.bias
    tail = (1 - asked.confidence) / 2
    for gap, (jump, joint) in enumerate(zip(chain.jumps, shown.joints, strict=True)):
        assert pytest.approx(joint.sum()) == jump.probability
        assert pytest.approx(joint.sum(axis=1) @ shown.model.levels / joint.sum(), abs=1e-9) == jump.before
        assert pytest.approx(joint.sum(axis=0) @ shown.model.levels / joint.sum(), abs=1e-9) == jump.after
        sizes = shown.sizes(gap, [tail, 0.5, 1 - tail])
        assert pytest.approx(sizes, abs=1e-9) == [jump.low, jump.log_ratio, jump.high]


@pytest.mark.parametrize("name", RANGES)
def test_a_speedup_is_the_mirror_of_a_slowdown(name: str) -> None:
    asked = RANGES[name]
    turned = {pair: [-value for value in found] for pair, found in asked.launches.items()}
    chain, mirror = asked.fitted(), replace(asked, launches=turned).fitted()

    assert pytest.approx(-chain.levels[::-1]) == mirror.levels
    assert pytest.approx(chain.marginals[:, ::-1], abs=1e-12) == mirror.marginals
    assert pytest.approx(chain.evidence) == mirror.evidence
    for jump, other in zip(chain.jumps, mirror.jumps, strict=True):
        assert pytest.approx(jump.probability) == other.probability
        assert pytest.approx([-jump.high, -jump.log_ratio, -jump.low], abs=1e-9) == [
            other.low,
            other.log_ratio,
            other.high,
        ]
        assert pytest.approx([-jump.before, -jump.after], abs=1e-9) == [other.before, other.after]


def test_a_step_among_many_measured_places_is_where_the_launches_have_it() -> None:
    source = np.random.default_rng(2)
    count, place = 60, 41
    launches = {
        (0, at): (0.05 * (at >= place) + 0.005 * source.standard_t(3, 5)).tolist()
        for at in range(1, count + 1)
    }
    chain = Range(launches=launches, shares=evenly(count)).fitted()

    likely = [jump.probability for jump in chain.jumps]
    assert pytest.approx(np.ones(count + 1)) == chain.marginals.sum(axis=1)
    assert likely[place - 1] > 0.99
    assert sum(likely) < 1.1
    assert pytest.approx([0, 0.05], abs=0.003) == [
        chain.jumps[place - 1].before,
        chain.jumps[place - 1].after,
    ]
