"""These functions make simulated and recorded launches of identical sides, and whole decisions on them.

A model gives log ratios head / base in shape (series, launches). In each, base and head may be swapped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from perfkit.gating.design import gate_policy
from perfkit.gating.judge import look_interval
from perfkit.model.comparisons import LaunchPair, Policy
from perfkit.stats.interval import location

FloatArray = npt.NDArray[np.float64]
Random = np.random.Generator
Model = Callable[[Random, tuple[int, int]], FloatArray]
Launches = tuple[tuple[FloatArray, FloatArray], ...]
Recorded = Mapping[str, Launches]

POLICY = gate_policy(alpha=0.01, family=6, served=True)
# As many launches has a generation where the import of the code takes long.
LAUNCHES_PER_GENERATION = 4
# Real launches of identical code; ``stats/recorded_launches.md`` explains where and how they were recorded.
RECORDED_FILE = Path(__file__).parent / "stats" / "recorded_launches.npz"
UNDECIDED = 0  # where a look would stand
# Series are as long as this. Looks go on without end, but those after it have a tenth of alpha together.
FOLLOWED = 89


def normal(sd: float) -> Model:
    """Launches that scatter normally."""
    return lambda random, shape: random.normal(0, sd, shape)


def student(degrees: float, scale: float) -> Model:
    """Heavy tails, both ways."""
    return lambda random, shape: scale * random.standard_t(degrees, shape)


def lognormal(scale: float) -> Model:
    """Two sides that are each now and then much slower, never much faster."""

    def draw(random: Random, shape: tuple[int, int]) -> FloatArray:
        difference: FloatArray = scale * (random.lognormal(size=shape) - random.lognormal(size=shape))
        return difference

    return draw


def bursts(share: float, sd: float) -> Model:
    """A ``share`` of launches during which one of the sides took 20 to 60 % longer."""

    def draw(random: Random, shape: tuple[int, int]) -> FloatArray:
        hit = random.random(shape) < share
        side: FloatArray = random.choice([-1.0, 1.0], shape)
        return random.normal(0, sd, shape) + hit * side * np.log1p(random.uniform(0.2, 0.6, shape))

    return draw


def two_state(distance: float, sd: float) -> Model:
    """Launches in which exactly one of the sides, by lot, is slow for as long as its process lives."""

    def draw(random: Random, shape: tuple[int, int]) -> FloatArray:
        return distance * random.choice([-1.0, 1.0], shape) + random.normal(0, sd, shape)

    return draw


def bimodal(distance: float, sd: float) -> Model:
    """Processes that are either fast or slow for as long as they live, on each side by a coin of its own."""

    def draw(random: Random, shape: tuple[int, int]) -> FloatArray:
        return distance * (random.integers(0, 2, shape) - random.integers(0, 2, shape)) + random.normal(
            0, sd, shape
        )

    return draw


def drift(sd: float) -> Model:
    """A machine that grows three times as noisy from the first launch to the last, or the other way."""

    def draw(random: Random, shape: tuple[int, int]) -> FloatArray:
        growth = np.linspace(0.5, 1.5, shape[1])
        return random.normal(0, sd, shape) * np.where(
            random.random((shape[0], 1)) < 0.5, growth, growth[::-1]
        )

    return draw


def autocorrelated(sd: float, correlation: float) -> Model:
    """Neighbouring launches that resemble each other (first order autoregression)."""

    def draw(random: Random, shape: tuple[int, int]) -> FloatArray:
        steps = random.normal(0, sd, shape)
        for launch in range(1, shape[1]):
            steps[:, launch] *= (1 - correlation**2) ** 0.5
            steps[:, launch] += correlation * steps[:, launch - 1]
        return steps

    return draw


def shared_bias(sd: float, bias_sd: float) -> Model:
    """Launches of one generation share a bias."""

    def draw(random: Random, shape: tuple[int, int]) -> FloatArray:
        groups = generations(shape[1], LAUNCHES_PER_GENERATION)
        bias = random.normal(0, bias_sd, (shape[0], groups[-1] + 1))
        return random.normal(0, sd, shape) + bias[:, groups]

    return draw


def generations(launches: int, each: int) -> npt.NDArray[np.intp]:
    """Return the generation of each of so many launches."""
    return np.arange(launches) // each


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """For each series the launches after which it was decided, ``UNDECIDED`` where it never was."""

    regressed: npt.NDArray[np.intp]
    improved: npt.NDArray[np.intp]
    unchanged: npt.NDArray[np.intp]
    missed: npt.NDArray[np.bool_]  # the interval of some look does not contain the truth


def decide(
    logs: FloatArray, *, margin: float, policy: Policy = POLICY, truth: float | None = None, each: int = 1
) -> Decisions:
    """Judge every series at every look, stopping at the first that decides, as the gate does.

    ``truth`` is the true ratio, which the log ratios already hold; with it, the looks at which an interval
    misses it are noticed, those after the decision included. A generation has ``each`` launches.
    """
    regressed, improved, unchanged = (np.full(len(logs), UNDECIDED) for _ in range(3))
    missed = np.zeros(len(logs), dtype=bool)
    looked_at = np.arange(len(logs))
    for look in (look for look in policy.looks if look <= logs.shape[1]):
        seen = logs[looked_at, :look]
        interval = look_interval(seen, generations(look, each), policy, error=policy.error_at(look))
        low, high = (np.exp(interval.centre + sign * interval.half_width) for sign in (-1, 1))
        is_open = (regressed + improved + unchanged)[looked_at] == UNDECIDED
        regressed[looked_at[is_open & (low > 1 + margin)]] = look
        improved[looked_at[is_open & (high < 1 - margin)]] = look
        unchanged[looked_at[is_open & (low > 1 - margin) & (high < 1 + margin)]] = look
        if truth is not None:
            missed[looked_at] |= (low > truth) | (high < truth)
        else:
            looked_at = np.flatnonzero(regressed + improved + unchanged == UNDECIDED)
            if not looked_at.size:
                break
    return Decisions(regressed=regressed, improved=improved, unchanged=unchanged, missed=missed)


def as_pairs(logs: FloatArray) -> list[LaunchPair]:
    """Return launches of one round each that have these log ratios."""
    return [
        LaunchPair(launch=launch, group=int(server), base_s=(1.0,), head_s=(float(np.exp(log)),))
        for launch, (log, server) in enumerate(
            zip(logs, generations(len(logs), LAUNCHES_PER_GENERATION), strict=True)
        )
    ]


def load_recorded(file: Path) -> Recorded:
    """Return recorded launches, per series the (base, head) rounds of each in measured order.

    The file is an ``.npz`` with arrays ``SERIES/base`` and ``SERIES/head`` of shape (launches, rounds), in
    seconds per iteration, NaN after the last round of a shorter launch.
    """
    with np.load(file) as arrays:
        names = dict.fromkeys(name.rpartition("/")[0] for name in arrays)
        return {
            name: tuple(
                (base[~np.isnan(base)], head[~np.isnan(head)])
                for base, head in zip(arrays[f"{name}/base"], arrays[f"{name}/head"], strict=True)
            )
            for name in names
        }


def located(
    launches: Launches, by: Callable[[Sequence[float], Sequence[float]], float] = location
) -> FloatArray:
    """Return the location of each of the launches."""
    return np.array([by(base.tolist(), head.tolist()) for base, head in launches])


def resampled(launches: Launches, *, neighbours: int = 1, dose: float = 1.0) -> Model:
    """Recorded launches drawn again: runs of ``neighbours``, sides swapped at random, head times ``dose``.

    The sides of a whole run are swapped together, so that what its launches have in common stays so.
    """
    # Swapping the sides of a launch changes the sign of its location.
    logs = located(launches)

    def draw(random: Random, shape: tuple[int, int]) -> FloatArray:
        runs = (shape[0], -(-shape[1] // neighbours), 1)
        places = (random.integers(0, len(logs), runs) + np.arange(neighbours)) % len(logs)
        drawn = logs[places] * random.choice([-1.0, 1.0], runs)
        dosed: FloatArray = drawn.reshape(shape[0], -1)[:, : shape[1]] + np.log(dose)
        return dosed

    return draw
