"""What runs in a measured process: one side of each trick, by itself or on a loop whose code is unchanged."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfkit.errors import UsageError
from perfkit.features.experiments.binding import call_to_its_end, load_bound
from perfkit.features.tricks.trick import Loop, TrickCase, trick_named
from perfkit.model import SIDES, Side
from perfkit.profiling.passes.targets import Target
from perfkit.runner.targets import prepare_process

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
