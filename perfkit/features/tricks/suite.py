"""What runs in a measured process: one side of each trick, by itself or on a loop whose code is unchanged."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perfkit.errors import UsageError
from perfkit.features.experiments.binding import call_to_its_end, load_bound
from perfkit.features.tricks.records import Loop, TrickCase
from perfkit.features.tricks.trick import trick_named
from perfkit.model import SIDES, Side
from perfkit.profiling.passes.targets import Target
from perfkit.runner.targets import prepare_process

SUITE = Path(__file__).with_name("bench_tricks.py")
_CASES = "cases.json"
_STEP_SCRIPT = """from perfkit.features.tricks.suite import run_case

run_case({name!r}, beside=__file__)
"""


@dataclass(frozen=True, kw_only=True)
class SideInstructions:
    """The orders of a side: which one it is, the cases, and the loop that some of them are on."""

    side: Side
    cases: tuple[TrickCase, ...]
    loop: Loop | None

    def tricks_of(self, case: TrickCase) -> tuple[str, ...]:
        """Return the tricks that this side uses in a case."""
        return case.tricks if self.side == "head" else ()

    def open_loop(self) -> Callable[[], object]:
        """Return a call of the loop."""
        if self.loop is None:
            raise ValueError("expected a loop among the instructions, found none")
        return open_loop(self.loop)


def instruction_files(cases: Sequence[TrickCase], loop: Loop | None) -> dict[Side, dict[str, str]]:
    """Return the instructions of both sides as files, with a script for each case on the loop."""
    scripts = {step_script(case): _STEP_SCRIPT.format(name=case.name) for case in cases if case.loop}
    return {
        side: {
            _CASES: msgspec.json.encode(SideInstructions(side=side, cases=tuple(cases), loop=loop)).decode(),
            **scripts,
        }
        for side in SIDES
    }


def read_instructions(beside: str) -> SideInstructions:
    """Return the instructions that lie beside a file."""
    return msgspec.json.decode(Path(beside).with_name(_CASES).read_bytes(), type=SideInstructions)


def node_of(case: TrickCase) -> str:
    """Return the benchmark of a case, as pytest names it."""
    return f"{SUITE.name}::test_trick[{case.name}]"


def step_script(case: TrickCase) -> str:
    """Return the name of the script that runs a case's loop, for the steps of it to be counted."""
    return f"step_of_{case.trick}.py"


def run_case(name: str, *, beside: str) -> None:
    """Run the loop of a case as the side does whose file this is."""
    instructions = read_instructions(beside)
    case = next(case for case in instructions.cases if case.name == name)
    with using(instructions.tricks_of(case)):
        instructions.open_loop()()


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


class _SecondStepError(BaseException):
    """Ends a loop after the steps that were asked for; no ``except Exception`` of the loop catches it."""


def run_first_step(
    run: Callable[[], object],
    *,
    before: Callable[[Any], None] = lambda _: None,
    after: Callable[[Any], None] = lambda _: None,
) -> None:
    """Run a loop until its second step; the first one's optimizer is given to ``before`` and ``after`` it."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    taken = False

    def begin(optimizer: Any, *_: object) -> None:  # noqa: ANN401 (torch's own type)
        if taken:
            raise _SecondStepError
        before(optimizer)

    def end(optimizer: Any, *_: object) -> None:  # noqa: ANN401 (torch's own type)
        nonlocal taken
        taken = True
        after(optimizer)

    hooks = [register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)]
    try:
        run()
    except _SecondStepError:
        pass
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def using(tricks: Sequence[str]) -> Iterator[Callable[[], bool]]:
    """Let any loop use these tricks until the end, and yield whether it used what each of them changes."""
    with ExitStack() as stack:
        seen = []
        for name in tricks:
            on_loop = trick_named(name).on_loop
            if on_loop is None:
                raise UsageError(f"{name} cannot be applied to a loop from outside")
            seen.append(stack.enter_context(on_loop()))
        yield lambda: all(used() for used in seen)


def _seed() -> None:
    import torch

    torch.manual_seed(0)
    random.seed(0)
    try:
        import numpy as np
    except ImportError:
        return
    np.random.seed(0)  # noqa: NPY002 (the global generator is what loops draw from)
