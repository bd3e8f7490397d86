"""These helpers run code that is written for a test, and return what was counted of it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from modules import load_module

from perfkit.agent.counters.calls import count_calls
from perfkit.agent.counters.model import Count, Counts
from perfkit.agent.counters.tensors import TensorWatch


class Own:
    """A module of own code, and the places of its lines."""

    def __init__(self, folder: Path, body: str) -> None:
        self.root = folder
        self.text = textwrap.dedent(body).strip()
        self.module: ModuleType = load_module(folder, self.text, "own")

    def call(self, name: str = "run") -> Callable[[], Any]:
        """Return a function of the module."""
        found: Callable[[], Any] = getattr(self.module, name)
        return found

    def place(self, part: str) -> str:
        """Return the place of the one line that holds a text."""
        (line,) = [number for number, line in enumerate(self.text.splitlines(), 1) if part in line]
        return f"own.py:{line}"

    def counts(self, name: str = "run", **options: Any) -> Counts:  # noqa: ANN401 (those of the function)
        """Count calls of a function."""
        return count_calls(self.call(name), root=self.root, **options)

    def watched(self, name: str = "run", *, iterations: int = 2) -> Counts:
        """Count a function's tensors alone."""
        with TensorWatch(self.root) as watch:
            for _ in range(iterations):
                self.call(name)()
                watch.end_iteration()
        return watch.counts()


def metric(counts: Counts, name: str) -> Count:
    """Return the count of a metric."""
    return next(count for count in counts.counts if count.metric == name)


def values(counts: Counts, name: str) -> tuple[float, ...]:
    """Return a metric's values."""
    return metric(counts, name).values


def causes(counts: Counts, name: str) -> dict[tuple[str, str], float]:
    """Return the causes of a metric: amounts by what and where."""
    return {(cause.what, cause.place): cause.amount for cause in metric(counts, name).causes}
