"""The levels of a benchmark along commits as a hidden Markov chain: where they jump, by how much, how surely.

Each commit has a level, the log ratio of its time to that of the first commit. From one commit to the next it
stays or, with a small probability, jumps. Only the levels of measured commits are looked at: between two of
them lies a gap, and how probable a jump in it is follows from the weights of the commits there. Levels lie on
a grid; the scatter of launches, which is not known either, takes ten values. The forward-backward algorithm
(Baum et al. 1970; Rabiner 1989) then gives all probabilities exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

# How many steps a range has a priori, in a Poisson distribution. That there is any is then made as likely as
# that there is none, so this is how rare a second one is.
_STEPS = 0.2
# Launches have Student's t distribution of three degrees: so heavy are the tails of the recorded launches of
# benchmarks/calibration, each divided by the robust deviation of its gate.
_DEGREES = 3.0
# The scale of that distribution before anything is measured: 1.2 % is the middle of the recorded gates.
_USUAL_SCALE, _SCALE_FACTOR = 0.012, 2.0
_SCALES, _LARGEST_SCALE = 10, 0.2
# In parts of the least step: the smallest scale, the deviation of the bias that all launches of a pair may
# have in common (the layout of its code), how far levels are from each other on the grid, and its reach.
_LEAST_SCALE, _PAIR_BIAS, _SPACING, _REACH = 0.5, 0.3, 0.25, 4.0
_MOST_LEVELS = 240
# A bias of this many deviations is the largest considered.
_BLURRED = 4
# The scale of Student's t of three degrees times this is the deviation that a location from it has (the
# inverse of the square root of Fisher's information, (v + 1) / (v + 3)).
LOCATION_ERROR = math.sqrt((_DEGREES + 3) / (_DEGREES + 1))


@dataclass(frozen=True, kw_only=True)
class Jump:
    """A jump between two measured places: its probability, and its size given that it is there."""

    probability: float
    log_ratio: float
    low: float
    high: float
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The posterior for the places 0 to n, with "no step" and "a step" equally likely beforehand.

    ``marginals`` has the probability of each of the ``levels`` at each of the measured ``nodes`` (nodes x
    levels), ``jumps`` one entry a gap. ``evidence`` is how many times as likely the launches are with a step;
    ``scale`` and ``bias`` are of the launches and of pairs.
    """

    nodes: IntArray
    levels: FloatArray
    marginals: FloatArray
    jumps: tuple[Jump, ...]
    evidence: float
    scale: float
    bias: float

    def beyond(self, level: float, *, upwards: bool) -> FloatArray:
        """Return for each node the probability that its level is above one, or below it."""
        side = self.levels > level if upwards else self.levels < level
        return np.asarray(self.marginals[:, side].sum(axis=1))


def fit_chain(
    launches: Mapping[tuple[int, int], Sequence[float]],
    *,
    shares: FloatArray,
    least_step: float,
    confidence: float,
) -> Chain:
    """Return the posterior given launches of pairs (base, head), as natural logarithms of head / base."""
    nodes = np.array(sorted({0, len(shares) - 1}.union(*launches)), dtype=np.intp)
    grid = _grid(launches.values(), least_step)
    fits = [grid.fit(launches.get((0, int(node)), ()), grid.levels) for node in nodes]
    between = [launches.get((int(i), int(j)), ()) if i else () for i, j in itertools.pairwise(nodes)]
    links = [grid.link(found) for found in between]
    passes = _pass(grid, fits, links, -np.expm1(-_STEPS * np.diff(shares[nodes])))
    return _summary(grid, nodes, passes, confidence)


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """Levels, the place of zero among them, scales with prior weights, and jumps from level to level."""

    levels: FloatArray
    spacing: float
    zero: int
    scales: FloatArray
    weights: FloatArray
    jump: FloatArray
    bias: float
    blur: FloatArray

    def fit(self, values: Sequence[float], levels: FloatArray) -> FloatArray:
        if not len(values):
            return np.ones((len(levels), len(self.scales)))
        off = (np.asarray(values)[:, None, None] - levels[:, None]) / self.scales
        logs = -(_DEGREES + 1) / 2 * np.log1p(off**2 / _DEGREES).sum(axis=0)
        logs -= len(values) * np.log(self.scales)
        reach = len(self.blur) // 2
        padded = np.pad(np.exp(logs - logs.max()), ((reach, reach), (0, 0)))
        return np.asarray(sum(weight * padded[at : at + len(levels)] for at, weight in enumerate(self.blur)))

    def link(self, values: Sequence[float]) -> FloatArray | None:
        if not len(values):
            return None
        last = len(self.levels) - 1
        by_difference = self.fit(values, self.spacing * np.arange(-last, last + 1, dtype=np.float64))
        index = np.arange(last + 1)
        return np.ascontiguousarray(by_difference.T[:, index[None, :] - index[:, None] + last])


def _grid(series: Iterable[Sequence[float]], least_step: float) -> _Grid:
    """Return a grid that reaches beyond the medians of all pairs."""
    middles = [0.0, *(float(np.median(values)) for values in series if len(values))]
    low, high = min(middles) - _REACH * least_step, max(middles) + _REACH * least_step
    spacing = max(_SPACING * least_step, (high - low) / _MOST_LEVELS)
    zero = math.ceil(-low / spacing)
    levels = spacing * np.arange(-zero, math.ceil(high / spacing) + 1, dtype=np.float64)
    scales = np.geomspace(_LEAST_SCALE * least_step, max(_LARGEST_SCALE, 10 * least_step), _SCALES)
    weights = np.exp(-0.5 * (np.log(scales / _USUAL_SCALE) / math.log(_SCALE_FACTOR)) ** 2)
    size = np.abs(levels[:, None] - levels[None, :])
    bias = max(_PAIR_BIAS * least_step, spacing / 2)
    reach = math.ceil(_BLURRED * bias / spacing)
    blur = np.exp(-0.5 * (spacing * np.arange(-reach, reach + 1) / bias) ** 2)
    return _Grid(
        levels=levels,
        spacing=spacing,
        zero=zero,
        scales=scales,
        weights=weights,
        jump=(_larger(size - spacing / 2, least_step) - _larger(size + spacing / 2, least_step)) / 2,
        bias=bias,
        blur=blur,
    )


def _larger(size: FloatArray, least_step: float) -> FloatArray:
    return np.asarray(least_step / np.maximum(size, least_step))


@dataclass(frozen=True, kw_only=True)
class _Passes:
    """The result of the forward and backward passes over the nodes."""

    marginals: FloatArray
    joints: FloatArray
    scales: FloatArray
    unchanged: float


def _pass(
    grid: _Grid, fits: Sequence[FloatArray], links: Sequence[FloatArray | None], leaps: FloatArray
) -> _Passes:
    """Run over the nodes forward and backward; distributions are over levels x scales, up to factors."""
    start = np.zeros((len(grid.levels), len(grid.scales)))
    start[grid.zero] = grid.weights
    forward, unchanged = [start], grid.weights
    for fit, link, leap in zip(fits[1:], links, leaps, strict=True):
        moved = _moved(grid, forward[-1], link, leap) * fit
        total = moved.sum()
        forward.append(moved / total)
        same = fit[grid.zero] if link is None else fit[grid.zero] * link[:, grid.zero, grid.zero]
        unchanged = unchanged * (1 - leap) * same / total
    marginals, joints = [forward[-1]], []
    behind = fits[-1]
    for at in range(len(leaps) - 1, -1, -1):
        ahead, link, leap = forward[at], links[at], leaps[at]
        turned = None if link is None else link.transpose(0, 2, 1)
        after = _moved(grid, behind, turned, leap)
        total = (ahead * after).sum()
        pairs = ahead @ behind.T if link is None else _linked(ahead, behind, link)
        joints.append(leap * grid.jump * pairs / total)
        marginals.append(ahead * after / total)
        behind = fits[at] * after
        behind = behind / behind.max()
    return _Passes(
        marginals=np.array([one.sum(axis=1) for one in reversed(marginals)]),
        joints=np.array(joints[::-1]),
        scales=forward[-1].sum(axis=0),
        unchanged=float(unchanged.sum()),
    )


def _moved(grid: _Grid, mass: FloatArray, link: FloatArray | None, leap: float) -> FloatArray:
    if link is None:
        return np.asarray((1 - leap) * mass + leap * (grid.jump @ mass))
    moves = (leap * grid.jump + (1 - leap) * np.eye(len(grid.levels))) * link
    return np.asarray(np.matmul(mass.T[:, None, :], moves).squeeze(axis=1).T)


def _linked(ahead: FloatArray, behind: FloatArray, link: FloatArray) -> FloatArray:
    return np.asarray((ahead.T[:, :, None] * behind.T[:, None, :] * link).sum(axis=0))


def _summary(grid: _Grid, nodes: IntArray, passes: _Passes, confidence: float) -> Chain:
    changed = max(0.0, 1 - passes.unchanged)
    # The chain has a step this many times as likely as none beforehand.
    unchanged = math.expm1(_STEPS) * passes.unchanged
    weight = 1 / (changed + unchanged)
    marginals = passes.marginals.copy()
    marginals[:, grid.zero] += unchanged - passes.unchanged
    return Chain(
        nodes=nodes,
        levels=grid.levels,
        marginals=weight * marginals,
        jumps=tuple(_jump(grid, weight * joint, confidence) for joint in passes.joints),
        evidence=changed / unchanged if unchanged else math.inf,
        scale=float(passes.scales @ grid.scales),
        bias=grid.bias,
    )


def _jump(grid: _Grid, joint: FloatArray, confidence: float) -> Jump:
    """Return the jump in a gap from the probabilities of its levels before and after."""
    probability = float(joint.sum())
    if not probability:
        return Jump(probability=0.0, log_ratio=0.0, low=0.0, high=0.0, before=0.0, after=0.0)
    last = len(grid.levels) - 1
    index = np.arange(last + 1)
    by_size = np.bincount((index[None, :] - index[:, None] + last).ravel(), weights=joint.ravel())
    edges = grid.spacing * (np.arange(2 * last + 2) - last - 0.5)
    below = np.pad(np.cumsum(by_size), (1, 0)) / probability
    tail = (1 - confidence) / 2
    low, middle, high = np.interp([tail, 0.5, 1 - tail], below, edges)
    return Jump(
        probability=min(1.0, probability),
        log_ratio=float(middle),
        low=float(low),
        high=float(high),
        before=float(joint.sum(axis=1) @ grid.levels / probability),
        after=float(joint.sum(axis=0) @ grid.levels / probability),
    )
