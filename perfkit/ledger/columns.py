"""Plain values as Arrow's arrays.

pyarrow's own ways from Python's values import pandas first, which takes longer than all else that the end of
a run does. Here the buffers are laid out as Arrow's format says.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def to_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows by column: whole numbers, numbers, truths, texts, lists, maps as pairs, and null.

    Raises:
        UnicodeEncodeError: a text is not one.
    """
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
    """Return a member of each structure; those of a map are pairs of a key and its value."""
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
