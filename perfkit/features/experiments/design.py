"""Randomised complete blocks: every variant once in every block, in an order drawn for each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from perfkit.features.experiments.records import Experiment, Variant

# Seeds are below this, so that a target can multiply one without leaving the range of seeds.
_SEEDS = 10**6


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a trial stands: its variant, its block, its place in that, and the seed that the block shares."""

    variant: Variant
    block: int
    order: int
    seed: int


def places(experiment: Experiment) -> Iterator[Place]:
    """Yield all trials in the order in which they run; the experiment's seed draws it."""
    source = random.Random(experiment.seed)  # noqa: S311 (an experiment's order, not a secret)
    for block in range(experiment.blocks):
        seed = source.randrange(_SEEDS)
        drawn = source.sample(experiment.variants, len(experiment.variants))
        for order, variant in enumerate(drawn):
            yield Place(variant=variant, block=block, order=order, seed=seed)
