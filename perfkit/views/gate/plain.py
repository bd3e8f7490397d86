"""What a gate says while it measures where there is no terminal: a line when there is news."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from perfkit.records.comparisons import Comparison
from perfkit.views.gate.wording import change_text, details, interval_text, launches_text
from perfkit.views.names import short_names


class PlainLines:
    """Writes stages and decided benchmarks to standard error, each once."""

    def __init__(self) -> None:
        self._decided: set[str] = set()

    def say(self, text: str) -> None:
        """Write one line."""
        sys.stderr.write(f"{text}\n")

    def update(self, states: Sequence[Comparison], elapsed_s: float) -> None:
        """Write a line for each benchmark that is decided and was not before."""
        names = short_names(state.benchmark.name for state in states)
        for state in states:
            if state.verdict != "INCONCLUSIVE" and state.benchmark.name not in self._decided:
                self._decided.add(state.benchmark.name)
                self.say(f"[{elapsed_s:.0f} s] {names[state.benchmark.name]}: {_result(state)}")


def _result(state: Comparison) -> str:
    if state.estimate is None:
        return "; ".join((state.verdict, *details(state)))
    change, interval = change_text(state.estimate), interval_text(state.estimate)
    return f"{state.verdict} {change} ({interval}) after {launches_text(state.estimate)} launches"
