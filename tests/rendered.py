"""This renders what a terminal shows."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console, RenderableType


def rendered(view: RenderableType, width: int = 80, *, colours: bool = False) -> str:
    """Return a view as a terminal of some columns shows it."""
    console = Console(width=width, highlight=False, color_system="standard" if colours else None)
    with console.capture() as capture:
        console.print(view, markup=False, crop=False)
    return capture.get()


def check_golden(name: str, *texts: str) -> None:
    """Compare texts with a file in tests/golden, or write it where PERFKIT_WRITE_GOLDEN is set."""
    file = Path(__file__).parent / "golden" / f"{name}.txt"
    text = "\n----\n".join("\n".join(line.rstrip() for line in one.splitlines()) for one in texts) + "\n"
    if "PERFKIT_WRITE_GOLDEN" in os.environ:
        file.write_text(text)
    assert file.read_text() == text
