"""Text files that perfkit and people share: read whole, and replaced only by a complete new one."""

from __future__ import annotations

from pathlib import Path

from perfkit.errors import UsageError


def read_text(file: Path, *, default: str) -> str:
    """Return a file's text, or ``default`` where there is no such file.

    Raises:
        UsageError: the file cannot be read as UTF-8 text.
    """
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return default
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file} as text ({_reason(error)}); mend it or move it away") from error


def replace_text(file: Path, text: str) -> None:
    """Replace a file's text at once.

    Raises:
        UsageError: the file cannot be written; what it held is still there.
    """
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(
            f"cannot write {file} ({_reason(error)}); make it writable or choose another with --out"
        ) from error


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
