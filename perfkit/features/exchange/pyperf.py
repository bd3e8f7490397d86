"""JSON of pyperf, versions 5, 6 and 1.0 of its format: all that pyperf itself still reads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from perfkit.errors import UsageError
from perfkit.features.exchange.decoding import convert, digest
from perfkit.features.exchange.foreign import (
    UNKNOWN_VERSION,
    ForeignResult,
    ForeignRun,
    as_text,
    commit_of,
    divided,
    environment_of,
    facts,
    machine_of,
    metric_of,
    moment,
)
from perfkit.features.exchange.sense import checked
from perfkit.model import Benchmark, Machine, Outcome

TOOL = "pyperf"
_VERSIONS = (5, 6, "1.0")
# What is of a run or a benchmark: all else that is said is of the environment.
_OF_RUNS = frozenset(
    {
        *("name", "unit", "date", "duration", "uptime", "boot_time", "load_avg_1min", "mem_max_rss", "loops"),
        *("inner_loops", "calibrate_loops", "recalibrate_loops", "calibrate_warmups", "recalibrate_warmups"),
        *("runnable_threads", "hostname", "cpu_model_name", "cpu_count", "platform", "description", "tags"),
        *("commit_id", "commit_branch", "commit_date", "command", "command_max_rss", "cpu_freq", "cpu_temp"),
        *("timeit_stmt", "timeit_setup", "timeit_teardown", "mem_peak_pagefile_usage", "python_hash_seed"),
    }
)
_KEPT = ("date", "duration", "mem_max_rss", "tags")


class _Run(msgspec.Struct):
    """A process; one that only calibrates has no values. Before version 6 they were called samples."""

    values: list[float] = []
    samples: list[float] = []
    warmups: list[Any] = []
    metadata: dict[str, Any] = {}


class _Bench(msgspec.Struct):
    runs: list[_Run]
    metadata: dict[str, Any] = {}
    common_metadata: dict[str, Any] = {}


class _File(msgspec.Struct):
    benchmarks: list[_Bench]
    version: str | int
    metadata: dict[str, Any] | None = None


def recognises(value: Mapping[str, Any]) -> bool:
    """Tell whether a file is one of pyperf's."""
    benchmarks = value.get("benchmarks")
    first = benchmarks[0] if isinstance(benchmarks, list) and benchmarks else None
    return "version" in value and isinstance(first, dict) and "runs" in first


def read(value: Mapping[str, Any]) -> Iterator[ForeignRun]:
    """Yield the run of a file; each of its processes with values is a launch.

    Raises:
        UsageError: it is not as pyperf writes it, or of a version that pyperf no longer reads.
    """
    file = convert(value, _File, TOOL)
    if file.version not in _VERSIONS:
        raise UsageError(
            f"has version {file.version!r} of pyperf's format, and versions 5, 6 and 1.0 can be read"
        )
    common = [_known(file, bench) for bench in file.benchmarks]
    pairs = zip(file.benchmarks, common, strict=True)
    found = [one for bench, known in pairs for one in _results(bench, known)]
    if not found:
        return
    known = common[0]
    yield ForeignRun(
        tool=TOOL,
        content=digest(value),
        commit=commit_of(
            known.get("commit_id"),
            time=moment(known.get("commit_date")),
            branch=_text(known, "commit_branch"),
        ),
        recorded_at=_begun(file.benchmarks),
        machine=_machine(known),
        environment=environment_of(
            {name: one for name, one in known.items() if name not in _OF_RUNS} | {"python": _python(known)}
        ),
        results=tuple(result for result, _ in found),
        doubts=tuple(doubt for _, doubts in found for doubt in doubts),
    )


def _machine(known: Mapping[str, Any]) -> Machine:
    model, node = known.get("cpu_model_name"), known.get("hostname")
    identity = {"cpu": model, "logical_cpus": known.get("cpu_count")}
    return machine_of(
        identity if model else {**identity, "node": node}, {"node": node, "system": known.get("platform")}
    )


def _python(known: Mapping[str, Any]) -> str:
    words = (known.get("python_implementation"), known.get("python_version"))
    return " ".join(as_text(word) for word in words if word)


def _known(file: _File, bench: _Bench) -> dict[str, Any]:
    """Return what is said of all runs of a benchmark, wherever a version of the format says it."""
    first = bench.runs[0].metadata if bench.runs else {}
    shared = {
        name: one
        for name, one in first.items()
        if all(name in run.metadata and run.metadata[name] == one for run in bench.runs)
    }
    return {**(file.metadata or {}), **bench.common_metadata, **bench.metadata, **shared}


def _results(bench: _Bench, known: Mapping[str, Any]) -> Iterator[tuple[ForeignResult, Sequence[str]]]:
    name = _text(known, "name")
    if name is None:
        raise UsageError(f"is not as {TOOL} writes it: a benchmark in it has no name")
    metric, divisor = metric_of(_text(known, "unit") or "second")
    launches = itertools.count()
    for run in bench.runs:
        values = run.values or run.samples
        if not values:
            continue
        said = {**known, **run.metadata}
        outcome, doubts = checked(
            Outcome(
                benchmark=Benchmark(name=name, version=UNKNOWN_VERSION),
                metric=metric,
                warmup=_untimed(run) * _whole(said, "inner_loops"),
                loops=_whole(said, "loops") * _whole(said, "inner_loops"),
                values=divided(values, divisor),
            )
        )
        entries = facts({key: said.get(key) for key in _KEPT})
        yield ForeignResult(outcome=outcome, launch=next(launches), entries=entries), doubts


def _untimed(run: _Run) -> int:
    """Return the loops of a process's warm-ups, which are pairs of loops and a time."""
    loops = [warmup[0] for warmup in run.warmups if isinstance(warmup, list) and warmup]
    return sum(one for one in loops if isinstance(one, int))


def _begun(benchmarks: Sequence[_Bench]) -> datetime | None:
    times = [moment(run.metadata.get("date")) for bench in benchmarks for run in bench.runs]
    return min((time for time in times if time is not None), default=None)


def _text(known: Mapping[str, Any], name: str) -> str | None:
    found = known.get(name)
    return found if isinstance(found, str) and found else None


def _whole(known: Mapping[str, Any], name: str) -> int:
    """Return how many loops there are: one where nothing is said."""
    found = known.get(name, 1)
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise UsageError(f"is not as {TOOL} writes it: {name} must be a whole number, found {found!r}")
    return found
