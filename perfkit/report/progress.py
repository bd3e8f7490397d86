"""Shows progress on standard error: by a bar in a terminal, by plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from perfkit.report.console import console_on, visible_lines
from perfkit.units import human_seconds

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress, TaskID

# As much as leaves room for a stage's name in a narrow terminal.
_BAR_COLUMNS = 20


class Drawn:
    """Something that is drawn in the terminal while something runs, and nowhere else."""

    _drawn: Progress | Live
    _in_terminal: bool

    def __enter__(self) -> Self:
        if self._in_terminal:
            self._drawn.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self._drawn.stop()


class PassProgress(Drawn):
    """Shows which pass runs, and how many steps it has done; redrawn only on news."""

    def __init__(self, *, enabled: bool) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._enabled = enabled
        self._in_terminal = enabled and sys.stderr.isatty()
        self._drawn = self._bar = Progress(
            TextColumn("{task.description:<14}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console_on(sys.stderr),
            auto_refresh=False,
            disable=not self._in_terminal,
        )
        self._task: TaskID | None = None

    def info(self, text: str) -> None:
        """Show what happens besides passes."""
        if self._in_terminal:
            self._bar.console.print(text, markup=False)
        elif self._enabled:
            sys.stderr.write(f"{visible_lines(text)}\n")

    def begin(self, name: str, steps: int | None) -> None:
        """Show that a pass begins, with its number of optimizer steps where that is known."""
        if self._enabled and not self._in_terminal:
            sys.stderr.write(f"{name} pass begins\n")
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
        if self._enabled and not self._in_terminal:
            sys.stderr.write(f"{name} pass: {steps} steps in {human_seconds(total_s)}\n")


class StageProgress(Drawn):
    """Shows the stages of a command; without a terminal a line each, with ``only_drawn`` none."""

    def __init__(self, *, enabled: bool = True, only_drawn: bool = False) -> None:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.table import Column

        self._in_terminal = enabled and sys.stderr.isatty()
        self._has_lines = enabled and not only_drawn
        self._drawn = self._bar = Progress(
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            BarColumn(bar_width=_BAR_COLUMNS),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            console=console_on(sys.stderr),
            auto_refresh=False,
            disable=not self._in_terminal,
            transient=True,
            expand=True,
        )
        self._task: TaskID | None = None

    def info(self, text: str) -> None:
        """Show which stage begins."""
        if not self._in_terminal:
            if self._has_lines:
                sys.stderr.write(f"{visible_lines(text)}\n")
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
