"""The text files that commands write, each replaced only by a complete new one."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from perfkit import bounded
from perfkit.config import check_expanded
from perfkit.errors import UsageError
from perfkit.repo.files import digest_of, keep_reports

# Files below these are devices or pipes of some process: they are written to and never replaced.
_STREAMS = (Path("/dev"), Path("/proc"))


def read_text(file: Path, *, default: str) -> str:
    """Return a file's text, or ``default`` where there is no such file."""
    try:
        return bounded.read_text(file)
    except FileNotFoundError:
        return default
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file} as text ({_reason(error)}); mend it or move it away") from error


def check_writable_place(file: Path, *, option: str, makes_folder: bool = False) -> None:
    """Refuse a place, named by ``option``, that could not take a file, before anything is measured."""
    check_expanded(file)
    try:
        _check_place(file, makes_folder=makes_folder)
    except OSError as error:
        raise _unwritable(file, error, option) from error


def replace_text(file: Path, text: str, *, option: str) -> None:
    """Replace a report at once; ``option`` is what named the file."""
    replace_reports({file: text}, option=option)


def replace_reports(texts: Mapping[Path, str], *, option: str, makes_folder: bool = False) -> None:
    """Replace reports that belong together, and remember that perfkit wrote them."""
    replace_texts(texts, option=option, makes_folder=makes_folder)
    keep_reports(digest_of(text.encode()) for text in texts.values())


def replace_texts(texts: Mapping[Path, str], *, option: str, makes_folder: bool = False) -> None:
    """Replace the texts of files that belong together, once all new ones are complete."""
    temporaries: dict[Path, Path] = {}
    file = Path()
    try:
        for file, text in texts.items():
            if makes_folder:
                file.parent.mkdir(parents=True, exist_ok=True)
            _check_place(file, makes_folder=False)
            if not _is_stream(file):
                temporaries[file] = _temporary(file)
                _write(temporaries[file], text, mode_of=file)
        for file, text in texts.items():
            if file in temporaries:
                temporaries[file].replace(_place(file))
            else:
                file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(file, error, option) from error
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)


def add_text(file: Path, text: str, *, option: str) -> None:
    """Add a text at the end of a file, which need not be there; ``option`` is what named the file."""
    try:
        with file.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise _unwritable(file, error, option) from error


def _check_place(file: Path, *, makes_folder: bool) -> None:
    if file.is_dir():
        raise IsADirectoryError(None, "it is a folder")
    if file.exists() and not os.access(file, os.W_OK):
        raise PermissionError(None, "it is write-protected")
    if _is_stream(file):
        return
    folder = _place(file).parent
    while makes_folder and not folder.exists():
        folder = folder.parent
    if not folder.exists():
        raise FileNotFoundError(None, f"there is no folder {folder}")
    probe = folder / _temporary(file).name
    probe.touch()
    probe.unlink()


def _is_stream(file: Path) -> bool:
    """Return whether a file is a pipe or a device, such as /dev/stdout: a file in its place would hide it."""
    return (file.exists() and not file.is_file()) or any(map(file.absolute().is_relative_to, _STREAMS))


def _place(file: Path) -> Path:
    """Return where the file itself lies: a link stays, and the file that it leads to is replaced."""
    return Path(os.path.realpath(file))


def _temporary(file: Path) -> Path:
    place = _place(file)
    return place.with_name(f".{place.name}.{os.getpid()}.tmp")


def _write(temporary: Path, text: str, *, mode_of: Path) -> None:
    with temporary.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    if mode_of.exists():
        shutil.copymode(mode_of, temporary)


def _unwritable(file: Path, error: OSError, option: str) -> UsageError:
    advice = "make it or " if isinstance(error, FileNotFoundError) else "make it writable or "
    if isinstance(error, IsADirectoryError):
        advice = ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "make room or "
    return UsageError(f"cannot write {file} ({_reason(error)}); {advice}choose another with {option}")


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def replace_between_markers(text: str, block: str, *, name: str) -> str:
    """Return ``text`` with ``block`` between the markers of ``name``, which are added where missing."""
    begins = list(re.finditer(rf"<!-- perfkit:{re.escape(name)} begin\b[^\n]*?-->", text))
    ends = list(re.finditer(rf"<!-- perfkit:{re.escape(name)} end\b[^\n]*?-->", text))
    begin = f"<!-- perfkit:{name} begin (written by perfkit; notes outside the markers are kept) -->"
    lines = [block.strip("\n"), ""] if block.strip("\n") else []
    written = "\n".join((begin, "", *lines, f"<!-- perfkit:{name} end -->"))
    if not begins and not ends:
        return f"{text.rstrip()}\n\n{written}\n" if text.strip() else f"{written}\n"
    if len(begins) != 1 or len(ends) != 1 or ends[0].start() < begins[0].end():
        order = ", the end first" if len(begins) == len(ends) == 1 else ""
        raise UsageError(
            f'the markers "perfkit:{name} begin" and "perfkit:{name} end" must each stand once, in order; '
            f"found {len(begins)} and {len(ends)}{order}; "
            "mend them, or delete both to have them written anew"
        )
    return text[: begins[0].start()] + written + text[ends[0].end() :]
