"""Summaries of `perfkit profile`: saved as JSON, loaded, and read like other profiles."""

from __future__ import annotations

from pathlib import Path

import msgspec

from perfkit.bounded import read_bytes
from perfkit.errors import UsageError
from perfkit.model import Balance, ProfileEntry, ProfileSummary
from perfkit.model.readings import RESIDUAL, FunctionTime, PhaseTime, Reading, StepTimes

# No profile has this many calls, and a float still holds each whole number up to here.
_LARGEST_COUNT = 10**15
SCHEMA_VERSION = 1


def read_summary(data: bytes, name: str) -> Reading:
    """Return a saved summary as a reading: the times of its main pass, the functions of its cProfile."""
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
    """Return a summary as a reading of its cProfile, or of its main pass where it has no cProfile."""
    profiled = summary.pass_named("cprofile") or summary.main_pass
    steps = StepTimes(count=profiled.steps, sign="optimizer.step", seconds=profiled.typical_steps)
    return Reading(
        name=name,
        origin="perfkit summary",
        total_s=profiled.total_s,
        steps=steps if profiled.steps else None,
        functions=tuple(_function(entry) for entry in summary.entries),
        phases=phases_of_balance(summary.balance, profiled.steps) if summary.balance else (),
        waits=summary.waits,
        samples=summary.main_pass.samples,
        memory=summary.balance.memory_in_order if summary.balance else (),
    )


def _function(entry: ProfileEntry) -> FunctionTime:
    return FunctionTime(
        file=entry.file if entry.line or entry.file != "~" else "",
        line=entry.line,
        function=entry.function,
        kind="own" if entry.kind == "own" else "builtin" if entry.file in ("~", "") else "library",
        calls=entry.calls,
        primitive_calls=entry.calls,
        own_s=entry.own_s,
        cumulative_s=entry.cumulative_s,
    )


def phases_of_balance(balance: Balance, steps: int) -> tuple[PhaseTime, ...]:
    """Return the phases of a balance pass, scaled to a number of steps."""
    typical = balance.typical
    scale = steps / max(len(balance.step_s[typical]), 1)
    seconds = {**{phase.name: phase.seconds for phase in balance.in_order}, RESIDUAL: balance.residual_s}
    return tuple(PhaseTime(name=name, seconds=sum(times[typical]) * scale) for name, times in seconds.items())


class _Versioned(msgspec.Struct):
    schema_version: int


def encode_summary(summary: ProfileSummary) -> bytes:
    """Return a summary as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(summary)) + b"\n"


def may_be_summary(file: Path) -> bool:
    """Return whether a file of JSON is a saved summary, or a damaged one, and not some other document."""
    try:
        found = msgspec.json.decode(read_bytes(file), type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return False
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    return "schema_version" in found and "passes" in found


def load_summary(file: Path) -> ProfileSummary:
    """Read a saved summary."""
    try:
        data = read_bytes(file)
        version = msgspec.json.decode(data, type=_Versioned).schema_version
        if version > SCHEMA_VERSION:
            raise UsageError(
                f"{file} has schema version {version}, this perfkit reads up to {SCHEMA_VERSION}; upgrade it"
            )
        return msgspec.json.decode(data, type=ProfileSummary)
    except OSError as error:
        raise UsageError(f"cannot read {file} ({error.strerror or error})") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{file} is damaged or no saved profile ({error}); profile again to replace it"
        ) from error


def saved_profiles(folder: Path) -> tuple[list[ProfileSummary], dict[str, str]]:
    """Return the profiles saved in a folder, by name, and for each unreadable one the reason."""
    summaries: list[ProfileSummary] = []
    damaged: dict[str, str] = {}
    for file in filter(may_be_summary, sorted(folder.glob("*.json"))):
        try:
            summaries.append(load_summary(file))
        except UsageError as error:
            damaged[file.name] = str(error).removeprefix(f"{file} ")
    return summaries, damaged
