"""The checksum that each ledger file has inside it, over all of its bytes.

Its 64 digits stand in the key-value metadata at the end of the file. They are those of the SHA-256 of the
whole file with zeros in their place, so a single bit that flips anywhere makes the two differ. Parquet's own
checksums cover neither the metadata nor the statistics.
"""

from __future__ import annotations

import base64
import hashlib
from typing import BinaryIO

_KEY = b"perfkit_sha256"
_DIGITS = 64
_BLANK = b"0" * _DIGITS
# Before the digits: Thrift's compact protocol writes a text as its field, its length and its bytes.
_MARK = b"\x18" + bytes([len(_KEY)]) + _KEY + b"\x18" + bytes([_DIGITS])

# What a file's metadata have from the beginning; the digits are filled in once it is whole.
PLACE_OF_CHECKSUM = {_KEY: _BLANK}


def seal(stream: BinaryIO) -> None:
    """Fill in the checksum of a file that was written with ``PLACE_OF_CHECKSUM``, open to read and write.

    Raises:
        ValueError: the file has no place for one.
    """
    stream.seek(0)
    content = stream.read()
    place = content.rindex(_MARK + _BLANK) + len(_MARK)
    stream.seek(place)
    stream.write(_digest(content, place))


def is_intact(content: bytes) -> bool | None:
    """Tell whether the bytes of a file are those that were written, None if it has no checksum."""
    found = content.rfind(_MARK)
    if found < 0:
        # The copy of the schema that Arrow keeps names the checksum too: a file that lost its own is damaged.
        return False if any(promise in content for promise in _promises()) else None
    place = found + len(_MARK)
    return _digest(content, place) == content[place : place + _DIGITS]


def _digest(content: bytes, place: int) -> bytes:
    digest = hashlib.sha256(memoryview(content)[:place])
    digest.update(_BLANK)
    digest.update(memoryview(content)[place + _DIGITS :])
    return digest.hexdigest().encode()


def _promises() -> list[bytes]:
    """Return the key as base64 has it, at each of the three places where a text can begin in it."""
    found = []
    for shift in range(3):
        begin, end = -(-8 * shift // 6), 8 * (shift + len(_KEY)) // 6
        found.append(base64.b64encode(bytes(shift) + _KEY)[begin:end])
    return found
