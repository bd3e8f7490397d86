"""Both sides of a trick have to give the same, and a loop the same first step with it as without it."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from perfkit.errors import NotMeasuredError, UsageError
from perfkit.features.experiments.trial import TrialProcesses
from perfkit.features.tricks import loop
from perfkit.features.tricks.loop import LoopLaunches
from perfkit.features.tricks.suite import FirstStep, compare_sides, compare_steps, node_of
from perfkit.features.tricks.trick import (
    Equivalence,
    Loop,
    Pair,
    Trick,
    TrickCase,
    best_pair,
    choose,
    choose_for_loop,
    patch_of,
    together,
    trick_named,
)
from perfkit.gating.rules import ComparedBenchmark
from perfkit.model import SIDES, Benchmark
from perfkit.runner.lockstep.launch import schedule


def _step(gradient: float, update: float) -> FirstStep:
    return FirstStep(gradients=[torch.tensor([gradient])], update=[torch.tensor([update])])


@pytest.mark.parametrize(
    ("again", "new", "share"),
    [
        # The optimizer's own update is what is compared where the gradients are equal.
        (_step(1.0, 2.0), _step(1.0, 2.01), 0.1),
        (_step(1.0, 2.0), _step(1.0, 2.5), 5.0),
        # Another training, by what it does to the loss.
        (_step(1.0, 2.0), _step(0.5, 2.0), 10.0),
        (_step(1.0, 2.0), _step(math.nan, 2.0), math.inf),
        # A loop that does not repeat itself, and steps in which there is nothing to compare.
        (_step(1.5, 2.0), _step(1.0, 2.0), None),
        (FirstStep(), FirstStep(), None),
    ],
)
def test_a_first_step_is_compared_with_that_of_two_runs(
    again: FirstStep, new: FirstStep, share: float | None
) -> None:
    """A difference counts where the loop repeats itself."""
    once = _step(1.0, 2.0) if again.gradients else FirstStep()

    found = compare_steps((once, again), new, 0.05)

    assert (share is not None and share <= 1, share is None) == (found.equal, bool(found.problem))
    assert share == (found.largest and pytest.approx(found.largest))


SCRIPT = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3)
if parser.parse_args().steps < 0:
    raise ValueError("no steps")
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(parser.parse_args().steps):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
"""


# Values lie in memory as the layout has them when they are dropped.
DROPPING = """
import torch

model = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.Dropout(0.5), torch.nn.Flatten())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.randn(4, 2, 8, 8)).square().sum().backward()
    optimizer.step()
"""


@pytest.fixture(autouse=True, scope="module")
def _one_process() -> Iterator[None]:
    """Fork all steps from one process, which has imported torch."""
    with TrialProcesses(os.environ, child=loop._CHILD) as processes, pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "TrialProcesses", lambda *_, **__: contextlib.nullcontext(processes))
        yield


def _loop(folder: Path, text: str = SCRIPT, **arguments: int) -> Loop:
    script = folder / "train.py"
    script.write_text(text)
    return Loop(name="train.py", place=str(script), arguments=arguments, root=str(folder), folder=str(folder))


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Equivalence]:
    """Return how a script's first step is with some tricks, though it has no seed of its own."""
    cases = [TrickCase(trick=name, loop="train.py", title="") for name in ("adam_fused", "sgd_fused")]
    with LoopLaunches(_loop(tmp_path_factory.mktemp("loop"), steps=8), seed=0) as launches:
        found = launches.check([*cases, together(cases)])
        slot = next(schedule(seed=0))
        record = launches.make(slot, [node_of(cases[0])])
        (pair,) = launches.counted({node_of(cases[0]): _compared(cases[0])}).pairs
    (timing,) = record.timings.values()
    assert 1 == len(timing.base_s) == len(timing.head_s)
    assert min(*timing.base_s, *timing.head_s) > 0
    base, head = ({one.metric: one.values[-1] for one in pair.counts[side].counts} for side in SIDES)
    assert base["operators"] > head["operators"] > 0
    return found


def _compared(case: TrickCase) -> ComparedBenchmark:
    return ComparedBenchmark(
        benchmark=Benchmark(name=node_of(case), version=""), margin=0.05, gating=True, limit_s=1.0
    )


def test_a_script_is_compared_in_processes_of_its_own(looked_at: dict[str, Equivalence]) -> None:
    """An optimizer of another class is none of a trick's business; of two tricks both have to be used."""
    fused, other, both = looked_at.values()

    assert (True, True, "") == (fused.equal, fused.used, fused.problem)
    assert not other.used
    assert not both.used


def test_dropout_is_no_difference_between_layouts(tmp_path: Path) -> None:
    """Each layout drops the same values in the step that is compared."""
    case = TrickCase(trick="channels_last", loop="train.py", title="")

    with LoopLaunches(_loop(tmp_path, DROPPING), seed=0) as launches:
        (found,) = launches.check([case]).values()

    assert (True, True, "") == (found.equal, found.used, found.problem)


def test_a_loop_that_fails_is_reported_with_its_line(tmp_path: Path) -> None:
    """It is no trick's fault."""
    case = TrickCase(trick="adam_fused", loop="train.py", title="")

    with (
        LoopLaunches(_loop(tmp_path, steps=-1), seed=0) as launches,
        pytest.raises(NotMeasuredError, match=r"ValueError: no steps \(train.py:8\)"),
    ):
        launches.check([case])


def test_only_what_can_be_applied_from_outside_is_chosen_for_a_loop() -> None:
    """A named one that cannot is a mistake."""
    chosen = choose_for_loop((), "train")

    assert all(trick_named(case.trick).on_loop for case in chosen.cases)
    assert {"train"} == {case.loop for case in chosen.cases}
    with pytest.raises(UsageError, match="item_per_step cannot be applied to a loop from outside"):
        choose_for_loop(("item_per_step",), "train")


@pytest.mark.parametrize(
    ("trick", "line", "new"),
    [
        ("item_per_step", "s += loss.item() * n", "s += loss.detach() * n  # after the loop: s.item()"),
        ("adam_fused", "opt = Adam(net.parameters())", "opt = Adam(net.parameters(), fused=True)"),
        ("adam_fused", "opt = AdamW(net.parameters())", ""),
        ("inference_mode", "with torch.no_grad():", "with torch.inference_mode():"),
        ("loader_workers", "loader = DataLoader(data)", "loader = DataLoader(data, num_workers=2)"),
        ("loader_workers", "loader = DataLoader(data, num_workers=1)", ""),
    ],
)
def test_a_patch_has_the_names_of_the_source(trick: str, line: str, new: str) -> None:
    """It is made of old and new lines."""
    found = patch_of(trick_named(trick), f"import torch\n    {line}\n# {line}\n", "train.py")

    assert (("train.py:2", f"- {line}", f"+ {new}") if new else ()) == found


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
        tolerance=(relative, absolute),
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
