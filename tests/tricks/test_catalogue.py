"""Both sides of every trick that can be tried here give the same, and its texts are complete."""

import pytest
import torch
from torch.testing import assert_close

from perfkit.errors import UsageError
from perfkit.features.tricks.catalogue import catalogue, find
from perfkit.features.tricks.catalogue.operators import IDENTICAL
from perfkit.features.tricks.trick import Call, Trick, is_available

NAMES = [trick.name for trick in catalogue()]
# What changes with every call.
TRAINING = [
    *(name for name in NAMES if name.endswith(("_foreach", "_fused"))),
    "item_per_step",
    "zero_grad_set_to_none",
]


# The compiler takes its time.
@pytest.fixture(
    params=[
        *(pytest.param(name, marks=[pytest.mark.slow] if name == "compile" else []) for name in NAMES),
        IDENTICAL.name,
    ]
)
def trick(request: pytest.FixtureRequest) -> Trick:
    """Return each trick that can be tried here, and the one that is none."""
    trick = IDENTICAL if request.param == IDENTICAL.name else find(request.param)
    if why := is_available(trick):
        pytest.skip(why)
    return trick


def repeated(call: Call, times: int) -> tuple[torch.Tensor, ...]:
    for _ in range(times - 1):
        call()
    return call()


def test_both_sides_agree_after_one_call_and_after_three(trick: Trick) -> None:
    random_state = torch.random.get_rng_state()
    pair = trick.pair(trick.sizes[0])
    for times in (1, 2):
        without, with_ = repeated(pair.without, times), repeated(pair.with_, times)
        # The caller's random numbers are left alone.
        assert torch.equal(random_state, torch.random.get_rng_state())
        assert_close(with_, without, rtol=trick.tolerance[0], atol=trick.tolerance[1])
        assert all(tensor.isfinite().all() for tensor in without)
        assert any(tensor.any() for tensor in without)
        assert not any(tensor.requires_grad for tensor in (*without, *with_))


@pytest.mark.parametrize("name", TRAINING)
def test_a_sides_calls_leave_the_other_side_alone(name: str) -> None:
    trick = find(name)
    alone, beside = trick.pair(trick.sizes[0]), trick.pair(trick.sizes[0])
    first = [tensor.clone() for tensor in repeated(alone.with_, 1)]
    repeated(beside.without, 3)
    assert_close(repeated(beside.with_, 1), tuple(first), rtol=0, atol=0)
    assert not all(map(torch.equal, first, repeated(alone.with_, 2)))


@pytest.mark.parametrize(
    ("name", "advice"),
    [("chanels_last", r"did you mean 'channels_last'\?$"), ("xyz", "choose one of .*thread_count")],
)
def test_an_unknown_name_is_answered_with_the_nearest_or_all(name: str, advice: str) -> None:
    with pytest.raises(UsageError, match=f"found '{name}'; {advice}"):
        find(name)


def test_a_trick_without_its_compiler_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "needs a C++ compiler and Python's headers" == is_available(find("compile"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_trick_without_its_device_is_reported() -> None:
    assert "needs CUDA" == is_available(find("pinned_memory"))
    assert is_available(find("no_grad")) is None
