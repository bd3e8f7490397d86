"""The ``data.js`` of github-action-benchmark: the history of a repository's benchmarks, an entry a commit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
    facts,
    machine_of,
    metric_of,
    moment,
)
from perfkit.features.exchange.sense import checked
from perfkit.model import WALL_TIME, Benchmark, Better, Outcome, Summary

TOOL = "github-action-benchmark"
# Of the other tools the unit tells: some of them have times and rates.
_BETTER: Mapping[str, Better] = {
    "benchmarkjs": "higher",
    "pytest": "higher",
    "customBiggerIsBetter": "higher",
    "customSmallerIsBetter": "lower",
}
_NUMBER = r"([0-9][0-9.,]*(?:e[-+]?\d+)?)"
_DEVIATION = re.compile(rf"stddev:\s*{_NUMBER}", re.IGNORECASE)
_ROUNDS = re.compile(r"\brounds:\s*(\d+)")
_ITERATIONS = re.compile(r"\b(?:iterations:\s*(\d+)|(\d+) times)\b")


class _Commit(msgspec.Struct):
    id: str
    message: str | None = None
    timestamp: str | None = None


class _Bench(msgspec.Struct):
    name: str
    value: float | str | None
    unit: str = ""
    range: str | float | None = None
    extra: str | None = None


class _Entry(msgspec.Struct):
    """What a tool measured at a commit; ``date`` is in milliseconds since 1970."""

    commit: _Commit
    benches: list[_Bench]
    tool: str = ""
    date: float | None = None


class _File(msgspec.Struct):
    entries: dict[str, list[Any]]
    repoUrl: str | None = None  # noqa: N815 (the name of the member)


def recognises(value: Mapping[str, Any]) -> bool:
    """Tell whether a file is one of github-action-benchmark's."""
    return isinstance(value.get("entries"), dict) and ("lastUpdate" in value or "repoUrl" in value)


def read(value: Mapping[str, Any]) -> Iterator[ForeignRun]:
    """Yield a run for each entry of each suite.

    Raises:
        UsageError: it is not as github-action-benchmark writes it.
    """
    file = convert(value, _File, TOOL)
    for suite, entries in file.entries.items():
        for raw in entries:
            entry = convert(raw, _Entry, TOOL)
            found = [_result(bench, suite, entry.tool) for bench in entry.benches]
            if not found:
                continue
            # A suite is a platform or a tool: nothing else says where it ran.
            machine = machine_of({"suite": suite, "repository": file.repoUrl}, {})
            yield ForeignRun(
                tool=TOOL,
                content=digest([suite, raw]),
                commit=commit_of(
                    entry.commit.id,
                    time=moment(entry.commit.timestamp),
                    subject=(entry.commit.message or "").partition("\n")[0] or None,
                ),
                recorded_at=moment(entry.date),
                machine=machine,
                environment=environment_of({"tool": entry.tool}),
                results=tuple(result for result, _ in found),
                doubts=tuple(doubt for _, doubts in found for doubt in doubts),
            )


def _result(bench: _Bench, suite: str, tool: str) -> tuple[ForeignResult, Sequence[str]]:
    benchmark = Benchmark(name=bench.name, version=UNKNOWN_VERSION, group=suite)
    entries = facts({"range": bench.range, "extra": bench.extra})
    value = _value(bench.value)
    if value is None:
        outcome = Outcome(benchmark=benchmark, status="error", message="the file holds no number of it")
        return ForeignResult(outcome=outcome, entries=entries), ()
    summary = _summary(bench, value) if tool == "pytest" else None
    metric, divisor = (WALL_TIME, 1.0) if summary else metric_of(bench.unit, _BETTER.get(tool))
    outcome, doubts = checked(
        Outcome(
            benchmark=benchmark,
            metric=metric,
            loops=_loops(bench.extra),
            values=() if summary else divided([value], divisor),
            summary=summary,
        )
    )
    return ForeignResult(outcome=outcome, entries=entries), doubts


def _summary(bench: _Bench, value: float) -> Summary | None:
    """Return the times that an entry of pytest-benchmark is of: its value is the inverse of their mean."""
    deviation = _DEVIATION.search(str(bench.range or ""))
    rounds = _ROUNDS.search(bench.extra or "")
    if bench.unit != "iter/sec" or deviation is None or rounds is None or value <= 0:
        return None
    size = int(rounds.group(1))
    sd = float(deviation.group(1).replace(",", "")) if size > 1 else None
    return Summary(n=size, mean=1 / value, sd=sd, median=None) if size else None


def _value(value: float | str | None) -> float | None:
    if not isinstance(value, str):
        return value
    try:
        return float(value.replace(",", ""))
    except ValueError:
        return None


def _loops(extra: str | None) -> int | None:
    found = _ITERATIONS.search(extra or "")
    return int(found.group(1) or found.group(2)) if found else None
