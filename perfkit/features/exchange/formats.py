"""The formats that can be read, and which of them a file has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args

from perfkit.errors import UsageError
from perfkit.features.exchange import asv, github_action, google_benchmark, pyperf, pytest_benchmark, series
from perfkit.features.exchange.asv import AsvContext
from perfkit.features.exchange.foreign import ForeignRun

Format = Literal["asv", "github-action-benchmark", "google-benchmark", "pyperf", "pytest-benchmark", "series"]

# In this order they are tried: the first ones are told by more.
_RECOGNISERS: Mapping[Format, Callable[[Mapping[str, Any]], bool]] = {
    "pytest-benchmark": pytest_benchmark.recognises,
    "asv": asv.recognises,
    "google-benchmark": google_benchmark.recognises,
    "pyperf": pyperf.recognises,
    "github-action-benchmark": github_action.recognises,
    "series": series.recognises,
}
_READERS: Mapping[Format, Callable[[Mapping[str, Any]], Iterator[ForeignRun]]] = {
    "pytest-benchmark": pytest_benchmark.read,
    "google-benchmark": google_benchmark.read,
    "pyperf": pyperf.read,
    "github-action-benchmark": github_action.read,
    "series": series.read,
}
FORMATS: tuple[Format, ...] = get_args(Format)


def format_of(value: object) -> Format:
    """Return the format of what a file holds.

    Raises:
        UsageError: it is none that is known.
    """
    if isinstance(value, dict):
        for name, recognises in _RECOGNISERS.items():
            if recognises(value):
                return name
    raise UsageError(
        f"holds no results of a known format ({', '.join(FORMATS)}); if it does, name that with --format"
    )


def read(value: object, name: Format, context: AsvContext | None = None) -> Iterator[ForeignRun]:
    """Yield the runs of what a file holds; ``context`` is what lies beside a result file of asv.

    Raises:
        UsageError: it is not of that format.
    """
    if not isinstance(value, dict):
        raise UsageError(f"is not as {name} writes it: it holds {_kind(value)} where an object should be")
    if name == "asv":
        return asv.read(value, context or AsvContext())
    return _READERS[name](value)


def _kind(value: object) -> str:
    return "a list" if isinstance(value, list) else "a single value"
