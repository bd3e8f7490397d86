"""The benchmarks of tricks, as both sides have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfkit.features.tricks.loops import open_loop, using
from perfkit.features.tricks.records import Loop, TrickCase
from perfkit.model import SIDES, Side

SUITE = Path(__file__).with_name("bench_tricks.py")
_CASES = "cases.json"
_STEP_SCRIPT = """from perfkit.features.tricks.suite import run_case

run_case({name!r}, beside=__file__)
"""


@dataclass(frozen=True, kw_only=True)
class SideInstructions:
    """What a side is told: which one it is, the cases, and the loop that some of them are on."""

    side: Side
    cases: tuple[TrickCase, ...]
    loop: Loop | None

    def tricks_of(self, case: TrickCase) -> tuple[str, ...]:
        """Return the tricks that this side uses in a case."""
        return case.tricks if self.side == "head" else ()

    def open_loop(self) -> Callable[[], object]:
        """Return a call of the loop that the side was told of."""
        if self.loop is None:
            raise ValueError("expected a loop among what the side was told, found none")
        return open_loop(self.loop)


def instruction_files(cases: Sequence[TrickCase], loop: Loop | None) -> dict[Side, dict[str, str]]:
    """Return the files that tell a side which one it is and its cases, with a script for each loop's case."""
    scripts = {step_script(case): _STEP_SCRIPT.format(name=case.name) for case in cases if case.loop}
    return {
        side: {
            _CASES: msgspec.json.encode(SideInstructions(side=side, cases=tuple(cases), loop=loop)).decode(),
            **scripts,
        }
        for side in SIDES
    }


def read_instructions(beside: str) -> SideInstructions:
    """Return what the side is told whose file this is."""
    return msgspec.json.decode(Path(beside).with_name(_CASES).read_bytes(), type=SideInstructions)


def node_of(case: TrickCase) -> str:
    """Return the benchmark of a case, as pytest names it."""
    return f"{SUITE.name}::test_trick[{case.name}]"


def step_script(case: TrickCase) -> str:
    """Return the name of the script that runs a case's loop, for the steps of it to be counted."""
    return f"step_of_{case.trick}.py"


def run_case(name: str, *, beside: str) -> None:
    """Run the loop of a case as the side does whose file this is."""
    said = read_instructions(beside)
    case = next(case for case in said.cases if case.name == name)
    with using(said.tricks_of(case)):
        said.open_loop()()
