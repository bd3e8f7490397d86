"""The places in the README that measurements write: ``<!-- begin: NAME -->`` to ``<!-- end: NAME -->``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def fill(name: str, lines: Sequence[str]) -> None:
    """Write lines into the README's place of that name.

    Raises:
        SystemExit: the README has no such place.
    """
    README.write_text(with_lines(README.read_text(encoding="utf-8"), name, lines), encoding="utf-8")


def with_lines(text: str, name: str, lines: Sequence[str]) -> str:
    """Return the README's text with these lines in the place of that name, instead of what stood there.

    Raises:
        SystemExit: there is no such place.
    """
    before, begin, rest = text.partition(f"<!-- begin: {name} -->\n")
    _, end, after = rest.partition(f"<!-- end: {name} -->\n")
    if not begin or not end:
        raise SystemExit(f"the README has no place for this: <!-- begin: {name} --> … <!-- end: {name} -->")
    return "".join((before, begin, *(f"{line}\n" for line in lines), end, after))
