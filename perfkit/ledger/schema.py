"""The ledger's columns, and rows as tables and back.

Maps, not structs, hold what varies between machines: files stay readable together whatever keys they have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from perfkit.records import (
    Benchmark,
    Commit,
    Environment,
    Machine,
    Metric,
    Outcome,
    Placement,
    Row,
)
from perfkit.stats.summary import summarise

# Version 2: `partial`.
SCHEMA_VERSION = 2

_TIME = pa.timestamp("us", tz="UTC")
_MAP = pa.map_(pa.string(), pa.string())

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
        ("status", pa.string()),
        ("message", pa.string()),
        ("partial", pa.bool_()),
    ]
)

# pyarrow imports pandas to make datetimes of timestamps; whole microseconds need none.
_STORED_TIMES = pa.schema(
    [(field.name, pa.int64() if field.type == _TIME else field.type) for field in SCHEMA]
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_table(rows: Sequence[Row]) -> pa.Table:
    """Return rows as a table of the current schema; bytes in a text that are no UTF-8 become escapes."""
    cells = [to_cells(row) for row in rows]
    try:
        table = pa.Table.from_pylist(cells, schema=_STORED_TIMES)
    except UnicodeEncodeError:
        table = pa.Table.from_pylist([_escape(row) for row in cells], schema=_STORED_TIMES)
    return table.cast(SCHEMA)


def from_table(table: pa.Table) -> list[Row]:
    """Return the rows of a table of the current schema; derived columns follow from ``values``."""
    return [from_cells(cells) for cells in table.cast(_STORED_TIMES).to_pylist()]


def to_cells(row: Row) -> dict[str, Any]:
    """Return a row as the plain values of its columns: texts, numbers and lists, times in microseconds."""
    outcome, commit, placement = row.outcome, row.commit, row.placement
    # A loss that diverged has no mean.
    summary = summarise(outcome.values) if all(map(math.isfinite, outcome.values)) else None
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": row.run_id,
        "recorded_at": _to_microseconds(row.recorded_at),
        "source": row.source,
        "commit": commit.sha,
        "commit_time": None if commit.time is None else _to_microseconds(commit.time),
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
        "n": len(outcome.values),
        "mean": summary and summary.mean,
        "sd": summary and summary.sd,
        "median": summary and summary.median,
        "machine_id": row.machine.machine_id,
        "machine": _items(row.machine.facts),
        "env_id": row.environment.env_id,
        "env": _items(row.environment.facts),
        "policy": _items(row.policy),
        "status": outcome.status,
        "message": outcome.message,
        "partial": row.partial,
    }


def from_cells(cells: Mapping[str, Any]) -> Row:
    """Return the row of such values; derived columns follow from ``values``."""
    return Row(
        run_id=cells["run_id"],
        recorded_at=_from_microseconds(cells["recorded_at"]),
        source=cells["source"],
        commit=Commit(
            sha=cells["commit"],
            time=None if cells["commit_time"] is None else _from_microseconds(cells["commit_time"]),
            subject=cells["subject"],
            branch=cells["branch"],
            dirty=cells["dirty"],
            diff_hash=cells["diff_hash"],
        ),
        machine=Machine(machine_id=cells["machine_id"], facts=dict(cells["machine"] or ())),
        environment=Environment(env_id=cells["env_id"], facts=dict(cells["env"] or ())),
        outcome=Outcome(
            benchmark=Benchmark(
                name=cells["benchmark"],
                version=cells["version"],
                params=dict(cells["params"] or ()),
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
        ),
        placement=Placement(
            side=cells["side"],
            launch=cells["launch"],
            preloader=cells["preloader"],
            block=cells["block"],
            order=cells["order"],
            seed=cells["seed"],
        ),
        policy=dict(cells["policy"] or ()),
        partial=bool(cells["partial"]),
    )


def _items(facts: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return list(facts.items())


def _escape(value: Any) -> Any:  # noqa: ANN401 (whatever a column holds)
    r"""Write the bytes of a text that are no UTF-8, as in names of files, as "\udcff"."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {name: _escape(one) for name, one in value.items()}
    return type(value)(map(_escape, value)) if isinstance(value, (list, tuple)) else value


def _to_microseconds(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def _from_microseconds(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
