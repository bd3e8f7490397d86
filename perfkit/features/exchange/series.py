"""A plain series in JSON: a name, a unit, and a value, or a list of values, for each launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from perfkit.features.exchange.decoding import convert, digest
from perfkit.features.exchange.foreign import (
    UNKNOWN_VERSION,
    ForeignResult,
    ForeignRun,
    commit_of,
    divided,
    environment_of,
    machine_of,
    metric_of,
    moment,
)
from perfkit.features.exchange.sense import checked
from perfkit.model import Benchmark, Outcome
from perfkit.units import counted

TOOL = "series"


class _File(msgspec.Struct):
    name: str
    values: list[float | list[float]]
    unit: str = "s"
    commit: str | None = None
    date: str | None = None


def recognises(value: Mapping[str, Any]) -> bool:
    """Tell whether a file is such a series."""
    return isinstance(value.get("name"), str) and isinstance(value.get("values"), list)


def read(value: Mapping[str, Any]) -> Iterator[ForeignRun]:
    """Yield the run of a file: each of its values, or of its lists of values, is a launch.

    Raises:
        UsageError: something of it is missing or of another type.
    """
    file = convert(value, _File, "a series")
    metric, divisor = metric_of(file.unit)
    benchmark = Benchmark(name=file.name, version=UNKNOWN_VERSION)
    launches = [divided(one if isinstance(one, list) else [one], divisor) for one in file.values if one != []]
    found = [checked(Outcome(benchmark=benchmark, metric=metric, values=values)) for values in launches]
    if not found:
        return
    commit = commit_of(file.commit)
    told = f"{file.name}: its {counted(len(found), 'value')} are filed as launches of one commit"
    yield ForeignRun(
        tool=TOOL,
        content=digest(value),
        commit=commit,
        recorded_at=moment(file.date),
        machine=machine_of({}, {}),
        environment=environment_of({}),
        results=tuple(
            ForeignResult(outcome=outcome, launch=launch) for launch, (outcome, _) in enumerate(found)
        ),
        doubts=(
            *([told] if commit is None and len(found) > 1 else []),
            *(doubt for _, doubts in found for doubt in doubts),
        ),
    )
