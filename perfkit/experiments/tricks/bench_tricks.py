"""One side of each trick: ``cases.json`` beside this file says of which tricks, and which side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from perfkit.experiments.tricks.choosing import trick_named
from perfkit.experiments.tricks.loops import open_loop, using
from perfkit.experiments.tricks.suite import Said
from perfkit.records.tricks import TOGETHER
from perfkit.tricks.trick import Trick

_SAID = msgspec.json.decode(Path(__file__).with_name("cases.json").read_bytes(), type=Said)
# Loops take their time: fewer of them in more launches tell more.
_ROUNDS_OF_LOOPS = 3


def pytest_generate_tests(metafunc: Any) -> None:  # noqa: ANN401 (pytest's own type, and pytest is not imported here)
    """Make a benchmark of each case."""
    metafunc.parametrize(("trick", "on"), [(case.trick, case.loop or case.size) for case in _SAID.cases])


def test_trick(benchmark: Any, trick: str, on: int | str) -> None:  # noqa: ANN401 (as above)
    """Do the work of one side."""
    if isinstance(on, int):
        _measure(benchmark, _side_of(trick_named(trick), on), trick_named(trick).rounds)
        return
    with using(trick.split(TOGETHER) if _SAID.side == "head" else ()):
        _measure(benchmark, open_loop(_SAID.loop_named(on)), _ROUNDS_OF_LOOPS)


def _side_of(trick: Trick, size: int) -> Callable[[], object]:
    pair = trick.pair(size)
    return pair.without if _SAID.side == "base" else pair.with_


def _measure(benchmark: Any, call: Callable[[], object], rounds: int | None) -> None:  # noqa: ANN401 (as above)
    if rounds is None:
        benchmark(call)
    else:
        benchmark.pedantic(call, rounds=rounds, warmup_rounds=1)
