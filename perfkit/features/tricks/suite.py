"""What runs in a measured process: one side of each trick, and whether both sides give the same."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from perfkit.errors import UsageError
from perfkit.features.experiments.binding import call_to_its_end, load_bound
from perfkit.features.tricks.trick import Equivalence, Loop, TrickCase, trick_named
from perfkit.model import SIDES, Side
from perfkit.profiling.passes.targets import Target
from perfkit.runner.commands import fixed_environment
from perfkit.runner.requests import Parent, ask
from perfkit.runner.targets import prepare_process

if TYPE_CHECKING:
    from torch import Tensor

    from perfkit.features.tricks.trick import Trick

SUITE = Path(__file__).with_name("bench_tricks.py")
_CASES = "cases.json"


@dataclass(frozen=True, kw_only=True)
class SideInstructions:
    """The orders of a side: which one it is, and the cases."""

    side: Side
    cases: tuple[TrickCase, ...]


def instruction_files(cases: Sequence[TrickCase]) -> dict[Side, dict[str, str]]:
    """Return the instructions of both sides as files."""
    return {
        side: {_CASES: msgspec.json.encode(SideInstructions(side=side, cases=tuple(cases))).decode()}
        for side in SIDES
    }


def read_instructions(beside: str) -> SideInstructions:
    """Return the instructions that lie beside a file."""
    return msgspec.json.decode(Path(beside).with_name(_CASES).read_bytes(), type=SideInstructions)


def node_of(case: TrickCase) -> str:
    """Return the benchmark of a case, as pytest names it."""
    return f"{SUITE.name}::test_trick[{case.name}]"


def open_loop(loop: Loop) -> Callable[[], object]:
    """Prepare the process, and return a call that runs a loop from the same seed each time."""
    os.chdir(loop.folder)
    target = Target(name=loop.name, place=loop.place)
    prepare_process(target.place, (), root=Path(loop.root))
    call = load_bound(target, loop.arguments)

    def run() -> object:
        _seed()
        return call_to_its_end(call)

    return run


@contextmanager
def using(tricks: Sequence[str]) -> Iterator[Callable[[], tuple[str, ...]]]:
    """Let any loop use these tricks until the end, and yield which of them had nothing to change."""
    with ExitStack() as stack:
        used = {}
        for name in tricks:
            on_loop = trick_named(name).on_loop
            if on_loop is None:
                raise UsageError(f"{name} cannot be applied to a loop from outside")
            used[name] = stack.enter_context(on_loop())
        yield lambda: tuple(name for name, is_used in used.items() if not is_used())


def _seed() -> None:
    import torch

    torch.manual_seed(0)
    random.seed(0)
    try:
        import numpy as np
    except ImportError:
        return
    np.random.seed(0)  # noqa: NPY002 (the global generator is what loops draw from)


_LIMIT_S = 300.0
# States that diverge differ visibly after a few calls.
_CALLS = 3
# Gradients this close come from the same loss, so a difference in the update comes from the optimizer.
_SAME_GRADIENTS = 1e-3


def check(cases: Sequence[TrickCase], *, environment: Mapping[str, str]) -> dict[str, Equivalence]:
    """Return how alike the sides of each case are, by its name, checked in a fresh process."""
    variables = fixed_environment(environment, hash_seed=0)
    reply = ask(f"{__name__}:main", cases, tuple[str, Equivalence], limit_s=_LIMIT_S, environment=variables)
    status = reply.ending.status
    problem = f"its process {reply.ending.words}" if status else "it was not reached"
    if status is None:
        problem = f"it took longer than {_LIMIT_S:g} s"
    equivalences = dict(reply.messages)
    missing = Equivalence(equal=False, problem=problem)
    return {case.name: equivalences.get(case.name, missing) for case in cases}


def main(request: tuple[TrickCase, ...], parent: Parent) -> None:
    """Check the cases, and send each result as soon as it is known."""
    for case in request:
        parent.send((case.name, _equivalence(case)))


def _equivalence(case: TrickCase) -> Equivalence:
    try:
        return compare_sides(trick_named(case.trick), case.size)
    except Exception as error:  # noqa: BLE001 (a trick may raise anything)
        problem = f"{type(error).__name__}: {error}".partition("\n")[0]
        return Equivalence(equal=False, problem=problem)


def compare_sides(trick: Trick, size: int) -> Equivalence:
    """Return what the two sides of a trick differ by, each called as often as the other."""
    pair = trick.pair(size)
    largest = 0.0
    for _ in range(_CALLS):
        without, with_ = pair.without(), pair.with_()
        if len(without) != len(with_):
            return Equivalence(equal=False, problem=f"{len(without)} results against {len(with_)}")
        for old, new in zip(without, with_, strict=True):
            if old.shape != new.shape:
                return Equivalence(equal=False, problem=f"a result of {old.shape} against {new.shape}")
            largest = max(largest, _difference(old, new, trick))
    return Equivalence(equal=largest <= 1, largest=largest)


def _difference(old: Tensor, new: Tensor, trick: Trick) -> float:
    """Return the largest difference of two tensors as a share of what the trick's tolerance allows."""
    old, new = old.detach().cpu().double(), new.detach().cpu().double()
    if not old.numel():
        return 0.0
    difference = (old - new).abs()
    relative, absolute = trick.tolerance
    allowed = absolute + relative * old.abs()
    shares = (difference / allowed).masked_fill(difference == 0, 0.0)
    return float(shares.nan_to_num(nan=math.inf, posinf=math.inf).max())


@dataclass(frozen=True, kw_only=True)
class FirstStep:
    """The gradients of a loop's first step, and by how much it changed the parameters."""

    gradients: Sequence[Tensor] = ()
    update: Sequence[Tensor] = ()

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return what a look wrote; nothing where the loop took no step."""
        import torch

        return cls(**torch.load(file, weights_only=True)) if file.exists() else cls()


def compare_steps(plain: tuple[FirstStep, FirstStep], new: FirstStep, tolerance: float) -> Equivalence:
    """Return how far the first step moves with a trick: a loop that does not repeat itself shows nothing."""
    once, again = plain
    if not once.update:
        return _unknown("the loop takes no step of an optimizer: there is nothing to compare")
    if not once.gradients:
        return _unknown(
            "the first step of the loop's optimizer has no gradients: there is nothing to compare"
        )
    if _step_distance(once, again) > tolerance:
        return _unknown("two runs without it differ as well: let the loop draw from torch's global generator")
    distance = _step_distance(once, new)
    return Equivalence(equal=distance <= tolerance, largest=distance / tolerance)


def _unknown(problem: str) -> Equivalence:
    return Equivalence(equal=False, problem=problem)


def _step_distance(one: FirstStep, other: FirstStep) -> float:
    gradients = _distance(one.gradients, other.gradients)
    return gradients if gradients > _SAME_GRADIENTS else max(gradients, _distance(one.update, other.update))


def _distance(some: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    """Return the length of the difference as a share of that of the first."""
    if [values.shape for values in some] != [values.shape for values in others]:
        return math.inf
    between = _length([new - old for new, old in zip(others, some, strict=True)])
    length = _length(some)
    if between == 0:
        return 0.0
    return between / length if length and math.isfinite(between) else math.inf


def _length(values: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(one.square().sum()) for one in values))
