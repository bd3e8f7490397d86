"""Replaces the part of a text file that perfkit writes, and keeps what people write around it."""

from __future__ import annotations

import re

from perfkit.errors import UsageError


def replace_between_markers(text: str, block: str, *, name: str) -> str:
    """Return ``text`` with ``block`` between the markers of ``name``; all else stays as it is.

    A text without markers gets them, and the block, at its end.
    """
    begins = list(re.finditer(rf"<!-- perfkit:{re.escape(name)} begin\b[^\n]*?-->", text))
    ends = list(re.finditer(rf"<!-- perfkit:{re.escape(name)} end\b[^\n]*?-->", text))
    written = _marked(block, name)
    if not begins and not ends:
        return _appended(text, written)
    if len(begins) != 1 or len(ends) != 1 or ends[0].start() < begins[0].end():
        raise UsageError(
            f'the markers "perfkit:{name} begin" and "perfkit:{name} end" must each stand once, in order; '
            f"found {len(begins)} and {len(ends)}{_wrong_order(len(begins), len(ends))}; "
            "mend them, or delete both to have them written anew"
        )
    return text[: begins[0].start()] + written + text[ends[0].end() :]


def _marked(block: str, name: str) -> str:
    begin = f"<!-- perfkit:{name} begin (written by perfkit; notes outside the markers are kept) -->"
    return "\n".join((begin, "", *([block.strip("\n"), ""] if block.strip("\n") else []), _end(name)))


def _end(name: str) -> str:
    return f"<!-- perfkit:{name} end -->"


def _appended(text: str, written: str) -> str:
    return f"{text.rstrip()}\n\n{written}\n" if text.strip() else f"{written}\n"


def _wrong_order(begins: int, ends: int) -> str:
    return ", the end first" if begins == ends == 1 else ""
