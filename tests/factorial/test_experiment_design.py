"""An experiment's trials are ordered in randomised complete blocks."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

from perfkit.features.experiments.design import places
from perfkit.features.experiments.records import Experiment, Factor

EXPERIMENT = Experiment(
    name="one",
    target="m:f",
    factors=(Factor(name="a", levels=(1, 2)), Factor(name="b", levels=("x", "y", "z"))),
    blocks=60,
    seed=5,
)


def test_blocks_are_complete() -> None:
    """Every variant stands in every block once, and all of a block share its seed."""
    for number, block in itertools.groupby(places(EXPERIMENT), key=lambda place: place.block):
        found = list(block)
        assert {variant.name for variant in EXPERIMENT.variants} == {place.variant.name for place in found}
        assert list(range(6)) == [place.order for place in found]
        assert 1 == len({place.seed for place in found}), number


def test_the_order_is_drawn() -> None:
    """Every variant comes first in some block; no order is favoured by much, and the seed repeats it."""
    first = Counter(place.variant.name for place in places(EXPERIMENT) if place.order == 0)

    assert 6 == len(first)
    assert max(first.values()) < 25
    assert list(places(EXPERIMENT)) == list(places(EXPERIMENT))
    assert list(places(EXPERIMENT)) != list(places(replace(EXPERIMENT, seed=6)))
