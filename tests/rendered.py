"""This renders what a terminal shows."""

from __future__ import annotations

from rich.console import Console, RenderableType


def rendered(view: RenderableType, width: int = 80, *, colours: bool = False) -> str:
    """Return a view as a terminal of some columns shows it."""
    console = Console(width=width, highlight=False, color_system="standard" if colours else None)
    with console.capture() as capture:
        console.print(view, markup=False, crop=False)
    return capture.get()
