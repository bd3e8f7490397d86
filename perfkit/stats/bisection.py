"""Which commit of many made a benchmark slower: what to measure next, and when enough is known.

The places of a range are numbered from 0 (good) to n (bad). Launches compare a place with place 0 in
lockstep; ``posterior`` infers where the steps are. The next launches go where they yield most
information per second, until one place has a step at the required confidence, or the ends are known to be
equal. ``docs/method.md`` has the model and how often it is right.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

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
_LEAST_SCALE, _PAIR_BIAS, _SPACING, _GRID_REACH = 0.5, 0.3, 0.25, 4.0
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
    low, high = min(middles) - _GRID_REACH * least_step, max(middles) + _GRID_REACH * least_step
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


Status = Literal["found", "no change", "undecided"]

# More likely than not.
_LIKELY = 0.5
# A further step is looked for while what is expected of it is so large a part of the largest that was found.
_FURTHER = 0.05
# This many launches may be asked for at once, where laying out a pair costs more than a launch of it.
_BATCHES = (1, 2, 3, 4, 6, 8)
# A launch with fewer expected bits is not worth its time.
_LEAST_BITS = 0.002
# A step is taken to be so high while nothing at all is measured.
_USUAL_STEP = 0.05


@dataclass(frozen=True, kw_only=True)
class MeasuredPair:
    """Launches of two places, ``base`` before ``head``: the natural logarithm of head / base of each."""

    base: int
    head: int
    log_ratios: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds that it takes to lay out a new pair and collect its benchmarks, and those of one launch."""

    opening_s: float
    launch_s: float


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How sure a conclusion has to be.

    ``alpha`` is the most that a commit may be named where nothing changed; ``least_step`` is a natural
    logarithm; ``confirming`` launches compare a named place with the usable one before it.
    """

    confidence: float = 0.95
    alpha: float = 0.01
    least_step: float = math.log(1.01)
    most_launches: int | None = None
    confirming: int = 0


@dataclass(frozen=True, kw_only=True)
class Measure:
    """This many launches of a pair are what to do next."""

    base: int
    head: int
    launches: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """A change of level: at the one place named, or at one of several neighbours.

    There are several where those between cannot be measured, or where too little is known. ``log_ratio`` is
    the size of the step given that it is there, ``low`` to ``high`` its interval at the confidence.
    """

    places: tuple[int, ...]
    probability: float
    log_ratio: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The end of a search: its steps, the largest first, and in ``why`` a sentence on what it rests on.

    Of "undecided" the steps are where a step is most likely, if there is one.
    """

    steps: tuple[Step, ...]
    status: Status
    why: str


def next_move(
    pairs: Sequence[MeasuredPair],
    *,
    weights: Sequence[float],
    unusable: Collection[int] = (),
    costs: Costs,
    rules: Rules,
    open_pair: tuple[int, int] | None = None,
) -> Measure | Conclusion:
    """Return what to measure next, or what has been found.

    ``weights`` has for each of the places 1 to n how likely a step is there before anything is measured, up
    to a factor. Places that are ``unusable`` are not measured. Launches of ``open_pair``, which is laid out,
    cost no opening. The same arguments always give the same answer.
    """
    if not (0 < costs.launch_s < math.inf and 0 <= costs.opening_s < math.inf):
        raise ValueError(f"a launch takes some time and opening a pair no less than none: {costs}")
    search = _search(pairs, weights=weights, unusable=unusable, rules=rules)
    left = math.inf if rules.most_launches is None else rules.most_launches - sum(search.counts.values())
    conclusion = _concluded(search)
    if conclusion is not None:
        missing = next(search.unconfirmed(conclusion), None)
        return conclusion if missing is None or left <= 0 else _at_most(missing, left)
    if left <= 0:
        return _undecided(
            search, f"after {rules.most_launches} launches, which were allowed, it is not clear"
        )
    move = _best_move(search, costs, open_pair)
    if move is None:
        return _undecided(search, "further launches would add next to nothing")
    return _at_most(move, left)


def posterior(
    pairs: Sequence[MeasuredPair], *, weights: Sequence[float], unusable: Collection[int] = (), rules: Rules
) -> tuple[float, ...]:
    """Return for each of the places 1 to n the probability that a step is there.

    The sum is below one where there may be none, and above one where there are several. Raises ValueError as
    ``next_move`` does.
    """
    search = _search(pairs, weights=weights, unusable=unusable, rules=rules)
    return tuple(float(one) for one in search.by_place())


@dataclass(frozen=True, kw_only=True)
class _Gap:
    """The places ``first`` to ``last`` between a measured place and the next, and the jump among them."""

    first: int
    last: int
    jump: Jump
    splits: bool
    certain: bool

    @property
    def pair(self) -> tuple[int, int]:
        return self.first - 1, self.last


@dataclass(frozen=True, kw_only=True)
class _Search:
    """A range and the inference from its launches."""

    chain: Chain
    gaps: tuple[_Gap, ...]
    shares: FloatArray
    usable: IntArray
    counts: Mapping[tuple[int, int], int]
    rules: Rules

    def by_place(self) -> FloatArray:
        parts = []
        for gap in self.gaps:
            within = np.diff(self.shares[gap.first - 1 : gap.last + 1])
            parts.append(gap.jump.probability * within / max(within.sum(), np.finfo(np.float64).tiny))
        return np.concatenate(parts)

    def open_runs(self) -> list[tuple[_Gap, ...]]:
        grouped = itertools.groupby(self.gaps, key=lambda gap: gap.certain)
        runs = [tuple(found) for certain, found in grouped if not certain]
        return sorted(runs, key=lambda run: -sum(_expected(gap) for gap in run))

    def unconfirmed(self, conclusion: Conclusion) -> Iterator[Measure]:
        for gap in self.gaps:
            missing = self.rules.confirming - self.counts.get(gap.pair, 0)
            if gap.certain and conclusion.status == "found" and missing > 0:
                yield Measure(base=gap.first - 1, head=gap.last, launches=missing)


def _search(
    pairs: Sequence[MeasuredPair], *, weights: Sequence[float], unusable: Collection[int], rules: Rules
) -> _Search:
    if not (0.5 < rules.confidence < 1 and 0 < rules.alpha < 1 and 0 < rules.least_step < math.inf):  # noqa: PLR2004
        raise ValueError(
            f"a confidence lies between 0.5 and 1, alpha between 0 and 1, a step above 0: {rules}"
        )
    shares = _shares(weights)
    launches = _by_pair(pairs, len(weights))
    usable = _usable(unusable, len(weights))
    chain = fit_chain(launches, shares=shares, least_step=rules.least_step, confidence=rules.confidence)
    sure = chain.evidence >= 1 / rules.alpha
    gaps = []
    for before, last, jump in zip(chain.nodes[:-1], chain.nodes[1:], chain.jumps, strict=True):
        splits = bool(((shares[before] < shares[usable]) & (shares[usable] < shares[last])).any())
        certain = sure and not splits and jump.probability >= rules.confidence
        gaps.append(_Gap(first=int(before) + 1, last=int(last), jump=jump, splits=splits, certain=certain))
    counts = {pair: len(found) for pair, found in launches.items()}
    return _Search(chain=chain, gaps=tuple(gaps), shares=shares, usable=usable, counts=counts, rules=rules)


def _by_pair(pairs: Sequence[MeasuredPair], last: int) -> dict[tuple[int, int], list[float]]:
    found: dict[tuple[int, int], list[float]] = {}
    for pair in pairs:
        if not 0 <= pair.base < pair.head <= last:
            raise ValueError(f"places {pair.base} and {pair.head} are no pair in a range from 0 to {last}")
        if not all(math.isfinite(one) for one in pair.log_ratios):
            raise ValueError(f"a launch of places {pair.base} and {pair.head} is not a finite number")
        if pair.log_ratios:
            found.setdefault((pair.base, pair.head), []).extend(pair.log_ratios)
    following = set(itertools.pairwise(sorted(set[int]().union(*found))))
    for pair_places in found:
        if pair_places[0] != 0 and pair_places not in following:
            base, head = pair_places
            raise ValueError(f"places {base} and {head} are neither neighbours as measured nor a pair with 0")
    return found


def _shares(weights: Sequence[float]) -> FloatArray:
    found = np.asarray(weights, dtype=np.float64)
    if not len(found):
        raise ValueError("a range has one place at least after its first")
    if not np.isfinite(found).all() or (found < 0).any() or not found.any():
        raise ValueError("weights are finite, none is below zero, and one at least is above it")
    shares = np.concatenate([[0.0], np.cumsum(found)])
    return np.asarray(shares / shares[-1])


def _usable(unusable: Collection[int], last: int) -> IntArray:
    strange = [place for place in unusable if not 0 < place < last]
    if strange:
        raise ValueError(f"place {min(strange)} is none of those between 0 and {last}, which may be unusable")
    return np.setdiff1d(np.arange(1, last + 1), np.array(sorted(unusable), dtype=np.intp))


def _expected(gap: _Gap) -> float:
    return gap.jump.probability * abs(gap.jump.log_ratio)


def _probability(run: Sequence[_Gap]) -> float:
    return sum(gap.jump.probability for gap in run)


def _concluded(search: _Search) -> Conclusion | None:
    """Return what is known for sure, or None while something is open."""
    least = search.rules.least_step
    different = _ends_differ(search)
    ends_measured = (0, len(search.shares) - 1) in search.counts
    if ends_measured and 1 - different >= search.rules.confidence:
        return Conclusion(
            steps=(),
            status="no change",
            why=f"both ends are within {math.expm1(least):.1%} of each other at {1 - different:.1%}",
        )
    certain = [gap for gap in search.gaps if gap.certain]
    if not certain:
        return None
    largest = max(abs(gap.jump.log_ratio) for gap in certain)
    if any(sum(map(_expected, run)) >= _FURTHER * largest for run in search.open_runs()):
        return None
    return Conclusion(
        steps=_largest_first(_step(search, gap) for gap in certain),
        status="found",
        why=f"all launches are {_times(search.chain.evidence)} as likely with a step as without",
    )


def _undecided(search: _Search, why: str) -> Conclusion:
    certain = [_step(search, gap) for gap in search.gaps if gap.certain]
    likely = [_likely_step(search, run) for run in search.open_runs() if _probability(run) >= _LIKELY]
    if certain:
        why = f"{why} whether there is another step, or where" if likely else why
    return Conclusion(
        steps=_largest_first([*certain, *likely]), status="found" if certain else "undecided", why=why
    )


def _times(evidence: float) -> str:
    return f"{evidence:,.0f} times" if evidence < 1e6 else "more than a million times"  # noqa: PLR2004


def _largest_first(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(sorted(steps, key=lambda step: -abs(step.log_ratio)))


def _step(search: _Search, gap: _Gap) -> Step:
    weights = np.diff(search.shares)
    places = [place for place in range(gap.first, gap.last + 1) if weights[place - 1] > 0]
    return _as_step(places, gap.jump.probability, gap.jump)


def _likely_step(search: _Search, run: Sequence[_Gap]) -> Step:
    first, last = run[0].first, run[-1].last
    chances = np.concatenate([[0.0], np.cumsum(search.by_place()[first - 1 : last])])
    wanted = search.rules.confidence * chances[-1]
    ends = np.searchsorted(chances, chances[:-1] + wanted * (1 - 1e-9))
    lengths = np.where(ends < len(chances), ends - np.arange(len(ends)), len(chances))
    start = int(lengths.argmin())
    places = range(first + start, first + int(ends[start]))
    jump = max(run, key=_expected).jump
    return _as_step(places, float(chances[ends[start]] - chances[start]), jump)


def _as_step(places: Sequence[int], probability: float, jump: Jump) -> Step:
    return Step(
        places=tuple(places),
        probability=min(1.0, probability),
        log_ratio=jump.log_ratio,
        low=jump.low,
        high=jump.high,
    )


def _ends_differ(search: _Search) -> float:
    return float(search.chain.marginals[-1, np.abs(search.chain.levels) >= search.rules.least_step].sum())


def _at_most(move: Measure, launches: float) -> Measure:
    return replace(move, launches=int(min(move.launches, launches)))


def _best_move(search: _Search, costs: Costs, open_pair: tuple[int, int] | None) -> Measure | None:
    pairs, chances, distance = _candidates(search)
    before = np.array([search.counts.get(pair, 0) for pair in pairs])
    opening = np.array([0.0 if pair == open_pair else costs.opening_s for pair in pairs])
    batches = np.array(_BATCHES)
    gained = _precision(search.chain, before[:, None] + batches) - _precision(search.chain, before)[:, None]
    bits = expected_bits(chances[:, None], distance * np.sqrt(gained))
    if bits[:, 0].max() < _LEAST_BITS:
        return None
    rates = bits / (opening[:, None] + batches * costs.launch_s)
    row, column = np.unravel_index(int(rates.argmax()), rates.shape)
    base, head = pairs[row]
    return Measure(base=base, head=head, launches=int(batches[column]))


def _candidates(search: _Search) -> tuple[list[tuple[int, int]], FloatArray, float]:
    """Return pairs, how likely each is on the far side of the step, and how far the sides are apart."""
    last = len(search.shares) - 1
    different = _ends_differ(search)
    if different < _LIKELY:
        seen = abs(float(search.chain.marginals[-1] @ search.chain.levels)) / max(different, 1e-3)
        distance = max(seen if search.counts else _USUAL_STEP, search.rules.least_step)
        return [(0, last)], np.array([different]), distance
    run = search.open_runs()[0]
    jump = max(run, key=_expected).jump
    beyond = search.chain.beyond((jump.before + jump.after) / 2, upwards=jump.after > jump.before)
    chances = np.interp(search.shares, search.shares[search.chain.nodes], beyond)
    heads = search.usable[(run[0].first - 1 <= search.usable) & (search.usable <= run[-1].last)]
    pairs = [(0, int(head)) for head in heads]
    direct = [gap for gap in run if gap.first > 1 and not gap.splits]
    pairs += [gap.pair for gap in direct]
    known = np.concatenate([chances[heads], [gap.jump.probability for gap in direct]])
    return pairs, known, abs(jump.log_ratio)


def _precision(chain: Chain, launches: IntArray) -> FloatArray:
    return np.asarray(launches / ((LOCATION_ERROR * chain.scale) ** 2 + launches * chain.bias**2))


# How many probabilities and distances the table has, and its largest distance.
_CHANCES, _DISTANCES, _LARGEST_DISTANCE = 65, 81, 8.0
# Readings are looked at in such steps, to this many deviations on either side.
_STEP, _REACH = 0.1, 5


def expected_bits(chances: FloatArray, distances: FloatArray) -> FloatArray:
    """Return the expected information of a reading about which of two levels is true, in bits.

    ``chances`` are the probabilities of one of them beforehand, ``distances`` how many deviations of the
    reading both are apart: the mutual information of Shannon's binary channel with normal noise.
    """
    table = _table()
    last = np.array(table.shape) - 1
    row = np.arccos(1 - 2 * np.clip(chances, 0, 1)) / math.pi * last[0]
    column = np.minimum(distances / _LARGEST_DISTANCE, 1.0) * last[1]
    i = np.minimum(row.astype(np.intp), last[0] - 1)
    j = np.minimum(column.astype(np.intp), last[1] - 1)
    u, v = row - i, column - j
    return np.asarray(
        (1 - u) * ((1 - v) * table[i, j] + v * table[i, j + 1])
        + u * ((1 - v) * table[i + 1, j] + v * table[i + 1, j + 1])
    )


@lru_cache(maxsize=1)
def _table() -> FloatArray:
    chance = ((1 - np.cos(np.linspace(0, math.pi, _CHANCES))) / 2)[:, None, None]
    distance = np.linspace(0, _LARGEST_DISTANCE, _DISTANCES)[:, None]
    reading = np.arange(-_REACH, _LARGEST_DISTANCE + _REACH, _STEP)
    near, far = np.exp(-0.5 * reading**2), np.exp(-0.5 * (reading - distance) ** 2)
    mixed = (1 - chance) * near + chance * far
    bits = (1 - chance) * near * np.log2(near / mixed) + chance * far * np.log2(far / mixed)
    return np.asarray(bits.sum(axis=2) * _STEP / math.sqrt(2 * math.pi))
