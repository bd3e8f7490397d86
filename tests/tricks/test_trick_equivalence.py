"""Both sides of a trick have to give the same, and a loop the same first step with it as without it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam

from perfkit.errors import UsageError
from perfkit.features.tricks import equivalence, suite
from perfkit.features.tricks.catalogue.pieces import constructing
from perfkit.features.tricks.equivalence import Checks, LoopComparison, check, compare_sides
from perfkit.features.tricks.records import Loop, TrickCase
from perfkit.features.tricks.trick import (
    OnLoop,
    Pair,
    Trick,
    best_pair,
    choose,
    choose_for_loop,
    together,
    trick_named,
)


def _train(scale: Callable[[], float] = lambda: 1.0) -> None:
    model = nn.Linear(4, 2)
    optimizer = Adam(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        (scale() * model(torch.randn(8, 4)).square().mean()).backward()
        optimizer.step()


def _seeded(scale: Callable[[], float] = lambda: 1.0) -> Callable[[], None]:
    def run() -> None:
        torch.manual_seed(0)
        _train(scale)

    return run


def test_another_way_to_compute_the_same_update_is_the_same() -> None:
    """The optimizer's own update is what is compared where the gradients are equal."""
    found = LoopComparison(_seeded()).with_tricks(["adam_fused"])

    assert (True, True, "") == (found.equal, found.used, found.problem)
    assert found.largest is not None
    assert found.largest < 0.01


def test_a_trick_that_a_loop_never_comes_by_is_not_used() -> None:
    """An optimizer of another class is none of its business; of two tricks both have to be used."""
    assert not LoopComparison(_seeded()).with_tricks(["sgd_fused"]).used
    assert not LoopComparison(_seeded()).with_tricks(["adam_fused", "sgd_fused"]).used


@pytest.mark.parametrize("gain", [0.5, 1.2, -1.0, float("nan")])
def test_another_training_is_not_the_same(gain: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trick that changes the gradients, by what it does to the loss."""
    # Each of three runs gets as far as its second backward pass.
    scales = iter([1.0] * 4 + [gain] * 2)

    @contextmanager
    def nothing() -> Iterator[Callable[[], bool]]:
        yield lambda: True

    _stand_in(monkeypatch, nothing)

    assert not LoopComparison(_seeded(lambda: next(scales))).with_tricks(["identical"]).equal


def test_another_update_is_not_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the gradients are."""
    _stand_in(monkeypatch, lambda: constructing(Adam, lambda _: {"lr": 0.3}))

    found = LoopComparison(_seeded()).with_tricks(["identical"])

    assert not found.equal
    assert pytest.approx(2 / 0.05, rel=1e-3) == found.largest


def _stand_in(monkeypatch: pytest.MonkeyPatch, on_loop: OnLoop) -> None:
    trick = replace(trick_named("identical"), on_loop=on_loop)
    monkeypatch.setattr(suite, "trick_named", lambda _: trick)
    monkeypatch.setattr(equivalence, "trick_named", lambda _: trick)


def test_a_loop_that_does_not_repeat_itself_gives_no_answer() -> None:
    """The reason is reported, with what to do."""
    count = itertools.count(1)
    found = LoopComparison(_seeded(lambda: float(next(count)))).with_tricks(["adam_fused"])

    assert not found.equal
    assert "two runs without it differ" in found.problem


def test_a_loop_without_steps_gives_no_answer() -> None:
    """As of an evaluation."""
    found = LoopComparison(lambda: None).with_tricks(["one_thread"])

    assert not found.equal
    assert "takes no step of an optimizer" in found.problem


def test_a_step_without_gradients_gives_no_answer() -> None:
    """It is no loop without steps."""
    parameter = nn.Parameter(torch.ones(1))

    found = LoopComparison(SGD([parameter], lr=0.1).step).with_tricks(["sgd_fused"])

    assert not found.equal
    assert "has no gradients" in found.problem


def test_the_loop_is_left_before_its_second_step() -> None:
    """What follows is not waited for, however long it is."""
    steps: list[int] = []

    def run() -> None:
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
        optimizer = SGD(model.parameters(), lr=0.1)
        for step in range(1000):
            steps.append(step)
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()

    LoopComparison(run).with_tricks(["sgd_fused"])

    assert [0, 1, 0, 1, 0, 1] == steps


SCRIPT = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(parser.parse_args().steps):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
"""


def _loop(folder: Path, **arguments: int) -> Loop:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    return Loop(name="train.py", place=str(script), arguments=arguments, root=str(folder), folder=str(folder))


def test_a_script_is_compared_in_a_process_of_its_own(tmp_path: Path) -> None:
    """Drawing from the same random numbers each time, though it has no seed of its own."""
    cases = tuple(TrickCase(trick=name, loop="train.py", title="") for name in ("adam_fused", "sgd_fused"))

    found = check(Checks(cases=cases, loop=_loop(tmp_path, steps=2)), environment=os.environ)

    fused, other = (found[case.name] for case in cases)
    assert (True, True) == (fused.equal, fused.used)
    assert not other.used


def test_only_what_can_be_applied_from_outside_is_chosen_for_a_loop() -> None:
    """A named one that cannot is a mistake."""
    chosen = choose_for_loop((), "train")

    assert all(trick_named(case.trick).on_loop for case in chosen.cases)
    assert {"train"} == {case.loop for case in chosen.cases}
    with pytest.raises(UsageError, match="gradient_checkpointing cannot be applied to a loop from outside"):
        choose_for_loop(("gradient_checkpointing",), "train")


def test_the_two_best_are_those_that_go_together() -> None:
    """One optimizer cannot be two things at once."""
    cases = [TrickCase(trick=name, loop="train", title=name) for name in ("adam_fused", "adam_foreach")]
    other = TrickCase(trick="one_thread", loop="train", title="One thread")

    assert best_pair(cases) is None
    assert best_pair(cases[:1]) is None
    pair = best_pair([*cases, other])
    assert (cases[0], other) == pair
    joined = together(pair)
    assert ("adam_fused", "one_thread") == joined.tricks
    assert "adam_fused+one_thread on train" == joined.name


def _trick(with_: Callable[[], tuple[Tensor, ...]], *, absolute: float = 0.0, relative: float = 0.0) -> Trick:
    pair = Pair(without=lambda: (torch.tensor([1.0, 100.0]),), with_=with_)
    return replace(
        trick_named("identical"),
        pair=lambda _: pair,
        absolute_tolerance=absolute,
        relative_tolerance=relative,
    )


def _gives(*values: float) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.tensor(values),)


@pytest.mark.parametrize(
    ("with_", "absolute", "relative", "equal"),
    [
        ((1.0, 100.0), 0.0, 0.0, True),
        ((1.0, 100.5), 0.0, 0.0, False),
        ((1.0, 100.5), 0.0, 0.01, True),
        ((1.5, 100.0), 0.0, 0.01, False),
        ((1.5, 100.0), 0.6, 0.0, True),
        ((1.0, float("nan")), 1.0, 1.0, False),
        ((1.0, float("inf")), 1.0, 1.0, False),
        ((1.0,), 1.0, 1.0, False),
    ],
)
def test_what_may_differ_is_for_the_trick_to_decide(
    with_: tuple[float, ...],
    absolute: float,
    relative: float,
    equal: bool,  # noqa: FBT001
) -> None:
    """No more, and never a result that is no number."""
    found = compare_sides(_trick(_gives(*with_), absolute=absolute, relative=relative), 1)

    assert equal == found.equal


def test_the_largest_difference_is_a_share_of_what_is_allowed() -> None:
    """About half of it."""
    found = compare_sides(_trick(_gives(1.0, 100.5), absolute=1.0), 1)

    assert 0.5 == found.largest


def test_sides_that_grow_apart_are_caught() -> None:
    """Though their first results agree."""
    calls: list[int] = []

    def growing() -> tuple[Tensor, ...]:
        calls.append(1)
        return (torch.tensor([1.0, 100.0 + 0.1 * (len(calls) - 1)]),)

    assert not compare_sides(_trick(growing, absolute=0.15), 1).equal


def test_a_choice_is_all_that_can_be_tried() -> None:
    """At the default size, or at all; compiling is left for those who name it."""
    everything = choose((), (), sweep=False)
    swept = choose(("no_grad",), (), sweep=True)
    sized = choose(("no_grad",), (3, 5), sweep=False)

    names = [case.trick for case in everything.cases]
    assert len(names) == len(set(names))
    assert "compile" in everything.left_out
    assert list(trick_named("no_grad").sizes) == [case.size for case in swept.cases]
    assert [3, 5] == [case.size for case in sized.cases]
    assert not set(names) & everything.left_out.keys()


def test_an_unknown_trick_is_reported_with_the_nearest() -> None:
    """As a mistake of the user's."""
    with pytest.raises(UsageError, match="did you mean 'channels_last'"):
        choose(("chanels_last",), (), sweep=False)
