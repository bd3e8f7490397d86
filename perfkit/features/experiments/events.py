"""The scalars of TensorBoard's event files, without TensorBoard: records of a few protocol buffer fields."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

# The fields of an event, a summary, its values and a tensor that lead to a number.
_SUMMARY, _VALUE, _TAG, _SIMPLE, _TENSOR, _CONTENT, _FLOATS = 5, 1, 1, 2, 8, 4, 5
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT = struct.Struct("<f")


def last_scalar(file: Path, tag: str) -> float:
    """Return the last number of a tag in a file.

    Raises:
        LookupError: there is none.
        ValueError: it is no event file.
    """
    found = [value for name, value in _scalars(file.read_bytes()) if name == tag]
    return found[-1]


def _scalars(data: bytes) -> Iterator[tuple[str, float]]:
    place = 0
    # A record has its length, a checksum of that, its data and a checksum of these; the last may be cut off.
    while place + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        event = data[place + 12 : place + 12 + length]
        place += length + 16
        for summary in _all(event, _SUMMARY):
            for value in _all(summary, _VALUE):
                found = [*_all(value, _SIMPLE)]
                for tensor in _all(value, _TENSOR):
                    found += _all(tensor, _FLOATS, _CONTENT)
                numbers = [_FLOAT.unpack(one)[0] for one in found if len(one) == _FLOAT.size]
                yield from ((tag.decode(), one) for tag in _all(value, _TAG) for one in numbers)


def _all(message: bytes, *wanted: int) -> Iterator[bytes]:
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            _, place = _varint(message, place)
            continue
        if kind == _BYTES:
            length, place = _varint(message, place)
        elif kind in {_FIXED64, _FIXED32}:
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError("no event file of TensorBoard")
        if number in wanted:
            yield message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:  # noqa: PLR2004 (the highest bit marks that more follow)
            return number, place
