"""The formats that can be read, and readers of those without a file of their own."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import msgspec

from perfkit.errors import UsageError
from perfkit.features.exchange import asv, pytest_benchmark, records
from perfkit.features.exchange.asv import AsvContext
from perfkit.model import WALL_TIME, Benchmark, Better, Outcome, Summary
from perfkit.units import counted

_GOOGLE = "google-benchmark"
# Versions before 1.5 mark aggregates by their names alone.
_AGGREGATE = re.compile(r"_(mean|median|stddev|cv|BigO|RMS)$")
_COMMITS = ("commit", "commit_id", "git_commit", "git_sha", "git_hash", "revision", "sha")
_OLD_DATE = "%Y/%m/%d-%H:%M:%S"
# What Complexity() adds of a family: the parameters of a curve through its sizes, which are no times.
_FITS = frozenset({"BigO", "RMS"})


class _GoogleEntry(msgspec.Struct):
    """A repetition, or an aggregate over some; times are per iteration, in ``time_unit``."""

    name: str
    run_name: str | None = None
    run_type: str | None = None
    aggregate_name: str | None = None
    repetitions: int | None = None
    iterations: float | None = None
    real_time: float | None = None
    time_unit: str = "ns"
    threads: int | None = None
    label: str | None = None
    error_occurred: bool = False
    error_message: str | None = None
    skipped: bool = False
    skip_message: str | None = None

    @property
    def aggregate(self) -> str:
        """The name of the aggregate that this is, "" for a repetition."""
        if self.run_type is not None:
            return (self.aggregate_name or "") if self.run_type == "aggregate" else ""
        found = _AGGREGATE.search(self.name)
        return found.group(1) if found else ""

    @property
    def benchmark(self) -> str:
        """The name that all repetitions and aggregates share."""
        if self.run_name is not None:
            return self.run_name
        return _AGGREGATE.sub("", self.name) if self.aggregate else self.name


class _GoogleFile(msgspec.Struct):
    context: dict[str, Any]
    benchmarks: list[_GoogleEntry]


def read_google_benchmark(value: Mapping[str, Any]) -> Iterator[records.ToolRun]:
    """Yield the run of a file: the real times of a benchmark's repetitions, or else of its aggregates."""
    file = records.convert(value, _GoogleFile, _GOOGLE)
    entries: dict[str, list[_GoogleEntry]] = {}
    for entry in file.benchmarks:
        entries.setdefault(entry.benchmark, []).append(entry)
    found = [
        _google_result(name, ones)
        for name, ones in entries.items()
        if not {one.aggregate for one in ones} <= _FITS
    ]
    context = file.context
    yield records.ToolRun(
        tool=_GOOGLE,
        content=records.digest(value),
        # It was given by --benchmark_context=commit=…
        commit=next(filter(None, (records.commit_of(context.get(name)) for name in _COMMITS)), None),
        recorded_at=_google_time(context.get("date")),
        machine=records.machine_of(
            {"node": context.get("host_name"), "logical_cpus": context.get("num_cpus")},
            {"mhz_per_cpu": context.get("mhz_per_cpu"), "scaling": context.get("cpu_scaling_enabled")},
        ),
        environment=records.environment_of(
            {
                "library": context.get("library_version"),
                "build": context.get("library_build_type"),
                "executable": context.get("executable"),
            }
        ),
        results=tuple(found),
        remarks=tuple(_google_left_out(value)),
    )


def _google_result(name: str, entries: Sequence[_GoogleEntry]) -> records.ToolResult:
    benchmark = Benchmark(name=name, version=records.UNKNOWN_VERSION)
    first = entries[0]
    extra = records.facts({"label": first.label, "threads": first.threads})
    failed = next((one for one in entries if one.error_occurred or one.skipped), None)
    if failed is not None:
        outcome = Outcome(
            benchmark=benchmark,
            status="error" if failed.error_occurred else "skipped",
            message=failed.error_message or failed.skip_message,
        )
        return records.ToolResult(outcome=outcome, entries=extra)
    repetitions = [one for one in entries if not one.aggregate]
    _, divisor = records.metric_of(first.time_unit)
    times = [one.real_time for one in repetitions if one.real_time is not None]
    loops = {one.iterations for one in repetitions}
    outcome = Outcome(
        benchmark=benchmark,
        metric=WALL_TIME,
        loops=int(first.iterations) if len(loops) == 1 and first.iterations is not None else None,
        values=records.divided(times, divisor),
        summary=None if times else _google_summary(entries, divisor),
    )
    if not outcome.is_measured:
        outcome = Outcome(benchmark=benchmark, status="error", message="the file holds no time of it")
    return records.checked(outcome, entries=extra)


def _google_summary(entries: Sequence[_GoogleEntry], divisor: float) -> Summary | None:
    known = {one.aggregate: one.real_time / divisor for one in entries if one.real_time is not None}
    size = max((one.repetitions or int(one.iterations or 0) for one in entries), default=0)
    if "mean" not in known or size < 1:
        return None
    return Summary(
        n=size, mean=known["mean"], sd=known.get("stddev") if size > 1 else None, median=known.get("median")
    )


def _google_left_out(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield which further numbers of its entries are not taken."""
    others = ("cpu_time", "bytes_per_second", "items_per_second")
    seen = [name for name in others if any(name in one for one in value["benchmarks"])]
    if seen[1:]:
        yield f"of each benchmark its real time is taken, and not {', '.join(seen)}"


def _google_time(date: object) -> datetime | None:
    if isinstance(date, str):
        with contextlib.suppress(ValueError):
            return datetime.strptime(date, _OLD_DATE).replace(tzinfo=UTC)
    return records.moment(date)


_PYPERF = "pyperf"
_PYPERF_VERSIONS = (5, 6, "1.0")
# Metadata of runs and benchmarks; all other metadata are of the environment.
_OF_RUNS = frozenset(
    {
        *("name", "unit", "date", "duration", "uptime", "boot_time", "load_avg_1min", "mem_max_rss", "loops"),
        *("inner_loops", "calibrate_loops", "recalibrate_loops", "calibrate_warmups", "recalibrate_warmups"),
        *("runnable_threads", "hostname", "cpu_model_name", "cpu_count", "platform", "description", "tags"),
        *("commit_id", "commit_branch", "commit_date", "command", "command_max_rss", "cpu_freq", "cpu_temp"),
        *("timeit_stmt", "timeit_setup", "timeit_teardown", "mem_peak_pagefile_usage", "python_hash_seed"),
    }
)
_PYPERF_KEPT = ("date", "duration", "mem_max_rss", "tags")


class _PyperfRun(msgspec.Struct):
    """A process; one that only calibrates has no values. Before version 6 they were called samples."""

    values: list[float] = []
    samples: list[float] = []
    warmups: list[Any] = []
    metadata: dict[str, Any] = {}


class _PyperfBench(msgspec.Struct):
    runs: list[_PyperfRun]
    metadata: dict[str, Any] = {}
    common_metadata: dict[str, Any] = {}


class _PyperfFile(msgspec.Struct):
    benchmarks: list[_PyperfBench]
    version: str | int
    metadata: dict[str, Any] | None = None


def read_pyperf(value: Mapping[str, Any]) -> Iterator[records.ToolRun]:
    """Yield the run of a file; each of its processes with values is a launch."""
    file = records.convert(value, _PyperfFile, _PYPERF)
    if file.version not in _PYPERF_VERSIONS:
        raise UsageError(
            f"has version {file.version!r} of pyperf's format, and versions 5, 6 and 1.0 can be read"
        )
    common = [_pyperf_metadata(file, bench) for bench in file.benchmarks]
    pairs = zip(file.benchmarks, common, strict=True)
    found = [one for bench, known in pairs for one in _pyperf_results(bench, known)]
    if not found:
        return
    known = common[0]
    node = known.get("hostname")
    identity = {"cpu": known.get("cpu_model_name"), "logical_cpus": known.get("cpu_count")}
    times = [records.moment(run.metadata.get("date")) for bench in file.benchmarks for run in bench.runs]
    python = (known.get("python_implementation"), known.get("python_version"))
    yield records.ToolRun(
        tool=_PYPERF,
        content=records.digest(value),
        commit=records.commit_of(
            known.get("commit_id"),
            time=records.moment(known.get("commit_date")),
            branch=_metadata_text(known, "commit_branch"),
        ),
        recorded_at=min((time for time in times if time is not None), default=None),
        machine=records.machine_of(
            identity if known.get("cpu_model_name") else {**identity, "node": node},
            {"node": node, "system": known.get("platform")},
        ),
        environment=records.environment_of(
            {name: one for name, one in known.items() if name not in _OF_RUNS}
            | {"python": " ".join(records.as_text(word) for word in python if word)}
        ),
        results=tuple(found),
    )


def _pyperf_metadata(file: _PyperfFile, bench: _PyperfBench) -> dict[str, Any]:
    """Return the metadata of all runs of a benchmark, wherever a version of the format has them."""
    first = bench.runs[0].metadata if bench.runs else {}
    shared = {
        name: one
        for name, one in first.items()
        if all(name in run.metadata and run.metadata[name] == one for run in bench.runs)
    }
    return {**(file.metadata or {}), **bench.common_metadata, **bench.metadata, **shared}


def _pyperf_results(bench: _PyperfBench, known: Mapping[str, Any]) -> Iterator[records.ToolResult]:
    name = _metadata_text(known, "name")
    if name is None:
        raise UsageError(f"is not as {_PYPERF} writes it: a benchmark in it has no name")
    metric, divisor = records.metric_of(_metadata_text(known, "unit") or "second")
    launches = itertools.count()
    for run in bench.runs:
        values = run.values or run.samples
        if not values:
            continue
        metadata = {**known, **run.metadata}
        # Warm-ups are pairs of loops and a time.
        loops = [warmup[0] for warmup in run.warmups if isinstance(warmup, list) and warmup]
        untimed = sum(one for one in loops if isinstance(one, int))
        outcome = Outcome(
            benchmark=Benchmark(name=name, version=records.UNKNOWN_VERSION),
            metric=metric,
            warmup=untimed * _metadata_loops(metadata, "inner_loops"),
            loops=_metadata_loops(metadata, "loops") * _metadata_loops(metadata, "inner_loops"),
            values=records.divided(values, divisor),
        )
        entries = records.facts({key: metadata.get(key) for key in _PYPERF_KEPT})
        yield records.checked(outcome, launch=next(launches), entries=entries)


def _metadata_text(known: Mapping[str, Any], name: str) -> str | None:
    found = known.get(name)
    return found if isinstance(found, str) and found else None


def _metadata_loops(known: Mapping[str, Any], name: str) -> int:
    """Return a number of loops, 1 where there is none."""
    found = known.get(name, 1)
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise UsageError(f"is not as {_PYPERF} writes it: {name} must be a whole number, found {found!r}")
    return found


_ACTION = "github-action-benchmark"
# For other tools the unit decides: some have times and rates.
_ACTION_BETTER: Mapping[str, Better] = {
    "benchmarkjs": "higher",
    "pytest": "higher",
    "customBiggerIsBetter": "higher",
    "customSmallerIsBetter": "lower",
}
_NUMBER = r"([0-9][0-9.,]*(?:e[-+]?\d+)?)"
_DEVIATION = re.compile(rf"stddev:\s*{_NUMBER}", re.IGNORECASE)
_ROUNDS = re.compile(r"\brounds:\s*(\d+)")
_ITERATIONS = re.compile(r"\b(?:iterations:\s*(\d+)|(\d+) times)\b")


class _ActionCommit(msgspec.Struct):
    id: str
    message: str | None = None
    timestamp: str | None = None


class _ActionBench(msgspec.Struct):
    name: str
    value: float | str | None
    unit: str = ""
    range: str | float | None = None
    extra: str | None = None


class _ActionEntry(msgspec.Struct):
    """What a tool measured at a commit; ``date`` is in milliseconds since 1970."""

    commit: _ActionCommit
    benches: list[_ActionBench]
    tool: str = ""
    date: float | None = None


class _ActionFile(msgspec.Struct):
    entries: dict[str, list[Any]]
    repoUrl: str | None = None  # noqa: N815 (the name of the member)


def read_github_action(value: Mapping[str, Any]) -> Iterator[records.ToolRun]:
    """Yield a run for each entry of each suite."""
    file = records.convert(value, _ActionFile, _ACTION)
    for suite, entries in file.entries.items():
        for raw in entries:
            entry = records.convert(raw, _ActionEntry, _ACTION)
            found = [_action_result(bench, suite, entry.tool) for bench in entry.benches]
            # A suite is a platform or a tool: nothing else identifies the machine.
            machine = records.machine_of({"suite": suite, "repository": file.repoUrl}, {})
            yield records.ToolRun(
                tool=_ACTION,
                content=records.digest([suite, raw]),
                commit=records.commit_of(
                    entry.commit.id,
                    time=records.moment(entry.commit.timestamp),
                    subject=(entry.commit.message or "").partition("\n")[0] or None,
                ),
                recorded_at=records.moment(entry.date),
                machine=machine,
                environment=records.environment_of({"tool": entry.tool}),
                results=tuple(found),
            )


def _action_result(bench: _ActionBench, suite: str, tool: str) -> records.ToolResult:
    benchmark = Benchmark(name=bench.name, version=records.UNKNOWN_VERSION, group=suite)
    entries = records.facts({"range": bench.range, "extra": bench.extra})
    value = _action_value(bench.value)
    if value is None:
        outcome = Outcome(benchmark=benchmark, status="error", message="the file holds no number of it")
        return records.ToolResult(outcome=outcome, entries=entries)
    loops = _ITERATIONS.search(bench.extra or "")
    summary = _action_summary(bench, value) if tool == "pytest" else None
    metric, divisor = (WALL_TIME, 1.0) if summary else records.metric_of(bench.unit, _ACTION_BETTER.get(tool))
    outcome = Outcome(
        benchmark=benchmark,
        metric=metric,
        loops=int(loops[1] or loops[2]) if loops else None,
        values=() if summary else records.divided([value], divisor),
        summary=summary,
    )
    return records.checked(outcome, entries=entries)


def _action_summary(bench: _ActionBench, value: float) -> Summary | None:
    """Return the times that an entry of pytest-benchmark is of: its value is the inverse of their mean."""
    deviation = _DEVIATION.search(str(bench.range or ""))
    rounds = _ROUNDS.search(bench.extra or "")
    if bench.unit != "iter/sec" or deviation is None or rounds is None or value <= 0:
        return None
    size = int(rounds.group(1))
    sd = float(deviation.group(1).replace(",", "")) if size > 1 else None
    return Summary(n=size, mean=1 / value, sd=sd, median=None) if size else None


def _action_value(value: float | str | None) -> float | None:
    if not isinstance(value, str):
        return value
    try:
        return float(value.replace(",", ""))
    except ValueError:
        return None


_SERIES = "series"


class _Series(msgspec.Struct):
    name: str
    values: list[float | list[float]]
    unit: str = "s"
    commit: str | None = None
    date: str | None = None


def read_series(value: Mapping[str, Any]) -> Iterator[records.ToolRun]:
    """Yield the run of a file: each of its values, or of its lists of values, is a launch."""
    file = records.convert(value, _Series, "a series")
    metric, divisor = records.metric_of(file.unit)
    benchmark = Benchmark(name=file.name, version=records.UNKNOWN_VERSION)
    launches = [
        records.divided(one if isinstance(one, list) else [one], divisor) for one in file.values if one != []
    ]
    found = [
        records.checked(Outcome(benchmark=benchmark, metric=metric, values=values), launch=launch)
        for launch, values in enumerate(launches)
    ]
    commit = records.commit_of(file.commit)
    several = f"{file.name}: its {counted(len(found), 'value')} are filed as launches of one commit"
    yield records.ToolRun(
        tool=_SERIES,
        content=records.digest(value),
        commit=commit,
        recorded_at=records.moment(file.date),
        machine=records.machine_of({}, {}),
        environment=records.environment_of({}),
        results=tuple(found),
        remarks=(several,) if commit is None and len(found) > 1 else (),
    )


Format = Literal["asv", "github-action-benchmark", "google-benchmark", "pyperf", "pytest-benchmark", "series"]


def _has_list(file: Mapping[str, Any], member: str) -> bool:
    return isinstance(file.get(member), list)


# They are tried in this order, the most specific first.
_RECOGNISERS: Mapping[Format, Callable[[Mapping[str, Any]], bool]] = {
    "pytest-benchmark": pytest_benchmark.recognises,
    "asv": asv.recognises,
    "google-benchmark": lambda file: isinstance(file.get("context"), dict) and _has_list(file, "benchmarks"),
    "pyperf": lambda file: (
        "version" in file
        and _has_list(file, "benchmarks")
        and any(isinstance(one, dict) and "runs" in one for one in file["benchmarks"][:1])
    ),
    "github-action-benchmark": lambda file: (
        isinstance(file.get("entries"), dict) and ("lastUpdate" in file or "repoUrl" in file)
    ),
    "series": lambda file: isinstance(file.get("name"), str) and _has_list(file, "values"),
}
_READERS: Mapping[Format, Callable[[Mapping[str, Any]], Iterator[records.ToolRun]]] = {
    "pytest-benchmark": pytest_benchmark.read,
    "google-benchmark": read_google_benchmark,
    "pyperf": read_pyperf,
    "github-action-benchmark": read_github_action,
    "series": read_series,
}
FORMATS: tuple[Format, ...] = get_args(Format)


def format_of(value: object) -> Format:
    """Return the format of what a file holds."""
    if isinstance(value, dict):
        for name, recognises in _RECOGNISERS.items():
            if recognises(value):
                return name
    raise UsageError(
        f"holds no results of a known format ({', '.join(FORMATS)}); if it does, name that with --format"
    )


def read(value: object, name: Format, context: AsvContext | None = None) -> Iterator[records.ToolRun]:
    """Yield the runs of what a file holds; ``context`` is what lies beside a result file of asv."""
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "a single value"
        raise UsageError(f"is not as {name} writes it: it holds {kind} where an object should be")
    runs = asv.read(value, context or AsvContext()) if name == "asv" else _READERS[name](value)
    return (run for run in runs if run.results)
