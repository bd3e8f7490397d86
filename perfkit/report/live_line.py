"""A line on a terminal that follows a program, beside its own output and its progress bars."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import Any, TextIO

from perfkit.report.console import visible

_AWAY = "\r\x1b[K"
# Some terminals do not know how wide they are.
_COLUMNS = 80


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
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
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
                    sys.stderr.write(_AWAY)
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
        sys.stderr.write(_AWAY)
        sys.stderr.flush()


def _others(bar: object) -> bool:
    """Return whether bars of tqdm are drawn, besides one."""
    tqdm = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    return any(one is not bar for one in getattr(tqdm, "_instances", ()))


@functools.cache
def _bar_class() -> Any:  # noqa: ANN401 (of the library that the program uses)
    """Return a bar that starts no thread, which others may have turned off."""
    return type("_Line", (sys.modules["tqdm.std"].tqdm,), {"monitor_interval": 0})
