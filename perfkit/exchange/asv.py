"""Result files of asv (airspeed velocity), versions 1 and 2 of their format."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from perfkit.errors import UsageError
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
    metric_of,
    moment,
)
from perfkit.exchange.sense import checked
from perfkit.records import WALL_TIME, Benchmark, Metric, Outcome, Status

TOOL = "asv"
MACHINE_FILE, BENCHMARKS_FILE = "machine.json", "benchmarks.json"
_VERSIONS = (1, 2)
_VERSION_DIGITS = 16
_HARDWARE = ("cpu", "num_cpu", "ram", "arch", "os", "machine")
_STATS = ("ci_99_a", "ci_99_b", "q_25", "q_75", "repeat", "mean", "std", "min", "max")
_TYPES = {
    "time": "time", "timeraw": "time", "mem": "memory", "peakmem": "peakmemory", "track": "track",
}  # fmt: skip
_UNITS = {"time": "seconds", "memory": "bytes", "peakmemory": "bytes"}
_GIB = 1 << 30
# So many KiB, 2 TiB, no machine had while asv said KiB; so few bytes, 2 GiB, none that ran macOS.
_LEAST_IN_BYTES = 1 << 31
_MOST_DIGITS = 18
_FAILED = "asv has no result: the benchmark failed, took too long or was not run"
_SKIPPED = "skipped, as its setup said"


class _File(msgspec.Struct):
    """A file; in version 1, what columns are here were members beside ``results``."""

    commit_hash: str
    results: dict[str, Any]
    version: int = 1
    params: dict[str, Any] = {}
    requirements: dict[str, Any] = {}
    env_vars: dict[str, Any] = {}
    python: str | None = None
    env_name: str | None = None
    date: float | None = None
    result_columns: list[str] = []
    started_at: dict[str, Any] = {}
    benchmark_version: dict[str, Any] = {}


@dataclass(frozen=True, kw_only=True)
class AsvContext:
    """What a folder of results says of its machine, and of its benchmarks by name."""

    machine: Mapping[str, Any] = field(default_factory=dict)
    benchmarks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def context_of(machine: object, benchmarks: object) -> AsvContext:
    """Return what ``machine.json`` and ``benchmarks.json`` say, where they are there and say it."""
    named = benchmarks.items() if isinstance(benchmarks, dict) else ()
    return AsvContext(
        machine=machine if isinstance(machine, dict) else {},
        benchmarks={name: one for name, one in named if isinstance(one, dict)},
    )


def recognises(value: Mapping[str, Any]) -> bool:
    """Tell whether a file holds results of asv."""
    return "commit_hash" in value and "results" in value


def read(value: Mapping[str, Any], context: AsvContext) -> Iterator[ForeignRun]:
    """Yield the run of a result file: one result for each combination of a benchmark's parameters.

    Raises:
        UsageError: it is not as asv writes it, or of a newer version.
    """
    file = convert(value, _File, TOOL)
    if file.version not in _VERSIONS:
        raise UsageError(f"has version {file.version} of asv's format, and versions 1 and 2 can be read")
    found = [one for name in file.results for one in _results(name, file, context)]
    if not found:
        return
    begun = [moment(text) for text in {result.entries.get("started_at") for result, _ in found}]
    hardware = {**context.machine, **file.params}
    known = {name: hardware.get(name) for name in _HARDWARE}
    yield ForeignRun(
        tool=TOOL,
        content=digest(value),
        commit=commit_of(file.commit_hash, time=moment(file.date)),
        recorded_at=max((time for time in begun if time is not None), default=moment(file.date)),
        machine=machine_of(
            # A machine has a name of its own in asv, which its owner keeps as long as it is the same.
            {"machine": known["machine"], "cpu": known["cpu"], "logical_cpus": known["num_cpu"]},
            {"system": known["os"], "architecture": known["arch"], "ram_gib": _gib(known["ram"])},
        ),
        environment=environment_of(
            {
                "python": file.python,
                **file.requirements,
                **{f"variable {name}": one for name, one in file.env_vars.items()},
                "environment": file.env_name,
            }
        ),
        results=tuple(result for result, _ in found),
        doubts=tuple(doubt for _, doubts in found for doubt in doubts),
    )


def parameterised(name: str, parameters: Sequence[str]) -> str:
    """Return the name that one combination of parameters has in the ledger."""
    return f"{name}[{', '.join(parameters)}]" if parameters else name


def _results(name: str, file: _File, context: AsvContext) -> Iterator[tuple[ForeignResult, tuple[str, ...]]]:
    columns = _columns(name, file)
    described = context.benchmarks.get(name, {})
    metric, divisor = _metric(name, described)
    levels = [list(map(as_text, one)) for one in _lists(columns.get("params"), name)]
    combinations = list(itertools.product(*levels))
    names = _parameter_names(described, len(levels))
    values = _spread(columns.get("result"), len(combinations), name)
    samples = _spread(columns.get("samples"), len(combinations), name)
    stats = {
        one: _spread(columns.get(f"stats_{one}"), len(combinations), name) for one in (*_STATS, "number")
    }
    version = columns.get("version")
    shared = facts({"started_at": _iso(columns.get("started_at")), "duration": columns.get("duration")})
    for place, combination in enumerate(combinations):
        result = _number(values[place], name)
        raw = [_number(one, name) for one in _lists_or_none(samples[place], name)]
        kept = {one: column[place] for one, column in stats.items()}
        number = kept.pop("number")
        status, message = _status(result)
        measured = [one for one in raw if one is not None] or ([] if result is None else [result])
        outcome, doubts = checked(
            Outcome(
                benchmark=Benchmark(
                    name=parameterised(name, combination),
                    version=version[:_VERSION_DIGITS] if isinstance(version, str) else UNKNOWN_VERSION,
                    params=dict(zip(names, combination, strict=True)),
                ),
                metric=metric,
                loops=number if isinstance(number, int) else None,
                values=tuple(one / divisor for one in measured) if status == "ok" else (),
                status=status,
                message=message,
            )
        )
        entries = {**shared, **facts(kept)}
        if not raw and kept["repeat"] is not None and status == "ok":
            entries["value"] = "the median of the samples, which were not kept"
        yield ForeignResult(outcome=outcome, entries=entries), doubts


def _columns(name: str, file: _File) -> Mapping[str, Any]:
    """Return what a file says of a benchmark by the names of version 2's columns."""
    found = file.results[name]
    if file.version > 1 or file.result_columns:
        if not isinstance(found, list):
            raise _unlike(name, "its result is no list")
        return dict(zip(file.result_columns, found, strict=False))
    whole = found if isinstance(found, dict) else {"result": found}
    stats = whole.get("stats")
    each = [one if isinstance(one, dict) else {} for one in (stats if isinstance(stats, list) else [stats])]
    return {
        **{one: whole.get(one) for one in ("result", "params", "samples")},
        **{f"stats_{one}": [known.get(one) for known in each] for one in (*_STATS, "number") if stats},
        "version": file.benchmark_version.get(name),
        "started_at": file.started_at.get(name),
    }


def _metric(name: str, described: Mapping[str, Any]) -> tuple[Metric, float]:
    """Return a benchmark's metric, by what is said of it or else by its name, as asv goes by it."""
    prefix = name.rpartition(".")[2].partition("_")[0]
    kind = described.get("type")
    kind = kind if isinstance(kind, str) else _TYPES.get(prefix.lower(), "track")
    unit = described.get("unit")
    metric, divisor = metric_of(unit if isinstance(unit, str) else _UNITS.get(kind, ""))
    if metric == WALL_TIME and not kind.startswith("time"):
        return Metric(name="tracked time", unit="s"), divisor
    if kind == "peakmemory":
        return Metric(name="peak memory", unit=metric.unit), divisor
    return metric, divisor


def _parameter_names(described: Mapping[str, Any], count: int) -> list[str]:
    names = described.get("param_names")
    known = [as_text(name) for name in names] if isinstance(names, list) else []
    if len(known) == count == len(set(known)):
        return known
    return [f"param{number}" for number in range(1, count + 1)]


def _status(result: float | None) -> tuple[Status, str | None]:
    if result is None:
        return "error", _FAILED
    return ("skipped", _SKIPPED) if math.isnan(result) else ("ok", None)


def _spread(column: object, size: int, name: str) -> list[Any]:
    """Return what a column says of each combination of parameters: nothing, one for all, or a list."""
    if column is None:
        return [None] * size
    if not isinstance(column, list):
        return [column] * size
    if len(column) != size:
        raise _unlike(name, f"it has {size} combinations of parameters and {len(column)} results")
    return column


def _lists(value: object, name: str) -> list[list[Any]]:
    found = _lists_or_none(value, name)
    if not all(isinstance(one, list) for one in found):
        raise _unlike(name, "its parameters are no lists")
    return found


def _lists_or_none(value: object, name: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _unlike(name, f"{as_text(value)[:40]!r} stands where a list should")
    return value


def _number(value: object, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _unlike(name, f"{as_text(value)[:40]!r} stands where a number should")
    try:
        return float(value)
    except OverflowError:
        raise _unlike(name, "a number in it is too large") from None


def _gib(ram: object) -> object:
    """Return a memory in GiB: Linux tells asv its KiB and macOS its bytes; any other text stays as it is."""
    text = as_text(ram)
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        return ram
    size = int(text)
    return str(round(size / (_GIB if size >= _LEAST_IN_BYTES else _GIB >> 10)))


def _iso(milliseconds: object) -> str | None:
    found = moment(milliseconds)
    return None if found is None else found.isoformat()


def _unlike(name: str, what: str) -> UsageError:
    return UsageError(f"is not as {TOOL} writes it: of {name!r}, {what}")
