"""The ledger's columns, and rows as tables and back.

Maps, not structs, hold what varies between machines: files with other keys stay readable together.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import itertools
import json
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pyarrow as pa

from perfkit.agent.counters.model import Cause
from perfkit.errors import LedgerError
from perfkit.extensions import features
from perfkit.model import (
    Benchmark,
    Commit,
    Environment,
    Machine,
    Metric,
    Outcome,
    Placement,
    Row,
    RowPolicy,
    Summary,
)
from perfkit.model.policies import (
    BisectPolicy,
    CalibrationPolicy,
    GatePolicy,
    OtherPolicy,
    ProfilePolicy,
    PytestPolicy,
)
from perfkit.stats.summary import summary_of

# A launch's rows differ in their faults alone, so few policies are many rows'.
_REMEMBERED = 4096
# The policy of each source's rows; features have their own.
_KINDS: Mapping[str, type[RowPolicy]] = {
    "gate": GatePolicy,
    "environments": GatePolicy,
    "calibrate": CalibrationPolicy,
    "bisect": BisectPolicy,
    "pytest": PytestPolicy,
    "backfill": PytestPolicy,
    "profile": ProfilePolicy,
    "timed": RowPolicy,
}
_PARTS = frozenset({"rules", "rehearsal", "run"})
# Constant entries of a profile's policy; "all" stands for None.
_FIRST_STEP, _ALL_STEPS = {"first_step": "has the set-up in it"}, {"steps": "all"}


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """An entry of a policy: its field, the part that has it, its default, and how it is written and read."""

    name: str
    part: str
    field: str
    default: object
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def to_entries(policy: RowPolicy) -> dict[str, str]:
    """Serialise a policy, omitting unset and default fields."""
    if isinstance(policy, OtherPolicy):
        return dict(policy.entries)
    entries = {}
    kind: Any = type(policy)
    for entry in _entries_of(kind):
        owner = getattr(policy, entry.part) if entry.part else policy
        value = None if owner is None else getattr(owner, entry.field)
        if value is not None and value != entry.default:
            entries[entry.name] = entry.write(value)
    return entries if not isinstance(policy, ProfilePolicy) else {**_FIRST_STEP, **_ALL_STEPS, **entries}


def from_entries(source: str, entries: Mapping[str, str]) -> RowPolicy:
    """Return the policy of a row; entries that are not as those of its source are kept as they are."""
    return _from_items(source, tuple(entries.items()))


@functools.lru_cache(maxsize=_REMEMBERED)
def _from_items(source: str, items: tuple[tuple[str, str], ...]) -> RowPolicy:
    if not items:
        return RowPolicy()
    entries = dict(items)
    for kind in _kinds_of(source):
        # An entry may be missing or malformed.
        with contextlib.suppress(TypeError, ValueError, KeyError, RecursionError, msgspec.ValidationError):
            policy: RowPolicy = _build(kind, entries)
            return policy
    return OtherPolicy(entries=entries)


@functools.cache
def _kinds_of(source: str) -> tuple[type[RowPolicy], ...]:
    kind = _KINDS.get(source) or next(
        (_imported(feature.policies[source]) for feature in features() if source in feature.policies), None
    )
    if kind is None:
        return ()
    return (kind, *(one for one in kind.__mro__[1:] if issubclass(one, RowPolicy) and one is not RowPolicy))


def _imported(place: str) -> type[RowPolicy]:
    module, _, name = place.partition(":")
    kind: type[RowPolicy] = getattr(importlib.import_module(module), name)
    return kind


def _build(kind: Any, entries: Mapping[str, str]) -> Any:  # noqa: ANN401 (likewise)
    owners: dict[str, dict[str, Any]] = {"": {}}
    for entry in _entries_of(kind):
        if entry.name in entries and not (
            kind is ProfilePolicy and {entry.name: entries[entry.name]} == _ALL_STEPS
        ):
            owners.setdefault(entry.part, {})[entry.field] = entry.read(entries[entry.name])
    fields, hints = owners.pop(""), _hints(kind)
    return kind(**fields, **{part: _bare(hints[part])(**found) for part, found in owners.items()})


@functools.cache
def _entries_of(kind: Any) -> tuple[_Entry, ...]:  # noqa: ANN401 (types of dataclasses do not count as hashable)
    return tuple(_each_entry(kind, ""))


def _each_entry(kind: type, part: str) -> Iterator[_Entry]:
    for field in dataclasses.fields(kind):
        hint = _bare(_hints(kind)[field.name])
        if field.name in _PARTS:
            yield from _each_entry(hint, field.name)
            continue
        write, read = _text_form(hint)
        name = field.metadata.get("entry", field.name)
        yield _Entry(name=name, part=part, field=field.name, default=field.default, write=write, read=read)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:  # noqa: ANN401 (likewise)
    return get_type_hints(kind)


def _bare(hint: Any) -> Any:  # noqa: ANN401 (a type hint)
    if get_origin(hint) in (Union, types.UnionType):
        return next(one for one in get_args(hint) if one is not type(None))
    return hint


def _text_form(hint: Any) -> tuple[Callable[[Any], str], Callable[[str], Any]]:  # noqa: ANN401 (a type hint)
    if hint is bool:
        return (lambda flag: "true" if flag else "false"), _read_flag
    if hint in (int, float, str):
        return (str if hint is str else repr), hint
    if get_origin(hint) is Literal:
        return str, functools.partial(_read_word, get_args(hint))
    if get_origin(hint) is tuple and (one := get_args(hint)[0]) in (int, float, str):
        write, _ = _text_form(one)
        return (lambda values: ",".join(map(write, values))), lambda text: tuple(map(one, text.split(",")))
    return _write_json, functools.partial(_read_json, hint)


def _read_flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _read_word(words: tuple[str, ...], text: str) -> str:
    if text not in words:
        raise ValueError(text)
    return text


def _write_json(value: object) -> str:
    # msgspec's own JSON writes an infinite difference of two sides as null.
    return json.dumps(msgspec.to_builtins(value), separators=(",", ":"))


@functools.lru_cache(maxsize=_REMEMBERED)
def _read_json(kind: Any, text: str) -> Any:  # noqa: ANN401 (a type, and what it describes)
    return msgspec.convert(json.loads(text), type=kind)


# Version 2 has the columns `causes` and `training`, entries of `policy` before that, and `partial`; version 3
# has `same_as` and `ran`.
SCHEMA_VERSION = 3

_TIME = pa.timestamp("us", tz="UTC")
_MAP = pa.map_(pa.string(), pa.string())
_CAUSES = pa.list_(
    pa.struct(
        [("what", pa.string()), ("place", pa.string()), ("text", pa.string()), ("amount", pa.float64())]
    )
)

SCHEMA = pa.schema(
    [
        ("schema_version", pa.int32()),
        ("run_id", pa.string()),
        ("recorded_at", _TIME),
        ("source", pa.string()),
        ("commit", pa.string()),
        ("commit_time", _TIME),
        ("subject", pa.string()),
        ("branch", pa.string()),
        ("dirty", pa.bool_()),
        ("diff_hash", pa.string()),
        ("benchmark", pa.string()),
        ("params", _MAP),
        ("group", pa.string()),
        ("version", pa.string()),
        ("metric", pa.string()),
        ("unit", pa.string()),
        ("better", pa.string()),
        ("exact", pa.bool_()),
        ("side", pa.string()),
        ("launch", pa.int32()),
        ("preloader", pa.int32()),
        ("block", pa.int32()),
        ("order", pa.int32()),
        ("seed", pa.int64()),
        ("warmup", pa.int64()),
        ("loops", pa.int64()),
        ("values", pa.list_(pa.float64())),
        ("n", pa.int64()),
        ("mean", pa.float64()),
        ("sd", pa.float64()),
        ("median", pa.float64()),
        ("machine_id", pa.string()),
        ("machine", _MAP),
        ("env_id", pa.string()),
        ("env", _MAP),
        ("policy", _MAP),
        ("causes", _CAUSES),
        ("training", pa.bool_()),
        ("status", pa.string()),
        ("message", pa.string()),
        ("partial", pa.bool_()),
        ("same_as", pa.string()),
        ("ran", pa.string()),
    ]
)

# pyarrow imports pandas to make datetimes of timestamps; whole microseconds need none.
_STORED_TIMES = pa.schema(
    [(field.name, pa.int64() if field.type == _TIME else field.type) for field in SCHEMA]
)
_MAPS = [field.name for field in SCHEMA if field.type == _MAP]
_NEVER_NULL = (
    *(
        "run_id",
        "recorded_at",
        "source",
        "commit",
        "dirty",
        "benchmark",
        "version",
        "metric",
        "unit",
        "better",
    ),
    *("exact", "launch", "values", "machine_id", "env_id", "status"),
)
_DERIVED = ("n", "mean", "sd", "median")
# The entries of a policy that held a count's causes in version 1, as JSON, and what was counted.
_CAUSES_ENTRY, _TRAINING_ENTRY = "causes", "training"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# What is raised where cells, which may be anybody's, are those of no row.
NO_ROW = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


def to_table(rows: Sequence[Row]) -> pa.Table:
    """Return rows as a table of the current schema; bytes in a text that are no UTF-8 become escapes."""
    cells = [{**to_cells(row), **_derived(row.outcome)} for row in rows]
    try:
        batch = to_batch(cells, SCHEMA)
    except UnicodeEncodeError:
        batch = to_batch([_escape(row) for row in cells], SCHEMA)
    return pa.Table.from_batches([batch])


def upgraded(table: pa.Table, file: Path) -> pa.Table:
    """Return a file's table in the current schema; columns that its version lacks are null."""
    if "schema_version" not in table.column_names or table.num_rows == 0:
        raise LedgerError(f"{file} is a parquet file but no ledger file; move it out of the ledger")
    newest = max((one for one in table["schema_version"].to_pylist() if isinstance(one, int)), default=0)
    if newest > SCHEMA_VERSION:
        raise LedgerError(
            f"{file} has ledger schema {newest}, this perfkit reads up to {SCHEMA_VERSION}; upgrade perfkit"
        )
    if table.schema.equals(SCHEMA):
        return table.replace_schema_metadata(None)
    missing = [field for field in SCHEMA if field.name not in table.column_names]
    for field in missing:
        table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table.select(SCHEMA.names).cast(SCHEMA)


def from_table(table: pa.Table) -> list[Row]:
    """Return the rows of a table of the current schema; derived columns count where values are missing."""
    for name in _NEVER_NULL:
        if table[name].null_count:
            raise _none_such(f"{name} is missing")
    if any(chunk.flatten().null_count for chunk in table["values"].chunks):
        raise _none_such("a value is missing")
    columns = table.cast(_STORED_TIMES)
    try:
        maps = {
            name: list(itertools.chain.from_iterable(map(_read_maps, columns[name].chunks))) for name in _MAPS
        }
        others = columns.drop_columns(_MAPS).to_pylist()
        return [
            from_cells({**cells, **{name: texts[place] for name, texts in maps.items()}})
            for place, cells in enumerate(others)
        ]
    except NO_ROW as error:
        raise _none_such(error) from error


def _none_such(why: object) -> LedgerError:
    reason = str(why).partition("\n")[0]
    return LedgerError(
        f"a row of the ledger is none that perfkit writes ({reason}); `perfkit ledger check` names its file"
    )


def to_cells(row: Row) -> dict[str, Any]:
    """Return a row as plain values: texts, numbers and lists, times in microseconds."""
    outcome, commit, placement = row.outcome, row.commit, row.placement
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": row.run_id,
        "recorded_at": to_microseconds(row.recorded_at),
        "source": row.source,
        "commit": commit.sha,
        "commit_time": None if commit.time is None else to_microseconds(commit.time),
        "subject": commit.subject,
        "branch": commit.branch,
        "dirty": commit.dirty,
        "diff_hash": commit.diff_hash,
        "benchmark": outcome.benchmark.name,
        "params": _items(outcome.benchmark.params),
        "group": outcome.benchmark.group,
        "version": outcome.benchmark.version,
        "metric": outcome.metric.name,
        "unit": outcome.metric.unit,
        "better": outcome.metric.better,
        "exact": outcome.metric.exact,
        "side": placement.side,
        "launch": placement.launch,
        "preloader": placement.preloader,
        "block": placement.block,
        "order": placement.order,
        "seed": placement.seed,
        "warmup": outcome.warmup,
        "loops": outcome.loops,
        "values": list(outcome.values),
        **({} if outcome.summary is None else dataclasses.asdict(outcome.summary)),
        "machine_id": row.machine.machine_id,
        "machine": _items(row.machine.facts),
        "env_id": row.environment.env_id,
        "env": _items(row.environment.facts),
        "policy": _items(to_entries(row.policy)),
        "causes": None if outcome.causes is None else list(map(dataclasses.asdict, outcome.causes)),
        "training": outcome.training,
        "status": outcome.status,
        "message": outcome.message,
        "partial": row.partial,
        "same_as": outcome.same_as,
        "ran": outcome.ran,
    }


def to_record(row: Row) -> dict[str, Any]:
    """Return a row by column, as the tables of other programs take it: times are ISO texts, maps are maps."""
    cells = {**to_cells(row), **_derived(row.outcome)}
    for name in _MAPS:
        cells[name] = dict(cells[name])
    for name, time in (("recorded_at", row.recorded_at), ("commit_time", row.commit.time)):
        cells[name] = None if time is None else time.isoformat()
    return {name: cells[name] for name in SCHEMA.names}


def from_cells(cells: Mapping[str, Any]) -> Row:
    """Return the row of such values; derived columns follow from ``values``, if there are any."""
    entries, causes = dict(cells["policy"] or ()), cells["causes"]
    if causes is None and _CAUSES_ENTRY in entries:
        listed = json.loads(entries.pop(_CAUSES_ENTRY))
        causes = [dict(zip(("what", "place", "text", "amount"), cause, strict=True)) for cause in listed]
    training = entries.pop(_TRAINING_ENTRY, "") == "true" or bool(cells["training"])
    return Row(
        run_id=cells["run_id"],
        recorded_at=from_microseconds(cells["recorded_at"]),
        source=cells["source"],
        commit=Commit(
            sha=cells["commit"],
            time=None if cells["commit_time"] is None else from_microseconds(cells["commit_time"]),
            subject=cells["subject"],
            branch=cells["branch"],
            dirty=cells["dirty"],
            diff_hash=cells["diff_hash"],
        ),
        machine=Machine(machine_id=cells["machine_id"], facts=_facts(cells["machine"])),
        environment=Environment(env_id=cells["env_id"], facts=_facts(cells["env"])),
        outcome=Outcome(
            benchmark=Benchmark(
                name=cells["benchmark"],
                version=cells["version"],
                params=_facts(cells["params"]),
                group=cells["group"],
            ),
            metric=Metric(
                name=cells["metric"], unit=cells["unit"], better=cells["better"], exact=cells["exact"]
            ),
            warmup=cells["warmup"],
            loops=cells["loops"],
            values=tuple(cells["values"]),
            status=cells["status"],
            message=cells["message"],
            causes=None if causes is None else tuple(Cause(**cause) for cause in causes),
            training=training,
            summary=_kept_summary(cells),
            same_as=cells["same_as"],
            ran=cells["ran"],
        ),
        placement=Placement(
            side=cells["side"],
            launch=cells["launch"],
            preloader=cells["preloader"],
            block=cells["block"],
            order=cells["order"],
            seed=cells["seed"],
        ),
        policy=from_entries(cells["source"], entries),
        partial=bool(cells["partial"]),
    )


def _kept_summary(cells: Mapping[str, Any]) -> Summary | None:
    if cells["values"] or not cells.get("n") or cells.get("mean") is None:
        return None
    return Summary(**{name: cells[name] for name in _DERIVED})


def _derived(outcome: Outcome) -> dict[str, Any]:
    values = outcome.values
    # A loss that diverged has no mean.
    summary = summary_of(outcome) if all(map(math.isfinite, values)) else None
    return {
        "n": len(values) if outcome.summary is None else outcome.summary.n,
        "mean": summary and summary.mean,
        "sd": summary and summary.sd,
        "median": summary and summary.median,
    }


def _items(facts: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return list(facts.items())


def _read_maps(chunk: pa.MapArray) -> Iterator[Mapping[str, str]]:
    keys, values = chunk.keys.dictionary_encode(), chunk.items.dictionary_encode()
    names, texts = keys.dictionary.to_pylist(), values.dictionary.to_pylist()
    places = np.stack([_numbers(keys.indices), _numbers(values.indices)], axis=1)
    known: dict[bytes, Mapping[str, str]] = {}
    for begin, end in itertools.pairwise(_numbers(chunk.offsets).tolist()):
        mine = places[begin:end]
        found = known.get(key := mine.tobytes())
        if found is None:
            found = known[key] = {names[name]: texts[text] for name, text in mine.tolist()}
        yield found


def _numbers(array: pa.Int32Array) -> np.ndarray[Any, np.dtype[np.int32]]:
    whole = np.frombuffer(array.buffers()[1], dtype=np.int32)
    return whole[array.offset : array.offset + len(array)]


def _escape(value: Any) -> Any:  # noqa: ANN401 (any value of a column)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {name: _escape(one) for name, one in value.items()}
    return type(value)(map(_escape, value)) if isinstance(value, (list, tuple)) else value


def _facts(cell: Mapping[str, str] | Iterable[tuple[str, str]] | None) -> Mapping[str, str]:
    return cell if isinstance(cell, dict) else dict(cell or ())


def to_microseconds(time: datetime) -> int:
    """Return a time as microseconds since 1970, UTC."""
    return (time - _EPOCH) // _MICROSECOND


def from_microseconds(microseconds: int) -> datetime:
    """Return the time of this many microseconds since 1970, UTC."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except (TypeError, OverflowError) as error:
        raise _none_such(error) from error


def to_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows by column: whole numbers, numbers, truths, texts, lists, maps as pairs, and null."""
    arrays = [_to_array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _to_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    present = np.fromiter((value is not None for value in values), dtype=bool, count=len(values))
    buffers = [None if present.all() else _bits(present)]
    children: list[pa.Array] = []
    if pa.types.is_string(kind):
        texts = [b"" if value is None else value.encode() for value in values]
        buffers += [_offsets(texts), pa.py_buffer(b"".join(texts))]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        lists = [() if value is None else value for value in values]
        buffers.append(_offsets(lists))
        children.append(_to_array(list(itertools.chain.from_iterable(lists)), _kind_inside(kind)))
    elif pa.types.is_struct(kind):
        children += [_to_array(_members(values, field), field.type) for field in kind]
    elif pa.types.is_boolean(kind):
        buffers.append(_bits(np.array([bool(value) for value in values], dtype=bool)))
    else:
        numbers = [0 if value is None else value for value in values]
        buffers.append(pa.py_buffer(np.array(numbers, dtype=_number(kind))))
    nulls = len(values) - int(present.sum())
    return pa.Array.from_buffers(kind, len(values), buffers, null_count=nulls, children=children)


def _kind_inside(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.struct([kind.key_field, kind.item_field])
    return kind.value_type


def _members(values: Sequence[Any], field: pa.Field) -> list[Any]:
    if values and isinstance(values[0], tuple):
        return [value[0 if field.name == "key" else 1] for value in values]
    return [None if value is None else value[field.name] for value in values]


def _number(kind: pa.DataType) -> type[np.generic]:
    if pa.types.is_floating(kind):
        return np.float64
    return np.int32 if pa.types.is_int32(kind) else np.int64


def _offsets(values: Sequence[Any]) -> pa.Buffer:
    return pa.py_buffer(np.array([0, *itertools.accumulate(map(len, values))], dtype=np.int32))


def _bits(truths: np.ndarray[Any, np.dtype[np.bool_]]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(truths, bitorder="little"))
