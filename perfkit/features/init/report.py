"""What `perfkit init` found and would write, with a difference for each file."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from perfkit.features.init.records import PlannedFile, StartingPlan
from perfkit.units import counted


def starting_view(plan: StartingPlan, *, written: bool) -> str:
    """Return what was found, each file as a difference to what is there, remarks, and the next commands."""
    return "\n".join(_lines(plan, written=written))


def starting_sentence(plan: StartingPlan, *, written: bool) -> str:
    """Return how many files were written, or would be."""
    if not plan.files:
        return f"{plan.root}: nothing is to be written, all of it is there"
    return f"{plan.root}: {counted(len(plan.files), 'file')} {'written' if written else 'to be written'}"


def _lines(plan: StartingPlan, *, written: bool) -> Iterator[str]:
    yield f"In {plan.root}"
    yield from (f"  {line}" for line in plan.found)
    yield ""
    for file in plan.files:
        yield f"{_verb(file, written=written)} {file.path}: {file.why}"
        if not written:
            yield from (f"    {line}" for line in _difference(file))
            yield ""
    if not plan.files:
        yield "Nothing is to be written: all of it is there."
    if plan.remarks:
        yield from ("", *(f"- {remark}" for remark in plan.remarks))
    if written or not plan.files:
        yield from ("", "Next:", *(f"  {command}" for command in plan.next_commands))


def _verb(file: PlannedFile, *, written: bool) -> str:
    if file.before is None:
        return "wrote" if written else "would write"
    return "added to" if written else "would add to"


def _difference(file: PlannedFile) -> Iterator[str]:
    """Yield the lines that a file gains, with a few of those around them."""
    before, after = (file.before or "").splitlines(), file.after.splitlines()
    for line in difflib.unified_diff(before, after, lineterm="", n=2):
        if not line.startswith(("---", "+++", "@@")):
            yield line.rstrip()
