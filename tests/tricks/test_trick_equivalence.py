"""Both sides of a trick have to give the same, within what the trick says."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from perfkit.errors import UsageError
from perfkit.features.tricks.checks import Checks, check
from perfkit.features.tricks.choosing import choose, trick_named
from perfkit.features.tricks.claims import claims
from perfkit.features.tricks.equivalence import compare_sides
from perfkit.features.tricks.records import TrickCase
from perfkit.features.tricks.trick import Pair, Trick


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
def test_what_may_differ_is_the_tricks_to_say(
    with_: tuple[float, ...],
    absolute: float,
    relative: float,
    equal: bool,  # noqa: FBT001
) -> None:
    """No more, and never a result that is no number."""
    found = compare_sides(_trick(_gives(*with_), absolute=absolute, relative=relative), 1)

    assert equal == found.equal


def test_the_largest_difference_is_a_share_of_what_is_allowed() -> None:
    """Half of it, say."""
    found = compare_sides(_trick(_gives(1.0, 100.5), absolute=1.0), 1)

    assert 0.5 == found.largest


def test_sides_that_grow_apart_are_caught() -> None:
    """Though their first results agree."""
    calls: list[int] = []

    def growing() -> tuple[Tensor, ...]:
        calls.append(1)
        return (torch.tensor([1.0, 100.0 + 0.1 * (len(calls) - 1)]),)

    assert not compare_sides(_trick(growing, absolute=0.15), 1).equal


def test_a_number_of_results_that_differs_is_told() -> None:
    """In words."""
    found = compare_sides(_trick(lambda: ()), 1)

    assert (False, "1 results against 0") == (found.equal, found.problem)


def test_a_process_of_its_own_checks_them_all(tmp_path: Path) -> None:
    """And says of each what it found; one that is not there is told as well."""
    cases = tuple(
        TrickCase(trick=name, size=size, title="")
        for name, size in (("identical", 16), ("no_grad", 4), ("nothing", 1))
    )

    found = check(Checks(cases=cases, claims=True), tmp_path, environment=os.environ)

    assert [True, True, False] == [found.equivalences[case.name].equal for case in cases]
    assert "nothing" in found.equivalences["nothing[1]"].problem
    by_name = {claim.name: claim for claim in found.claims}
    assert "true" == by_name["zero_grad_drops"].answer
    assert len(claims()) == len(by_name)


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


def test_an_unknown_trick_is_told_with_the_nearest() -> None:
    """As a mistake of the user's."""
    with pytest.raises(UsageError, match="did you mean 'channels_last'"):
        choose(("chanels_last",), (), sweep=False)
