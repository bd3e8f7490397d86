"""A summary that `perfkit profile` saved, as a reading like any other."""

from __future__ import annotations

import msgspec

from perfkit.errors import UsageError
from perfkit.records import ProfileSummary
from perfkit.records.readings import FunctionTime, Reading, StepTimes

# No profile has as many, and what reads on holds them.
_LARGEST_COUNT = 10**15


def read_summary(data: bytes, name: str) -> Reading:
    """Return what a saved summary says: the times of its main pass, the functions of its cProfile.

    Raises:
        UsageError: the data are damaged, or no summary.
    """
    try:
        summary = msgspec.json.decode(data, type=ProfileSummary)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{name} is damaged or no saved profile ({error}); profile again to replace it"
        ) from None
    if not summary.passes:
        raise UsageError(f"{name} is a saved profile without a single pass; profile again to replace it")
    counts = [summary.main_pass.samples or 0, *(entry.calls for entry in summary.entries)]
    if max(map(abs, (*counts, *(entry.line for entry in summary.entries)))) > _LARGEST_COUNT:
        raise UsageError(f"{name} is a saved profile with counts beyond any; profile again to replace it")
    return reading_of(summary, name)


def reading_of(summary: ProfileSummary, name: str) -> Reading:
    """Return a summary as a reading."""
    main = summary.main_pass
    profiled = summary.pass_named("cprofile") or main
    steps = StepTimes(count=profiled.steps, sign="optimizer.step", seconds=main.typical_steps)
    return Reading(
        name=name,
        origin="perfkit summary",
        total_s=profiled.total_s,
        steps=steps if profiled.steps else None,
        functions=tuple(
            FunctionTime(
                file=entry.file if entry.line or entry.file != "~" else "",
                line=entry.line,
                function=entry.function,
                kind="own" if entry.kind == "own" else "builtin" if entry.file in ("~", "") else "library",
                calls=entry.calls,
                primitive_calls=entry.calls,
                own_s=entry.own_s,
                cumulative_s=entry.cumulative_s,
            )
            for entry in summary.entries
        ),
        samples=main.samples,
    )
