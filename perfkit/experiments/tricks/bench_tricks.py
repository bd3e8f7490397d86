"""One side of each trick: ``cases.json`` beside this file says of which tricks, and which side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from perfkit.experiments.tricks.choosing import trick_named
from perfkit.experiments.tricks.loops import open_loop, using
from perfkit.experiments.tricks.suite import Said
from perfkit.records.tricks import TOGETHER

_SAID = msgspec.json.decode(Path(__file__).with_name("cases.json").read_bytes(), type=Said)
_ROUNDS = 3


def pytest_generate_tests(metafunc: Any) -> None:  # noqa: ANN401 (pytest's own type, and pytest is not imported here)
    """Make a benchmark of each case."""
    metafunc.parametrize(("trick", "on"), [(case.trick, case.loop or case.size) for case in _SAID.cases])


def test_trick(benchmark: Any, trick: str, on: int | str) -> None:  # noqa: ANN401 (as above)
    """Do the work of one side."""
    if isinstance(on, int):
        pair = trick_named(trick).pair(on)
        benchmark(pair.without if _SAID.side == "base" else pair.with_)
        return
    with using(trick.split(TOGETHER) if _SAID.side == "head" else ()):
        # Loops take their time: fewer of them in more launches tell more.
        benchmark.pedantic(open_loop(_SAID.loop_named(on)), rounds=_ROUNDS, warmup_rounds=1)
