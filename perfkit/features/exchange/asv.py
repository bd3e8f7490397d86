"""Result files of asv (airspeed velocity): read of versions 1 and 2 of their format, and written of 2."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from perfkit.errors import UsageError
from perfkit.features.exchange import records
from perfkit.model import WALL_TIME, Benchmark, Metric, Outcome, Row, Status

TOOL = "asv"
MACHINE_FILE, BENCHMARKS_FILE = "machine.json", "benchmarks.json"
_VERSIONS = (1, 2)
_HARDWARE = ("cpu", "num_cpu", "ram", "arch", "os", "machine")
_STATS = ("ci_99_a", "ci_99_b", "q_25", "q_75", "repeat", "mean", "std", "min", "max")
_TYPES = {
    "time": "time", "timeraw": "time", "mem": "memory", "peakmem": "peakmemory", "track": "track",
}  # fmt: skip
_UNITS = {"time": "seconds", "memory": "bytes", "peakmemory": "bytes"}
_COLUMNS = (
    *("result", "params", "version", "started_at", "duration"),
    *("stats_ci_99_a", "stats_ci_99_b", "stats_q_25", "stats_q_75", "stats_number", "stats_repeat"),
    *("samples", "profile"),
)
_VARIABLE = "variable "
_COMMIT_DIGITS = 8
_MOST_COMBINATIONS = 1_000_000
_GIB = 1 << 30
# asv wrote KiB on Linux and bytes on macOS: no machine had 2 TiB then, and no Mac had less than 2 GiB.
_LEAST_IN_BYTES = 1 << 31
_MOST_DIGITS = 18
_FAILED = "asv has no result: the benchmark failed, took too long or was not run"
_SKIPPED = "skipped by its setup"


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
    """The machine of a folder of results, and its benchmarks by name."""

    machine: Mapping[str, Any] = field(default_factory=dict)
    benchmarks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def context_of(machine: object, benchmarks: object) -> AsvContext:
    """Return the context of ``machine.json`` and ``benchmarks.json``, where they are valid."""
    named = benchmarks.items() if isinstance(benchmarks, dict) else ()
    return AsvContext(
        machine=machine if isinstance(machine, dict) else {},
        benchmarks={name: one for name, one in named if isinstance(one, dict)},
    )


def recognises(value: Mapping[str, Any]) -> bool:
    """Return whether a file holds results of asv."""
    return "commit_hash" in value and "results" in value


def read(value: Mapping[str, Any], context: AsvContext) -> Iterator[records.ToolRun]:
    """Yield the run of a result file: one result for each combination of a benchmark's parameters."""
    file = records.convert(value, _File, TOOL)
    if file.version not in _VERSIONS:
        raise UsageError(f"has version {file.version} of asv's format, and versions 1 and 2 can be read")
    found = [one for name in file.results for one in _results(name, file, context)]
    begun = [records.moment(text) for text in {result.entries.get("started_at") for result in found}]
    hardware = {**context.machine, **file.params}
    known = {name: hardware.get(name) for name in _HARDWARE}
    yield records.ToolRun(
        tool=TOOL,
        content=records.digest(value),
        commit=records.commit_of(file.commit_hash, time=records.moment(file.date)),
        recorded_at=max((time for time in begun if time is not None), default=records.moment(file.date)),
        machine=records.machine_of(
            # A machine has a name of its own in asv, which its owner keeps as long as it is the same.
            {"machine": known["machine"], "cpu": known["cpu"], "logical_cpus": known["num_cpu"]},
            {"system": known["os"], "architecture": known["arch"], "ram_gib": _gib(known["ram"])},
        ),
        environment=records.environment_of(
            {
                "python": file.python,
                **file.requirements,
                **{f"{_VARIABLE}{name}": one for name, one in file.env_vars.items()},
                "environment": file.env_name,
            }
        ),
        results=tuple(found),
    )


def parameterised(name: str, parameters: Sequence[str]) -> str:
    """Return the name that one combination of parameters has in the ledger."""
    return f"{name}[{', '.join(parameters)}]" if parameters else name


def _results(name: str, file: _File, context: AsvContext) -> Iterator[records.ToolResult]:
    columns = _columns(name, file)
    described = context.benchmarks.get(name, {})
    metric, divisor = _metric(name, described)
    levels = [list(map(records.as_text, one)) for one in _lists(columns.get("params"), name)]
    # A few lists are billions of combinations: no result has them, and they are counted before they are made.
    if math.prod(map(len, levels)) > _MOST_COMBINATIONS:
        raise _unlike(name, f"there are more than {_MOST_COMBINATIONS:,} combinations of parameters")
    combinations = list(itertools.product(*levels))
    names = _parameter_names(described, len(levels))
    values = _spread(columns.get("result"), len(combinations), name)
    samples = _spread(columns.get("samples"), len(combinations), name)
    stats = {
        one: _spread(columns.get(f"stats_{one}"), len(combinations), name) for one in (*_STATS, "number")
    }
    version = columns.get("version")
    shared = records.facts(
        {"started_at": _iso(columns.get("started_at")), "duration": columns.get("duration")}
    )
    for place, combination in enumerate(combinations):
        result = _number(values[place], name)
        raw = [_number(one, name) for one in _lists_or_none(samples[place], name)]
        kept = {one: column[place] for one, column in stats.items()}
        number = kept.pop("number")
        status: Status = "error" if result is None else "skipped" if math.isnan(result) else "ok"
        measured = [one for one in raw if one is not None] or ([] if result is None else [result])
        outcome = Outcome(
            benchmark=Benchmark(
                name=parameterised(name, combination),
                version=version if isinstance(version, str) and version else records.UNKNOWN_VERSION,
                params=dict(zip(names, combination, strict=True)),
            ),
            metric=metric,
            loops=number if isinstance(number, int) else None,
            values=tuple(one / divisor for one in measured) if status == "ok" else (),
            status=status,
            message={"error": _FAILED, "skipped": _SKIPPED}.get(status),
        )
        entries = {**shared, **records.facts(kept)}
        if not raw and kept["repeat"] is not None and status == "ok":
            entries["value"] = "the median of the samples, which were not kept"
        yield records.checked(outcome, entries=entries)


def _columns(name: str, file: _File) -> Mapping[str, Any]:
    """Return a file's data on a benchmark by the names of version 2's columns."""
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
    """Return a benchmark's metric, by its description or else by its name, as asv does."""
    prefix = name.rpartition(".")[2].partition("_")[0]
    kind = described.get("type")
    kind = kind if isinstance(kind, str) else _TYPES.get(prefix.lower(), "track")
    unit = described.get("unit")
    metric, divisor = records.metric_of(unit if isinstance(unit, str) else _UNITS.get(kind, ""))
    if metric == WALL_TIME and not kind.startswith("time"):
        return Metric(name="tracked time", unit="s"), divisor
    if kind == "peakmemory":
        return Metric(name="peak memory", unit=metric.unit), divisor
    return metric, divisor


def _parameter_names(described: Mapping[str, Any], count: int) -> list[str]:
    names = described.get("param_names")
    known = [records.as_text(name) for name in names] if isinstance(names, list) else []
    if len(known) == count == len(set(known)):
        return known
    return [f"param{number}" for number in range(1, count + 1)]


def _spread(column: object, size: int, name: str) -> list[Any]:
    """Spread a column over the combinations of parameters: none, one for all, or a list."""
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
        raise _unlike(name, f"{records.as_text(value)[:40]!r} stands where a list should")
    return value


def _number(value: object, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _unlike(name, f"{records.as_text(value)[:40]!r} stands where a number should")
    try:
        return float(value)
    except OverflowError:
        raise _unlike(name, "a number in it is too large") from None


def _gib(ram: object) -> object:
    """Return a memory in GiB from KiB (Linux) or bytes (macOS); any other text stays as it is."""
    text = records.as_text(ram)
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        return ram
    size = int(text)
    return str(round(size / (_GIB if size >= _LEAST_IN_BYTES else _GIB >> 10)))


def _iso(milliseconds: object) -> str | None:
    found = records.moment(milliseconds)
    return None if found is None else found.isoformat()


def _unlike(name: str, what: str) -> UsageError:
    return UsageError(f"is not as {TOOL} writes it: of {name!r}, {what}")


def write(rows: Sequence[Row]) -> records.Written:
    """Return asv results, a file for each commit, machine and environment, and what was left out."""
    clean = [row for row in rows if not row.commit.dirty]
    left_out = Counter({"rows of uncommitted changes": len(rows) - len(clean)})
    names = _names(clean)
    described: dict[str, Any] = {"version": _VERSIONS[-1]}
    files: dict[str, str] = {}
    for of_machine in records.grouped(clean, lambda row: row.machine.machine_id):
        machine = _machine_name(of_machine[0], files)
        files[f"{machine}/{MACHINE_FILE}"] = _json({**_hardware(of_machine[0], machine), "version": 1})
        for one in records.grouped(of_machine, lambda row: (row.commit.sha, row.environment.env_id)):
            software = one[0].environment.facts
            environment = (
                software.get("environment") or f"py{software.get('python', '')}-{one[0].environment.env_id}"
            )
            hashed = hashlib.md5(environment.encode(), usedforsecurity=False).hexdigest()
            short = environment if len(environment) < records.LONGEST_NAME else f"env-{hashed}"
            results = {name: _column(name, of_name, described) for name, of_name in _named(one, names)}
            commit = records.plain_name(one[0].commit.sha[:_COMMIT_DIGITS])
            files[f"{machine}/{commit}-{records.plain_name(short)}.json"] = _json(
                _result_file(one[0], machine, environment, results), indent=None
            )
    files[BENCHMARKS_FILE] = _json(described)
    return records.Written(files=files if clean else {}, left_out=left_out)


def _names(rows: Sequence[Row]) -> Mapping[tuple[str, str], str]:
    """Return the name of each benchmark and metric in asv, which knows one metric of a benchmark alone."""
    metrics: dict[str, set[str]] = {}
    for row in rows:
        metrics.setdefault(row.outcome.benchmark.name, set()).add(row.outcome.metric.name)
    bases = {row.outcome.benchmark.name: _base(row.outcome.benchmark) for row in rows}
    return {
        (name, metric): bases[name]
        if len(found) == 1 or metric == WALL_TIME.name
        else f"{bases[name]} ({metric})"
        for name, found in metrics.items()
        for metric in found
    }


def _base(benchmark: Benchmark) -> str:
    """Return a benchmark's name without the parameters that reading it has added."""
    added = parameterised("", list(benchmark.params.values()))
    return benchmark.name.removesuffix(added) if added else benchmark.name


def _named(rows: Sequence[Row], names: Mapping[tuple[str, str], str]) -> Iterator[tuple[str, Sequence[Row]]]:
    def name_of(row: Row) -> str:
        return names[row.outcome.benchmark.name, row.outcome.metric.name]

    for of_name in records.grouped(rows, name_of):
        yield name_of(of_name[0]), of_name


def _column(name: str, rows: Sequence[Row], described: dict[str, Any]) -> list[Any]:
    """Return a benchmark's data for a result file, and add its entry of ``benchmarks.json``."""
    first = rows[0].outcome
    params = first.benchmark.params if first.benchmark.name != _base(first.benchmark) else {}
    levels = [
        list(dict.fromkeys(row.outcome.benchmark.params.get(one, "") for row in rows)) for one in params
    ]
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.outcome.benchmark.params.get(one, "") for one in params), []).append(row)
    cells = [_cell(found.get(combination, ())) for combination in itertools.product(*levels)]
    version = rows[-1].outcome.benchmark.version
    described[name] = _described(
        name, rows[-1].outcome.metric, params, levels, described.get(name, {}), version
    )
    entries = records.entries_of(rows[0])
    begun = records.moment(entries.get("started_at"))
    shared = {
        "params": levels,
        "version": version,
        "started_at": int((begun or rows[0].recorded_at).timestamp() * 1000),
        "duration": records.number_of(entries, "duration"),
    }
    columns = {one: [cell.get(one) for cell in cells] for one in _COLUMNS if one not in shared}
    # asv takes a list in a column of statistics to have them all.
    known = {one: column for one, column in columns.items() if any(cell is not None for cell in column)}
    filled = [{**known, **shared}.get(one) for one in _COLUMNS]
    return filled[: max(place for place, one in enumerate(filled, start=1) if one is not None)]


def _cell(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the columns of one combination of parameters: null where it failed, NaN where it was skipped."""
    measured = [row for row in rows if row.outcome.status == "ok" and row.outcome.is_measured]
    if not measured:
        skipped = any(row.outcome.status == "skipped" for row in rows)
        return {"result": math.nan if skipped else None}
    values = [value for row in measured for value in row.outcome.values]
    summary, entries = measured[0].outcome.summary, records.entries_of(measured[0])
    middle = statistics.median(values) if values else summary and (summary.median or summary.mean)
    kept = {"stats_repeat": "repeat", **{f"stats_{one}": one for one in _STATS[:4]}}
    stats = {column: records.number_of(entries, one) for column, one in kept.items()}
    return {
        "result": middle,
        "samples": values if len(values) > 1 else None,
        **({} if None in stats.values() else stats),
        "stats_number": measured[0].outcome.loops,
    }


def _described(
    name: str,
    metric: Metric,
    params: Mapping[str, str],
    levels: Sequence[Sequence[str]],
    before: Mapping[str, Any],
    version: str,
) -> dict[str, Any]:
    units = {"s": ("time", "seconds"), "B": ("memory", "bytes")}
    kind, unit = units.get(metric.unit, ("track", metric.unit))
    known = before.get("params") or [[] for _ in levels]
    if len(known) != len(levels):
        known = [[] for _ in levels]
    return {
        "code": "",
        "name": name,
        "param_names": list(params),
        "params": [list(dict.fromkeys([*old, *new])) for old, new in zip(known, levels, strict=True)],
        "type": "peakmemory" if metric.name == "peak memory" else kind,
        "unit": unit,
        "version": version,
    }


def _result_file(
    row: Row, machine: str, environment: str, results: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    software = row.environment.facts
    python = software.get("python", "")
    variables = {name: one for name, one in software.items() if name.startswith(_VARIABLE)}
    others = {
        name: one
        for name, one in software.items()
        if name not in ("python", "environment") and name not in variables
    }
    return {
        "commit_hash": row.commit.sha,
        "env_name": environment,
        "date": int((row.commit.time or row.recorded_at).timestamp() * 1000),
        "params": {**_hardware(row, machine), "python": python, **others},
        "python": python,
        "requirements": others,
        "env_vars": {name.removeprefix(_VARIABLE): one for name, one in variables.items()},
        "result_columns": list(_COLUMNS),
        "results": results,
        "durations": {},
        "version": _VERSIONS[-1],
    }


def _machine_name(row: Row, files: Mapping[str, str]) -> str:
    """Return the folder of a machine: its own name, or its identity where another machine has that name."""
    facts_ = row.machine.facts
    name = records.plain_name(facts_.get("machine") or facts_.get("node") or row.machine.machine_id)
    return (
        name
        if f"{name}/{MACHINE_FILE}" not in files
        else records.plain_name(f"{name}-{row.machine.machine_id}")
    )


def _hardware(row: Row, machine: str) -> dict[str, str]:
    known = row.machine.facts
    ram = known.get("ram_gib", "")
    return {
        "machine": machine,
        "arch": known.get("architecture", ""),
        "cpu": known.get("cpu", ""),
        "num_cpu": known.get("logical_cpus", ""),
        "os": known.get("system", ""),
        "ram": str(int(ram) * (_GIB >> 10)) if ram.isdecimal() else ram,
    }


def _json(value: object, indent: int | None = 4) -> str:
    return json.dumps(value, indent=indent) + "\n"
