"""Profile summaries in JSON files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from perfkit.bounded import read_bytes
from perfkit.errors import UsageError
from perfkit.model import ProfileSummary

SCHEMA_VERSION = 1


class _Versioned(msgspec.Struct):
    schema_version: int


def encode_summary(summary: ProfileSummary) -> bytes:
    """Return a summary as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(summary)) + b"\n"


def may_be_summary(file: Path) -> bool:
    """Tell whether a file of JSON is a saved summary, or a damaged one, and not some other document.

    Flame graphs and what other commands write may lie beside profiles.
    """
    try:
        found = msgspec.json.decode(read_bytes(file), type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return False
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    return "schema_version" in found and "passes" in found


def load_summary(file: Path) -> ProfileSummary:
    """Read a saved summary.

    Raises:
        UsageError: the file cannot be read, is damaged, is no summary or was written by a newer perfkit.
    """
    try:
        data = read_bytes(file)
        version = msgspec.json.decode(data, type=_Versioned).schema_version
        if version > SCHEMA_VERSION:
            raise UsageError(
                f"{file} has schema version {version}, this perfkit reads up to {SCHEMA_VERSION}; upgrade it"
            )
        return msgspec.json.decode(data, type=ProfileSummary)
    except OSError as error:
        raise UsageError(f"cannot read {file} ({error.strerror or error})") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{file} is damaged or no saved profile ({error}); profile again to replace it"
        ) from error
