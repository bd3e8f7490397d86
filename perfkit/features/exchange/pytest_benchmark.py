"""JSON of pytest-benchmark: read of every version since 2.5, which was the first to write it, and written."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perfkit.features.exchange import records
from perfkit.identity import short_run_id
from perfkit.model import WALL_TIME, Benchmark, Machine, Outcome, Row, Summary

TOOL = "pytest-benchmark"
_WRITTEN_VERSION = "5.3.0"
# Derived from raw values; without these they are kept beside the summary.
_FURTHER = ("min", "max", "iqr", "q1", "q3", "iqr_outliers", "stddev_outliers", "ld15iqr", "hd15iqr")
_STAT, _EXTRA = "stats.", "extra_info."
_FENCE = 1.5


class _Stats(msgspec.Struct):
    """Seconds; ``data`` is there where the raw values were saved, ``ops`` and ``total`` since 3.1 and 3.2."""

    mean: float
    rounds: int
    stddev: float | None = None
    median: float | None = None
    min: float | None = None
    iterations: int | None = None
    data: list[float] | None = None
    max: Any = None
    iqr: Any = None
    q1: Any = None
    q3: Any = None
    iqr_outliers: Any = None
    stddev_outliers: Any = None
    ld15iqr: Any = None
    hd15iqr: Any = None


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
    """Return whether a file is one of pytest-benchmark's."""
    return "machine_info" in value and "benchmarks" in value


def read(value: Mapping[str, Any]) -> Iterator[records.ToolRun]:
    """Yield the run of a file."""
    file = records.convert(value, _File, TOOL)
    found = [_result(bench) for bench in file.benchmarks]
    info = file.commit_info or {}
    branch = info.get("branch")
    yield records.ToolRun(
        tool=TOOL,
        content=records.digest(value),
        commit=records.commit_of(
            info.get("id"),
            time=records.moment(info.get("time")),
            branch=branch if isinstance(branch, str) and not branch.startswith("(") else None,
            dirty=info.get("dirty") is True,
        ),
        recorded_at=records.moment(file.datetime),
        machine=_machine(file.machine_info),
        environment=records.environment_of(
            {
                "python": _python(file.machine_info),
                "compiler": file.machine_info.get("python_compiler"),
                "pytest-benchmark": file.version,
            }
        ),
        results=tuple(found),
    )


def _result(bench: _Bench) -> records.ToolResult:
    stats = bench.stats
    outcome = Outcome(
        benchmark=Benchmark(
            name=bench.fullname or bench.name,
            version=records.UNKNOWN_VERSION,
            params=records.facts(bench.params) if isinstance(bench.params, dict) else {},
            group=bench.group,
        ),
        loops=stats.iterations,
        values=tuple(stats.data or ()),
        summary=None if stats.data else _summary(stats),
    )
    extra = {f"{_EXTRA}{name}": records.as_text(one) for name, one in bench.extra_info.items()}
    further = {} if stats.data else {f"{_STAT}{name}": getattr(stats, name) for name in _FURTHER}
    entries = {**records.facts(bench.options), **records.facts(further), **extra}
    return records.checked(outcome, least=stats.min, entries=entries)


def _summary(stats: _Stats) -> Summary:
    # It writes 0 where a single round has no deviation.
    sd = stats.stddev if stats.rounds > 1 else None
    return Summary(n=stats.rounds, mean=stats.mean, sd=sd, median=stats.median)


def _machine(info: Mapping[str, Any]) -> Machine:
    cpu = info.get("cpu")
    cpu = cpu if isinstance(cpu, dict) else {}
    model = cpu.get("brand_raw") or cpu.get("brand")
    # A container has another name each time, so the name identifies a machine only where nothing else does.
    identity = {"cpu": model, "logical_cpus": cpu.get("count"), "architecture": info.get("machine")}
    return records.machine_of(
        identity if model else {**identity, "node": info.get("node")},
        {
            "node": info.get("node"),
            "system": " ".join(
                records.as_text(info[name]) for name in ("system", "release") if info.get(name)
            ),
            "processor": info.get("processor"),
        },
    )


def _python(info: Mapping[str, Any]) -> str | None:
    words = (info.get("python_implementation"), info.get("python_version"))
    return " ".join(records.as_text(word) for word in words if word) or None


def write(rows: Sequence[Row]) -> records.Written:
    """Return a file for each run and commit, named as pytest-benchmark does, and what was left out."""
    left_out: Counter[str] = Counter()
    files: dict[str, str] = {}
    sessions = records.grouped(rows, lambda row: (row.run_id, row.commit.sha, row.machine.machine_id))
    for session in sessions:
        benches = list(_benches(session, left_out))
        if benches:
            first = session[0]
            name = records.plain_name(f"{len(files) + 1:04}_{first.commit.sha}_{short_run_id(first.run_id)}")
            files[f"{name}.json"] = json.dumps(_session(first, benches), indent=4) + "\n"
    return records.Written(files=files, left_out=left_out)


def _benches(session: Sequence[Row], left_out: Counter[str]) -> Iterator[dict[str, Any]]:
    for launches in records.grouped(
        session, lambda row: (row.outcome.benchmark.name, row.outcome.metric.name)
    ):
        first, name = launches[0], launches[0].outcome.benchmark.name
        measured = [row for row in launches if row.outcome.status == "ok" and row.outcome.is_measured]
        if first.outcome.metric != WALL_TIME:
            left_out["rows of other metrics than the time of a call"] += len(launches)
            continue
        left_out["rows without a result"] += len(launches) - len(measured)
        values = [value for row in measured for value in row.outcome.values]
        stats = _stats(values) if values else _kept_stats(measured)
        if measured and stats is None:
            left_out["rows without raw values"] += len(measured)
        if measured and stats is not None:
            entries = records.entries_of(measured[0])
            yield {
                "group": first.outcome.benchmark.group,
                "name": name.rpartition("::")[2],
                "fullname": name,
                "params": dict(first.outcome.benchmark.params) or None,
                "param": name.partition("[")[2].removesuffix("]") or None,
                "extra_info": {
                    key.removeprefix(_EXTRA): one for key, one in entries.items() if key.startswith(_EXTRA)
                },
                "options": {key: one for key, one in entries.items() if not key.startswith((_EXTRA, _STAT))},
                "stats": {**stats, "iterations": measured[0].outcome.loops or 1},
            }


def _session(row: Row, benches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    machine, commit = row.machine.facts, row.commit
    implementation, _, python = row.environment.facts.get("python", "").partition(" ")
    system, _, release = machine.get("system", "").partition(" ")
    count = machine.get("logical_cpus", "")
    return {
        "machine_info": {
            "node": machine.get("node", ""),
            "processor": machine.get("processor", ""),
            "machine": machine.get("architecture", ""),
            "system": system,
            "release": release,
            "python_implementation": implementation,
            "python_version": python,
            "python_compiler": row.environment.facts.get("compiler", ""),
            "cpu": {
                "brand_raw": machine.get("cpu", ""),
                **({"count": int(count)} if count.isdecimal() else {}),
            },
        },
        "commit_info": {
            "id": commit.sha,
            "time": None if commit.time is None else commit.time.isoformat(),
            "dirty": commit.dirty,
            "branch": commit.branch or "(unknown)",
        },
        "benchmarks": benches,
        "datetime": row.recorded_at.isoformat(),
        "version": row.environment.facts.get(TOOL, _WRITTEN_VERSION),
    }


def _stats(values: Sequence[float]) -> dict[str, Any]:
    """Return pytest-benchmark's statistics: quartiles are the medians of both halves, fences are Tukey's."""
    ranked = sorted(values)
    mean = statistics.fmean(ranked)
    sd = statistics.stdev(ranked) if len(ranked) > 1 else 0.0
    half = (len(ranked) + 1) // 2
    q1, q3 = statistics.median(ranked[:half]), statistics.median(ranked[-half:])
    low, high = q1 - _FENCE * (q3 - q1), q3 + _FENCE * (q3 - q1)
    inside = [value for value in ranked if low <= value <= high]
    far = sum(abs(value - mean) > sd for value in ranked)
    return {
        "min": ranked[0],
        "max": ranked[-1],
        "mean": mean,
        "stddev": sd,
        "rounds": len(ranked),
        "median": statistics.median(ranked),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": len(ranked) - len(inside),
        "stddev_outliers": far,
        "outliers": f"{far};{len(ranked) - len(inside)}",
        "ld15iqr": inside[0],
        "hd15iqr": inside[-1],
        "ops": 1 / mean if mean else 0,
        "total": math.fsum(ranked),
        "data": list(values),
    }


def _kept_stats(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Return the statistics of a row that pytest-benchmark itself measured and saved without its values."""
    if len(rows) != 1 or rows[0].outcome.summary is None:
        return None
    summary, entries = rows[0].outcome.summary, records.entries_of(rows[0])
    kept = {name: records.number_of(entries, f"{_STAT}{name}") for name in _FURTHER}
    if None in kept.values() or summary.median is None:
        return None
    return {
        **kept,
        "outliers": f"{kept['stddev_outliers']};{kept['iqr_outliers']}",
        "mean": summary.mean,
        "stddev": summary.sd or 0,
        "rounds": summary.n,
        "median": summary.median,
        "ops": 1 / summary.mean,
        "total": summary.mean * summary.n,
    }
