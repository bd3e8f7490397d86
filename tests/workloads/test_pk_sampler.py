"""P-K batches hold what they should, end the epoch in time, and depend on seed and epoch only."""

from collections import Counter

import pytest
from workloads.metric_learning.sampler import PKSampler

UNBALANCED = [0] * 9 + [1] * 4 + [2] * 7 + [3] * 2 + [4] * 5


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("p", "k"), [(1, 1), (2, 2), (3, 4), (4, 3)])
def test_batches_hold_k_images_of_p_classes_without_repeats(p: int, k: int, seed: int) -> None:
    """Each batch has exactly P classes with K images, and no image comes twice in an epoch."""
    batches = list(PKSampler(UNBALANCED, p, k, seed=seed))
    for batch in batches:
        assert [k] * p == list(Counter(UNBALANCED[index] for index in batch).values())
    seen = [index for batch in batches for index in batch]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("seed", range(5))
def test_epoch_ends_when_fewer_than_p_classes_have_k_left(seed: int) -> None:
    """After the last batch fewer than P classes have K images left."""
    p, k = 2, 2
    left = Counter(UNBALANCED)
    for batch in PKSampler(UNBALANCED, p, k, seed=seed):
        left.subtract(UNBALANCED[index] for index in batch)
    assert p > sum(count >= k for count in left.values())


def test_classes_smaller_than_k_are_left_out() -> None:
    """A class with fewer than K images is in no batch."""
    batches = PKSampler(UNBALANCED, 2, 3, seed=0)
    assert 3 not in {UNBALANCED[index] for batch in batches for index in batch}


def test_epochs_differ_and_repeat_by_seed() -> None:
    """Seed and epoch decide the batches, nothing else does."""
    sampler, twin = PKSampler(UNBALANCED, 2, 2, seed=1), PKSampler(UNBALANCED, 2, 2, seed=1)
    first = list(sampler)
    assert first == list(sampler)
    assert first == list(twin)
    sampler.set_epoch(1)
    assert first != list(sampler)
    assert first != list(PKSampler(UNBALANCED, 2, 2, seed=2))


def test_length_is_the_number_of_batches() -> None:
    """The length tells how many batches the epoch will have."""
    sampler = PKSampler(UNBALANCED, 2, 2, seed=1)
    assert len(list(sampler)) == len(sampler)


@pytest.mark.parametrize(
    ("p", "k", "message"), [(0, 2, "p=0"), (2, -1, "k=-1"), (6, 1, "found 5"), (2, 8, "found 1")]
)
def test_impossible_batches_are_refused(p: int, k: int, message: str) -> None:
    """Sizes that no batch can have are refused with what was found."""
    with pytest.raises(ValueError, match=message):
        PKSampler(UNBALANCED, p, k, seed=0)
