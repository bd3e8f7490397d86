"""One side of each trick: ``cases.json`` beside this file says of which tricks, and which side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfkit.experiments.tricks.choosing import trick_named

_SAID = json.loads(Path(__file__).with_name("cases.json").read_text())


def pytest_generate_tests(metafunc: Any) -> None:  # noqa: ANN401 (pytest's own type, and pytest is not imported here)
    """Make a benchmark of each case."""
    metafunc.parametrize(("name", "size"), _SAID["cases"])


def test_trick(benchmark: Callable[..., Any], name: str, size: int) -> None:
    """Do the work of one side."""
    pair = trick_named(name).pair(size)
    benchmark(pair.without if _SAID["side"] == "base" else pair.with_)
