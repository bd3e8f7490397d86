"""One side of each trick; ``cases.json`` beside this file names the side and the cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfkit.features.tricks.records import TrickCase
from perfkit.features.tricks.suite import read_instructions, run_first_step, using
from perfkit.features.tricks.trick import trick_named

_INSTRUCTIONS = read_instructions(__file__)


def pytest_generate_tests(metafunc: Any) -> None:  # noqa: ANN401 (pytest's own type, and pytest is not imported here)
    """Make a benchmark of each case."""
    metafunc.parametrize("case", _INSTRUCTIONS.cases, ids=[case.name for case in _INSTRUCTIONS.cases])


def test_trick(benchmark: Any, case: TrickCase) -> None:  # noqa: ANN401 (as above)
    """Do the work of one side."""
    if not case.loop:
        _measure(benchmark, case)
        return
    with using(_INSTRUCTIONS.tricks_of(case)):
        run = _INSTRUCTIONS.open_loop()
        run_first_step(run)
        # A round is a whole run with its set-up: while a loop is stopped half-way, its loading processes
        # could work ahead unmeasured. There is one, since another launch is worth more than another round.
        benchmark.pedantic(run, rounds=1)


def _measure(benchmark: Any, case: TrickCase) -> None:  # noqa: ANN401 (as above)
    trick = trick_named(case.trick)
    pair = trick.pair(case.size)
    call: Callable[[], object] = pair.without if _INSTRUCTIONS.side == "base" else pair.with_
    if trick.rounds is None:
        benchmark(call)
    else:
        benchmark.pedantic(call, rounds=trick.rounds, warmup_rounds=1)
