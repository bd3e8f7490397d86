"""What another tool measured, as records: the parts that the readers of all formats share."""

from __future__ import annotations

import contextlib
import json
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from perfkit.identity import fingerprint
from perfkit.model import (
    IMPORT_PREFIX,
    WALL_TIME,
    Better,
    Commit,
    Environment,
    Machine,
    Metric,
    Outcome,
    Placement,
    Row,
    RowPolicy,
)
from perfkit.model.policies import OtherPolicy

# The version of a benchmark whose source no file says anything of; an empty one would mean a file of them.
UNKNOWN_VERSION = "unknown"
_CUSTOM_VERSION = 8
_SHA = re.compile(r"[0-9a-f]{7,40}")
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9, "ps": 1e12}
_SPELLINGS = {
    **{name: name for name in _PER_SECOND},
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("msec", "msecs", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("µs", "μs", "usec", "usecs", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("nsec", "nsecs", "nanosecond", "nanoseconds"), "ns"),
}
_EACH = frozenset({"iter", "iteration", "op", "ops", "call", "loop"})
_BYTES = frozenset({"b", "byte", "bytes"})
_RATE = re.compile(r"(?:/\s*(?:s|sec|second)|\bper second)\b", re.IGNORECASE)
_HIGHER, _LOWER = "higher is better", "lower is better"


@dataclass(frozen=True, kw_only=True)
class ForeignResult:
    """One outcome of a launch; ``entries`` are what else the tool says of it, by name."""

    outcome: Outcome
    launch: int = 0
    entries: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ForeignRun:
    """What a file, or a part of it, measured of one commit on one machine.

    Attributes:
        tool: The name of the format.
        content: A digest of all that the file says of the run.
        commit: None where the file names none; its ``sha`` may be abbreviated.
        recorded_at: None where the file says no time.
        results: At least one.
        doubts: A sentence for each thing that a person should know of the numbers.
    """

    tool: str
    content: str
    commit: Commit | None
    recorded_at: datetime | None
    machine: Machine
    environment: Environment
    results: tuple[ForeignResult, ...]
    doubts: tuple[str, ...] = ()


def run_id_of(run: ForeignRun, sha: str, recorded_at: datetime) -> str:
    """Return a run's id: what a file says of a commit has the same one whenever it is imported.

    It begins with the time, as all ids do, and goes on with digits of the content's hash (RFC 9562,
    section 5.8).
    """
    milliseconds = max(int(recorded_at.timestamp() * 1000), 0).to_bytes(6, "big")
    hashed = uuid.uuid5(uuid.NAMESPACE_OID, f"{run.tool}\n{run.content}\n{sha}").bytes[6:]
    number = int.from_bytes(milliseconds + hashed, "big")
    number = number & ~(0xF << 76) | (_CUSTOM_VERSION << 76)
    return str(uuid.UUID(int=number))


def rows_of(run: ForeignRun, commit: Commit, *, run_id: str, recorded_at: datetime) -> list[Row]:
    """Return the rows of a run that was measured at a commit."""
    return [
        Row(
            run_id=run_id,
            recorded_at=recorded_at,
            source=f"{IMPORT_PREFIX}{run.tool}",
            commit=commit,
            machine=run.machine,
            environment=run.environment,
            outcome=result.outcome,
            placement=Placement(launch=result.launch),
            policy=OtherPolicy(entries=result.entries) if result.entries else RowPolicy(),
        )
        for result in run.results
    ]


def commit_of(
    sha: object,
    *,
    time: datetime | None = None,
    subject: str | None = None,
    branch: str | None = None,
    dirty: bool = False,
) -> Commit | None:
    """Return the commit that a file names, None where what stands in its place is no hash."""
    text = sha.strip().lower() if isinstance(sha, str) else ""
    if not _SHA.fullmatch(text):
        return None
    return Commit(sha=text, time=time, subject=subject, branch=branch, dirty=dirty)


def machine_of(identity: Mapping[str, object], others: Mapping[str, object]) -> Machine:
    """Return a machine that its known ``identity`` tells from others; what is not known is left out."""
    known = facts(identity)
    return Machine(machine_id=fingerprint(known), facts={**known, **facts(others)})


def environment_of(known: Mapping[str, object]) -> Environment:
    """Return an environment of what is known of it."""
    found = facts(known)
    return Environment(env_id=fingerprint(found), facts=found)


def facts(values: Mapping[str, object]) -> dict[str, str]:
    """Return values as texts, without those that are not known."""
    return {name: as_text(value) for name, value in values.items() if value not in (None, "")}


def as_text(value: object) -> str:
    """Return a text as it is, and any other value as JSON."""
    if isinstance(value, str):
        return value
    return repr(value) if type(value) in (int, float) else json.dumps(value, sort_keys=True, default=str)


def moment(text: object) -> datetime | None:
    """Return the time of an ISO text or of milliseconds since 1970, None where it says none.

    A time without a zone is taken as UTC: which other one was meant is not known.
    """
    with contextlib.suppress(ValueError, OverflowError, OSError):
        if isinstance(text, str):
            found = datetime.fromisoformat(text.strip())
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        if isinstance(text, (int, float)) and not isinstance(text, bool) and math.isfinite(text):
            return datetime.fromtimestamp(text / 1000, tz=UTC)
    return None


def metric_of(unit: str, better: Better | None = None) -> tuple[Metric, float]:
    """Return the metric of a unit such as "ns/iter", and by what its values are to be divided.

    Times become seconds. Rates are better when they are higher, unless ``better`` or the unit says otherwise.
    """
    text = re.sub(r"\s*\([^)]*\)\s*$", "", unit).strip()
    word, _, each = text.partition("/")
    known = _SPELLINGS.get(word.strip().lower())
    if known is not None and (not each or each.strip().lower() in _EACH):
        return WALL_TIME, _PER_SECOND[known]
    said: Better | None = "higher" if _HIGHER in unit.lower() else "lower" if _LOWER in unit.lower() else None
    direction = said or better or ("higher" if _RATE.search(text) else "lower")
    stored = "B" if text.lower() in _BYTES else text or "1"
    return Metric(name="memory" if stored == "B" else text or "value", unit=stored, better=direction), 1.0


def divided(values: Sequence[float], divisor: float) -> tuple[float, ...]:
    """Return values in a metric's unit; dividing rounds once, and a factor such as 1e-9 is rounded itself."""
    return tuple(value / divisor for value in values)
