"""The order of the sides in lockstep launches is balanced and drawn from a seed."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from perfkit.runner.lockstep.launch import Slot, schedule


def first_slots(seed: int, count: int) -> list[Slot]:
    return list(itertools.islice(schedule(seed=seed), count))


@given(st.integers(0, 2**32), st.integers(1, 20))
def test_each_block_of_four_has_every_combination_once(seed: int, blocks: int) -> None:
    slots = first_slots(seed, 4 * blocks)

    for block in range(blocks):
        orders = {(slot.forked_first, slot.begins) for slot in slots if slot.block == block}
        assert 4 == len(orders)
    assert list(range(4 * blocks)) == [slot.launch for slot in slots]


def test_a_seed_draws_its_own_order_again_and_again() -> None:
    drawn = {tuple(first_slots(seed, 12)) for seed in range(10)}

    assert first_slots(7, 40) == first_slots(7, 40)
    assert 10 == len(drawn)
