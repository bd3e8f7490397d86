"""From the bytes of somebody's file to plain values, whatever the bytes are: nothing of them is ever run."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from typing import Any, TypeVar

import msgspec

from perfkit.errors import UsageError

Kind = TypeVar("Kind")

MOST_BYTES = 1 << 29
_GZIP = b"\x1f\x8b"
_ANY_GZIP = 16 + zlib.MAX_WBITS
_ZIP = b"PK\x03\x04"
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_ARCHIVES = {b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}
# How github-action-benchmark begins the script that holds its data.
_SCRIPT = re.compile(r"\s*(?:window\.)?BENCHMARK_DATA\s*=\s*")


def decode(data: bytes) -> Any:  # noqa: ANN401 (whatever the file holds)
    """Return what JSON, compressed JSON or the text of a ``data.js`` holds; NaN and Infinity may be in it.

    Raises:
        UsageError: it is a pickle, an archive, too large, nested too deeply, cut short, or no JSON.
    """
    _refuse_binary(data)
    if data.startswith(_GZIP):
        data = _unpack(data)
    if len(data) > MOST_BYTES:
        raise UsageError(f"is larger than {MOST_BYTES >> 20} MiB; divide it, or import its parts")
    text = _without_script(data)
    try:
        return _parse(text)
    except RecursionError:
        raise UsageError("is nested too deeply to be a benchmark's result") from None
    except UnicodeDecodeError:
        raise UsageError("is neither JSON nor any other text in UTF-8") from None
    except ValueError as error:
        raise UsageError(f"is not whole JSON: {_first_line(error)}") from None


def convert(value: object, kind: type[Kind], tool: str) -> Kind:
    """Return a decoded value as a record of a tool's format.

    Raises:
        UsageError: something in it is missing or of another type; it is named.
    """
    try:
        return msgspec.convert(value, type=kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"is not as {tool} writes it: {_first_line(error)}") from None
    except UnicodeEncodeError:
        raise UsageError("holds a text that is not Unicode") from None
    except (OverflowError, RecursionError):
        raise UsageError(f"is not as {tool} writes it: a number in it is too large") from None


def digest(value: object) -> str:
    """Return the SHA-256, in hex digits, of what a file says; spaces and ends of lines do not count."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _refuse_binary(data: bytes) -> None:
    if _PICKLE.match(data) or data.startswith(_ZIP):
        raise UsageError(
            "is a pickle or a zip file, as torch.save and pickle.dump write them, and loading a pickle can "
            "run any code; save a torch.utils.benchmark Measurement as JSON instead: "
            'json.dump({"name": m.title, "unit": "s", "values": [m.times]}, file)'
        )
    for magic, name in _ARCHIVES.items():
        if data.startswith(magic):
            raise UsageError(f"is compressed by {name}; unpack it first and import what was in it")


def _unpack(data: bytes) -> bytes:
    unpacking = zlib.decompressobj(_ANY_GZIP)
    try:
        found = unpacking.decompress(data, MOST_BYTES + 1)
    except zlib.error as error:
        raise UsageError(f"is a damaged gzip file ({error})") from None
    if len(found) <= MOST_BYTES and not unpacking.eof:
        raise UsageError("is a gzip file that was cut short")
    return found


def _without_script(data: bytes) -> bytes:
    """Return the JSON that a script assigns; the script is read as text and never run."""
    beginning = _SCRIPT.match(data[:256].decode("utf-8", "replace").removeprefix("\N{BYTE ORDER MARK}"))
    if beginning is None:
        return data.removeprefix(b"\xef\xbb\xbf")
    return data[data.index(b"=") + 1 :].strip().removesuffix(b";")


def _parse(text: bytes) -> Any:  # noqa: ANN401 (whatever the file holds)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        # It knows neither NaN nor Infinity, which Python, asv and Google Benchmark write.
        return json.loads(text)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
