"""JSON of Google Benchmark, with and without the members that later versions added."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
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
from perfkit.model import WALL_TIME, Benchmark, Commit, Outcome, Summary

TOOL = "google-benchmark"
# Versions before 1.5 do not say which of their entries are aggregates, but name them so.
_AGGREGATE = re.compile(r"_(mean|median|stddev|cv|BigO|RMS)$")
_COMMITS = ("commit", "commit_id", "git_commit", "git_sha", "git_hash", "revision", "sha")
_OLD_DATE = "%Y/%m/%d-%H:%M:%S"
# What Complexity() adds of a family: the parameters of a curve through its sizes, which are no times.
_FITS = frozenset({"BigO", "RMS"})


class _Entry(msgspec.Struct):
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


class _File(msgspec.Struct):
    context: dict[str, Any]
    benchmarks: list[_Entry]


def recognises(value: Mapping[str, Any]) -> bool:
    """Tell whether a file is one of Google Benchmark's."""
    return isinstance(value.get("context"), dict) and isinstance(value.get("benchmarks"), list)


def read(value: Mapping[str, Any]) -> Iterator[ForeignRun]:
    """Yield the run of a file: the real times of a benchmark's repetitions, or else of its aggregates.

    Raises:
        UsageError: it is not as Google Benchmark writes it.
    """
    file = convert(value, _File, TOOL)
    entries: dict[str, list[_Entry]] = {}
    for entry in file.benchmarks:
        entries.setdefault(entry.benchmark, []).append(entry)
    found = [
        _result(name, ones) for name, ones in entries.items() if not {one.aggregate for one in ones} <= _FITS
    ]
    if not found:
        return
    context = file.context
    yield ForeignRun(
        tool=TOOL,
        content=digest(value),
        commit=_commit(context),
        recorded_at=_time(context.get("date")),
        machine=machine_of(
            {"node": context.get("host_name"), "logical_cpus": context.get("num_cpus")},
            {"mhz_per_cpu": context.get("mhz_per_cpu"), "scaling": context.get("cpu_scaling_enabled")},
        ),
        environment=environment_of(
            {
                "library": context.get("library_version"),
                "build": context.get("library_build_type"),
                "executable": context.get("executable"),
            }
        ),
        results=tuple(result for result, _ in found),
        doubts=(*_left_out(value), *(doubt for _, doubts in found for doubt in doubts)),
    )


def _result(name: str, entries: Sequence[_Entry]) -> tuple[ForeignResult, Sequence[str]]:
    benchmark = Benchmark(name=name, version=UNKNOWN_VERSION)
    first = entries[0]
    extra = facts({"label": first.label, "threads": first.threads})
    failed = next((one for one in entries if one.error_occurred or one.skipped), None)
    if failed is not None:
        outcome = Outcome(
            benchmark=benchmark,
            status="error" if failed.error_occurred else "skipped",
            message=failed.error_message or failed.skip_message,
        )
        return ForeignResult(outcome=outcome, entries=extra), ()
    repetitions = [one for one in entries if not one.aggregate]
    _, divisor = metric_of(first.time_unit)
    times = [one.real_time for one in repetitions if one.real_time is not None]
    loops = {one.iterations for one in repetitions}
    outcome, doubts = checked(
        Outcome(
            benchmark=benchmark,
            metric=WALL_TIME,
            loops=int(first.iterations) if len(loops) == 1 and first.iterations is not None else None,
            values=divided(times, divisor),
            summary=None if times else _summary(entries, divisor),
        )
    )
    if not outcome.is_measured and outcome.status == "ok":
        outcome = Outcome(benchmark=benchmark, status="error", message="the file holds no time of it")
    return ForeignResult(outcome=outcome, entries=extra), doubts


def _summary(entries: Sequence[_Entry], divisor: float) -> Summary | None:
    known = {one.aggregate: one.real_time / divisor for one in entries if one.real_time is not None}
    size = max((one.repetitions or int(one.iterations or 0) for one in entries), default=0)
    if "mean" not in known or size < 1:
        return None
    return Summary(
        n=size, mean=known["mean"], sd=known.get("stddev") if size > 1 else None, median=known.get("median")
    )


def _left_out(value: Mapping[str, Any]) -> Iterator[str]:
    """Say which further numbers of its entries are not taken."""
    others = ("cpu_time", "bytes_per_second", "items_per_second")
    seen = [name for name in others if any(name in one for one in value["benchmarks"])]
    if seen[1:]:
        yield f"of each benchmark its real time is taken, and not {', '.join(seen)}"


def _commit(context: Mapping[str, Any]) -> Commit | None:
    """Return the commit that was given by ``--benchmark_context=commit=…``."""
    found = (commit_of(context.get(name)) for name in _COMMITS)
    return next((commit for commit in found if commit is not None), None)


def _time(date: object) -> datetime | None:
    if isinstance(date, str):
        with contextlib.suppress(ValueError):
            return datetime.strptime(date, _OLD_DATE).replace(tzinfo=UTC)
    return moment(date)
