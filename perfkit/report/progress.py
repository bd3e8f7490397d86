"""Shows progress on standard error: by a bar in a terminal, by plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

from perfkit.report.console import console_on, visible_lines
from perfkit.units import counted, human_seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.progress import Progress, TaskID

# As much as leaves room for a stage's name in a narrow terminal.
_BAR_COLUMNS = 20


class Drawn:
    """Progress that is drawn in a terminal, and written as lines elsewhere; redrawn only on news.

    No thread of its own runs beside what is measured.
    """

    _drawn: Progress | Live

    def __init__(self, *, enabled: bool, has_lines: bool = True) -> None:
        self._console = console_on(sys.stderr)
        # A CI may force colours without having a terminal, and rich's own test would redraw there.
        self._in_terminal = enabled and sys.stderr.isatty() and not self._console.is_dumb_terminal
        self._in_lines = enabled and has_lines and not self._in_terminal

    def __enter__(self) -> Self:
        if self._in_terminal:
            self._drawn.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._drawn.stop()

    def _write(self, text: str) -> None:
        if self._in_lines:
            sys.stderr.write(f"{visible_lines(text)}\n")


def live_on(console: Console) -> Live:
    """Return what is drawn on a console until it ends, where the result takes its place."""
    from rich.live import Live

    return Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)


class PassProgress(Drawn):
    """Shows which pass runs, and how many steps it has done; redrawn only on news."""

    def __init__(self, *, enabled: bool) -> None:
        from rich import progress

        super().__init__(enabled=enabled)
        self._drawn = self._bar = progress.Progress(
            progress.TextColumn("{task.description:<14}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=self._console,
            auto_refresh=False,
            disable=not self._in_terminal,
        )
        self._task: TaskID | None = None

    def info(self, text: str) -> None:
        """Show what happens besides passes."""
        if self._in_terminal:
            self._bar.console.print(text, markup=False)
        self._write(text)

    def begin(self, name: str, steps: int | None) -> None:
        """Show that a pass begins, with its number of optimizer steps where that is known."""
        self._write(f"{name} pass begins")
        self._task = self._bar.add_task(f"{name} pass", total=steps)
        self._bar.refresh()

    def advance(self, steps: int) -> None:
        """Show how many optimizer steps the pass has done."""
        if self._task is not None:
            self._bar.update(self._task, completed=steps, refresh=True)

    def end(self, name: str, steps: int, total_s: float) -> None:
        """Show that the pass is over."""
        if self._task is not None:
            self._bar.update(self._task, completed=steps, total=max(steps, 1), refresh=True)
        self._write(f"{name} pass: {counted(steps, 'step')} in {human_seconds(total_s)}")


class StageProgress(Drawn):
    """Shows the stages of a command; without a terminal a line each, with ``only_drawn`` none."""

    def __init__(self, *, enabled: bool = True, only_drawn: bool = False) -> None:
        from rich import progress
        from rich.table import Column

        super().__init__(enabled=enabled, has_lines=not only_drawn)
        stage = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._drawn = self._bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False, table_column=stage),
            progress.BarColumn(bar_width=_BAR_COLUMNS),
            progress.TaskProgressColumn(),
            progress.TimeRemainingColumn(compact=True),
            console=self._console,
            auto_refresh=False,
            disable=not self._in_terminal,
            transient=True,
            expand=True,
        )
        self._task: TaskID | None = None

    def info(self, text: str) -> None:
        """Show which stage begins."""
        self._write(text)
        if not self._in_terminal:
            return
        if self._task is not None:
            self._bar.remove_task(self._task)
        # How much is done is not known yet, and a bar at 0 % would look as if nothing moved.
        self._task = self._bar.add_task(text, total=None)
        self._bar.refresh()

    def advance(self, share: float) -> None:
        """Show what share of the stage is done."""
        if self._task is not None:
            self._bar.update(self._task, completed=share, total=1.0, refresh=True)
