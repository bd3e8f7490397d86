"""Rows as CSV and JSON, a record a row: what spreadsheets, data frames and scripts read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def csv_text(records: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return a heading and a line a record; lists and maps are JSON, and what is not known is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for record in records:
        writer.writerow([_cell(record[name]) for name in columns])
    return stream.getvalue()


def json_text(records: Iterable[Mapping[str, Any]]) -> str:
    """Return a list of objects, a line each; a value that is no number is null."""
    import msgspec

    # Python's own JSON would write NaN, which most readers refuse.
    lines = (msgspec.json.encode(record).decode() for record in records)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _cell(value: object) -> object:
    return json.dumps(value) if isinstance(value, (list, dict)) else value
