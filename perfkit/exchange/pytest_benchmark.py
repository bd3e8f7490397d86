"""JSON of pytest-benchmark, of every version since 2.5, which was the first to write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perfkit.exchange.decoding import convert, digest
from perfkit.exchange.foreign import (
    UNKNOWN_VERSION,
    ForeignResult,
    ForeignRun,
    as_text,
    commit_of,
    environment_of,
    facts,
    machine_of,
    moment,
)
from perfkit.exchange.sense import checked
from perfkit.records import Benchmark, Machine, Outcome, Summary

TOOL = "pytest-benchmark"


class _Stats(msgspec.Struct):
    """Seconds; ``data`` is there where the raw values were saved, ``ops`` and ``total`` since 3.1 and 3.2."""

    mean: float
    rounds: int
    stddev: float | None = None
    median: float | None = None
    min: float | None = None
    iterations: int | None = None
    data: list[float] | None = None


class _Bench(msgspec.Struct):
    name: str
    stats: _Stats
    fullname: str | None = None
    group: str | None = None
    params: Any = None
    extra_info: dict[str, Any] = {}
    options: dict[str, Any] = {}


class _File(msgspec.Struct):
    benchmarks: list[_Bench]
    machine_info: dict[str, Any] = {}
    commit_info: dict[str, Any] | None = None
    datetime: str | None = None
    version: str | None = None


def recognises(value: Mapping[str, Any]) -> bool:
    """Tell whether a file is one of pytest-benchmark's."""
    return "machine_info" in value and "benchmarks" in value


def read(value: Mapping[str, Any]) -> Iterator[ForeignRun]:
    """Yield the run of a file.

    Raises:
        UsageError: it is not as pytest-benchmark writes it.
    """
    file = convert(value, _File, TOOL)
    found = [_result(bench) for bench in file.benchmarks]
    if not found:
        return
    info = file.commit_info or {}
    branch = info.get("branch")
    yield ForeignRun(
        tool=TOOL,
        content=digest(value),
        commit=commit_of(
            info.get("id"),
            time=moment(info.get("time")),
            branch=branch if isinstance(branch, str) and not branch.startswith("(") else None,
            dirty=info.get("dirty") is True,
        ),
        recorded_at=moment(file.datetime),
        machine=_machine(file.machine_info),
        environment=environment_of(
            {
                "python": _python(file.machine_info),
                "compiler": file.machine_info.get("python_compiler"),
                "pytest-benchmark": file.version,
            }
        ),
        results=tuple(result for result, _ in found),
        doubts=tuple(doubt for _, doubts in found for doubt in doubts),
    )


def _result(bench: _Bench) -> tuple[ForeignResult, Sequence[str]]:
    stats = bench.stats
    outcome, doubts = checked(
        Outcome(
            benchmark=Benchmark(
                name=bench.fullname or bench.name,
                version=UNKNOWN_VERSION,
                params=facts(bench.params) if isinstance(bench.params, dict) else {},
                group=bench.group,
            ),
            loops=stats.iterations,
            values=tuple(stats.data or ()),
            summary=None if stats.data else _summary(stats),
        ),
        stats.min,
    )
    extra = {f"extra_info.{name}": as_text(one) for name, one in bench.extra_info.items()}
    return ForeignResult(outcome=outcome, entries={**facts(bench.options), **extra}), doubts


def _summary(stats: _Stats) -> Summary:
    # It writes 0 where a single round has no deviation.
    sd = stats.stddev if stats.rounds > 1 else None
    return Summary(n=stats.rounds, mean=stats.mean, sd=sd, median=stats.median)


def _machine(info: Mapping[str, Any]) -> Machine:
    cpu = info.get("cpu")
    cpu = cpu if isinstance(cpu, dict) else {}
    model = cpu.get("brand_raw") or cpu.get("brand")
    # A container has another name each time, so the name tells machines apart only where nothing else does.
    identity = {"cpu": model, "logical_cpus": cpu.get("count"), "architecture": info.get("machine")}
    return machine_of(
        identity if model else {**identity, "node": info.get("node")},
        {
            "node": info.get("node"),
            "system": " ".join(as_text(info[name]) for name in ("system", "release") if info.get(name)),
            "processor": info.get("processor"),
        },
    )


def _python(info: Mapping[str, Any]) -> str | None:
    words = (info.get("python_implementation"), info.get("python_version"))
    return " ".join(as_text(word) for word in words if word) or None
