"""One side of each trick; ``cases.json`` beside this file names the side and the cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfkit.features.tricks.suite import read_instructions
from perfkit.features.tricks.trick import TrickCase, trick_named

_INSTRUCTIONS = read_instructions(__file__)


def pytest_generate_tests(metafunc: Any) -> None:  # noqa: ANN401 (pytest's own type, and pytest is not imported here)
    """Make a benchmark of each case."""
    metafunc.parametrize("case", _INSTRUCTIONS.cases, ids=[case.name for case in _INSTRUCTIONS.cases])


def test_trick(benchmark: Any, case: TrickCase) -> None:  # noqa: ANN401 (as above)
    """Do the work of one side."""
    trick = trick_named(case.trick)
    pair = trick.pair(case.size)
    call: Callable[[], object] = pair.without if _INSTRUCTIONS.side == "base" else pair.with_
    if trick.rounds is None:
        benchmark(call)
    else:
        benchmark.pedantic(call, rounds=trick.rounds, warmup_rounds=1)
