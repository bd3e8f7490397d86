"""The console that every command prints with, and views as text or HTML for notebooks."""

from __future__ import annotations

import codecs
import contextlib
import functools
import io
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.segment import Segment

_PIPE_COLUMNS = 100
# What has a terminal go to the beginning of a line and erase it (EL).
_LINE_AWAY = "\r\x1b[K"
_ANY_TEXT = "perfkit.any-text"
# What stands for characters that an encoding lacks; a question mark stands for all others.
_SPELLED = str.maketrans(
    {
        "±": "+-",
        "×": "x",
        "µ": "u",
        "μ": "u",
        "…": "...",
        "→": "->",
        "–": "-",  # noqa: RUF001 (an en dash)
        "—": "-",
        "’": "'",  # noqa: RUF001 (a quotation mark)
        "‘": "'",  # noqa: RUF001 (likewise)
        "“": '"',
        "”": '"',
        "•": "*",
        "·": ".",
        "†": "+",
        "‡": "++",
        "✓": "ok",
        "✗": "no",
        "≤": "<=",
        "≥": ">=",
        "─": "-",
        "━": "-",
        "│": "|",
        "╸": "-",
        "╺": "-",
        "█": "#",
        "▏": "|",
        "\N{NO-BREAK SPACE}": " ",
    }
)
# Bytes of a file's name that are no text are kept by Python as these characters, and written as they were.
_FIRST_BYTE, _LAST_BYTE, _BYTE_OFFSET = "\udc80", "\udcff", 0xDC00
# What would steer a terminal, turn the order of what it shows, or is no text: names may be other people's.
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def console_on(stream: TextIO) -> Console:
    """Return a console: as wide as the terminal, or as COLUMNS, or 100 columns in a pipe."""
    # Rich reads COLUMNS by itself, and would take a pipe for a terminal of 80 columns.
    is_known = stream.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return visible_console()(file=stream, width=None if is_known else _PIPE_COLUMNS, highlight=False)


@functools.cache
def visible_console() -> type[Console]:
    """Return a console that spells out any text which would steer the terminal."""
    from rich.console import Console
    from rich.segment import Segment

    class VisibleConsole(Console):
        def render(self, *args: Any, **options: Any) -> Iterable[Segment]:  # noqa: ANN401 (the library's own)
            for segment in super().render(*args, **options):
                text = segment.text
                if segment.control or text.isprintable() or text == "\n":
                    yield segment
                else:
                    yield Segment(visible_lines(text), segment.style)

    return VisibleConsole


def visible(text: str) -> str:
    r"""Return a text in a line that a terminal can show: "\x1b" and "\n" are spelled out."""
    if text.isprintable():
        return text
    return _UNSEEN.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def visible_lines(text: str) -> str:
    """Return lines that a terminal can show."""
    return "\n".join(map(visible, text.split("\n")))


def folded(text: str, columns: int) -> str:
    """Return a text whose lines are folded between words where they are too long; no path is cut."""
    lines = (
        textwrap.fill(line, max(columns, 1), break_long_words=False, break_on_hyphens=False)
        if len(line) > columns
        else line
        for line in text.split("\n")
    )
    return "\n".join(lines)


def visible_json(text: str) -> str:
    r"""Return JSON in which "\x9b" and its like, which JSON allows in texts, are spelled out."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _UNSEEN.sub(
        lambda found: found.group() if found.group() in "\n\r\t" else f"\\u{ord(found.group()):04x}", text
    )


@contextlib.contextmanager
def shown_until_output(text: str) -> Iterator[None]:
    """Show a line on a terminal until anything else is printed; nothing without a terminal."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield
        return
    streams = (sys.stdout, sys.stderr)

    def take_away() -> None:
        for stream in streams:
            vars(stream).pop("write", None)
        sys.stderr.write(_LINE_AWAY)
        sys.stderr.flush()

    def write(stream: TextIO, more: str) -> int:
        take_away()
        return stream.write(more)

    sys.stderr.write(text)
    sys.stderr.flush()
    for stream in streams:
        # Libraries that print look the method up at the stream itself.
        vars(stream)["write"] = functools.partial(write, stream)
    try:
        yield
    finally:
        if "write" in vars(sys.stderr):
            take_away()


def let_any_text_through() -> None:
    """Have both output streams spell out what their encoding lacks: no result may be lost for one sign."""
    codecs.register_error(_ANY_TEXT, _spelled_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ANY_TEXT)


def _spelled_out(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if _FIRST_BYTE <= character <= _LAST_BYTE:
        return bytes([ord(character) - _BYTE_OFFSET]), error.start + 1
    spelled = character.translate(_SPELLED).encode(error.encoding, "replace").decode(error.encoding)
    return spelled, error.start + 1


_COLUMNS = 100
# A notebook has colours of its own, dark or light, so that of the text is left to it.
_FORMAT = (
    '<pre style="font-family: ui-monospace, Menlo, Consolas, monospace; white-space: pre; overflow-x: auto;'
    ' line-height: 1.25">{code}</pre>'
)


def as_text(view: RenderableType) -> str:
    """Return a view as lines of at most 100 columns, without colours."""
    file = io.StringIO()
    visible_console()(file=file, width=_COLUMNS, highlight=False, color_system=None).print(_plain(view))
    return file.getvalue().rstrip("\n")


def as_html(view: RenderableType) -> str:
    """Return a view as an HTML element with colours; everything in it is escaped."""
    console = visible_console()(
        file=io.StringIO(), width=_COLUMNS, highlight=False, record=True, force_terminal=True
    )
    console.print(_plain(view))
    return console.export_html(inline_styles=True, code_format=_FORMAT)


def _plain(view: RenderableType) -> RenderableType:
    """Return text as it is: rich would take ":train:" for a picture, and brackets for a style."""
    from rich.text import Text

    return Text(view) if isinstance(view, str) else view


# Some terminals do not know how wide they are.
_UNKNOWN_COLUMNS = 80


class LiveLine:
    """A line on standard error that goes away as soon as anything else is printed.

    Beside bars of tqdm it is one of these, below the others. It is shown on a terminal only, and not where a
    library has put an object of its own in the place of standard error, as rich does.
    """

    def __init__(self) -> None:
        self._is_shown = False
        self._bar: Any = None

    @property
    def is_possible(self) -> bool:
        """Whether there is a terminal, and nobody has turned off progress bars."""
        stream = sys.stderr
        off = os.environ.get("CI") or os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
        return (
            stream is sys.__stderr__
            and stream is not None
            and stream.isatty()
            and os.environ.get("TERM", "dumb") != "dumb"
            and not off
        )

    def show(self, text: str) -> None:
        """Show a text in the place of the last one, as much of it as the terminal has columns."""
        with contextlib.suppress(Exception):
            if not self.is_possible:
                return
            self._take_away()
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or _UNKNOWN_COLUMNS
            line = visible(text)[: columns - 1]
            if not self._bars():
                self.clear()
                self._show_until_output(line)
                return
            if self._bar is None:
                self._bar = _bar_class()(bar_format="{desc}", leave=False, file=sys.stderr)
            self._bar.set_description_str(line)

    def clear(self) -> None:
        """Take the line away."""
        with contextlib.suppress(Exception):
            self._take_away()
            bar, self._bar = self._bar, None
            if bar is not None:
                if not _others(bar):
                    # Bars that have ended have left the cursor in this line.
                    sys.stderr.write(_LINE_AWAY)
                bar.close()
                sys.stderr.write("\r")

    def log(self, text: str) -> None:
        """Print a line that stays, above all bars."""
        # Standard error may be closed, or a file on a full disk.
        with contextlib.suppress(Exception):
            self._take_away()
            if self._bars():
                sys.modules["tqdm.std"].tqdm.write(visible(text), file=sys.stderr)
                return
            self.clear()
            print(visible(text), file=sys.stderr, flush=True)  # noqa: T201 (no command prints for it)

    def _bars(self) -> bool:
        return _others(self._bar)

    def _show_until_output(self, line: str) -> None:
        sys.stderr.write(line)
        sys.stderr.flush()
        self._is_shown = True
        for stream in (sys.stdout, sys.stderr):
            # Libraries that print look the method up at the stream itself.
            if stream is not None and stream.isatty():
                vars(stream)["write"] = functools.partial(self._write, stream)

    def _write(self, stream: TextIO, text: str) -> int:
        self._take_away()
        return type(stream).write(stream, text)

    def _take_away(self) -> None:
        if not self._is_shown:
            return
        self._is_shown = False
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and isinstance(vars(stream).get("write"), functools.partial):
                del vars(stream)["write"]
        sys.stderr.write(_LINE_AWAY)
        sys.stderr.flush()


def _others(bar: object) -> bool:
    """Return whether bars of tqdm are drawn, besides one."""
    tqdm = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    return any(one is not bar for one in getattr(tqdm, "_instances", ()))


@functools.cache
def _bar_class() -> Any:  # noqa: ANN401 (of the library that the program uses)
    """Return a bar that starts no thread, which others may have turned off."""
    return type("_Line", (sys.modules["tqdm.std"].tqdm,), {"monitor_interval": 0})
