"""What all formats share: decoding of files, records of results, checks of their numbers, and names."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import re
import statistics
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from perfkit.errors import UsageError
from perfkit.identity import fingerprint
from perfkit.ledger.recording import RunFacts
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
    Summary,
)
from perfkit.model.policies import OtherPolicy
from perfkit.units import counted, human_seconds

Kind = TypeVar("Kind")

MOST_BYTES = 1 << 29
_GZIP = b"\x1f\x8b"
_ANY_GZIP = 16 + zlib.MAX_WBITS
_ZIP = b"PK\x03\x04"
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_ARCHIVES = {b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}
# How github-action-benchmark begins the script that holds its data.
_SCRIPT = re.compile(r"\s*(?:window\.)?BENCHMARK_DATA\s*=\s*")


def decode(data: bytes) -> Any:  # noqa: ANN401 (any JSON)
    """Return what JSON, compressed JSON or the text of a ``data.js`` holds; NaN and Infinity may be in it."""
    _refuse_binary(data)
    if data.startswith(_GZIP):
        data = _unpack(data)
    if len(data) > MOST_BYTES:
        raise UsageError(f"is larger than {MOST_BYTES >> 20} MiB; divide it, or import its parts")
    text = _without_script(data)
    try:
        return _parse(text)
    except RecursionError:
        raise UsageError("is nested too deeply to be a benchmark's result") from None
    except UnicodeDecodeError:
        raise UsageError("is neither JSON nor any other text in UTF-8") from None
    except ValueError as error:
        raise UsageError(f"is not whole JSON: {_first_line(error)}") from None


def convert(value: object, kind: type[Kind], tool: str) -> Kind:
    """Return a decoded value as a record of a tool's format."""
    try:
        return msgspec.convert(value, type=kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"is not as {tool} writes it: {_first_line(error)}") from None
    except UnicodeEncodeError:
        raise UsageError("holds a text that is not Unicode") from None
    except (OverflowError, RecursionError):
        raise UsageError(f"is not as {tool} writes it: a number in it is too large") from None


def digest(value: object) -> str:
    """Return the SHA-256, in hex digits, of a file's content; spaces and ends of lines do not count."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _refuse_binary(data: bytes) -> None:
    if _PICKLE.match(data) or data.startswith(_ZIP):
        raise UsageError(
            "is a pickle or a zip file, as torch.save and pickle.dump write them, and loading a pickle can "
            "run any code; save a torch.utils.benchmark Measurement as JSON instead: "
            'json.dump({"name": m.title, "unit": "s", "values": [m.times]}, file)'
        )
    for magic, name in _ARCHIVES.items():
        if data.startswith(magic):
            raise UsageError(f"is compressed by {name}; unpack it first and import what was in it")


def _unpack(data: bytes) -> bytes:
    unpacking = zlib.decompressobj(_ANY_GZIP)
    try:
        found = unpacking.decompress(data, MOST_BYTES + 1)
    except zlib.error as error:
        raise UsageError(f"is a damaged gzip file ({error})") from None
    if len(found) <= MOST_BYTES and not unpacking.eof:
        raise UsageError("is a gzip file that was cut short")
    return found


def _without_script(data: bytes) -> bytes:
    """Return the JSON that a script assigns; the script is read as text and never run."""
    beginning = _SCRIPT.match(data[:256].decode("utf-8", "replace").removeprefix("\N{BYTE ORDER MARK}"))
    if beginning is None:
        return data.removeprefix(b"\xef\xbb\xbf")
    return data[data.index(b"=") + 1 :].strip().removesuffix(b";")


def _parse(text: bytes) -> Any:  # noqa: ANN401 (any JSON)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        # It knows neither NaN nor Infinity, which Python, asv and Google Benchmark write.
        return json.loads(text)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


# The version of a benchmark of unknown source; an empty one would mean a whole file of benchmarks.
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
class ToolResult:
    """One outcome of a launch; ``entries`` are further data of the tool, by name."""

    outcome: Outcome
    launch: int = 0
    entries: Mapping[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ToolRun:
    """What a file, or a part of it, measured of one commit on one machine; None is not in the file.

    ``content`` is a digest of that part; the hash of ``commit`` may be abbreviated.
    """

    tool: str
    content: str
    commit: Commit | None
    recorded_at: datetime | None
    machine: Machine
    environment: Environment
    results: tuple[ToolResult, ...]
    remarks: tuple[str, ...] = ()

    @property
    def doubts(self) -> tuple[str, ...]:
        """A sentence for each doubt about the numbers."""
        return (*self.remarks, *(doubt for result in self.results for doubt in result.doubts))


def run_id_of(run: ToolRun, sha: str, recorded_at: datetime) -> str:
    """Return a run's id (RFC 9562, section 5.8): the same content always has the same one."""
    milliseconds = max(int(recorded_at.timestamp() * 1000), 0).to_bytes(6, "big")
    hashed = uuid.uuid5(uuid.NAMESPACE_OID, f"{run.tool}\n{run.content}\n{sha}").bytes[6:]
    number = int.from_bytes(milliseconds + hashed, "big")
    number = number & ~(0xF << 76) | (_CUSTOM_VERSION << 76)
    return str(uuid.UUID(int=number))


def rows_of(run: ToolRun, commit: Commit, *, run_id: str, recorded_at: datetime) -> list[Row]:
    """Return the rows of a run that was measured at a commit."""
    shared = RunFacts(
        run_id=run_id,
        recorded_at=recorded_at,
        source=f"{IMPORT_PREFIX}{run.tool}",
        commit=commit,
        machine=run.machine,
        environment=run.environment,
    )
    return [
        shared.row(
            result.outcome,
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
    """Return a machine that its ``identity`` distinguishes from others; unknown facts are left out."""
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
    """Return the time of an ISO text (UTC without a zone) or of milliseconds since 1970, else None."""
    with contextlib.suppress(ValueError, OverflowError, OSError):
        if isinstance(text, str):
            found = datetime.fromisoformat(text.strip())
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        if isinstance(text, (int, float)) and not isinstance(text, bool) and math.isfinite(text):
            return datetime.fromtimestamp(text / 1000, tz=UTC)
    return None


def metric_of(unit: str, better: Better | None = None) -> tuple[Metric, float]:
    """Return the metric of a unit such as "ns/iter", and by what its values are to be divided.

    Times become seconds. Without ``better`` or a hint in the unit, higher rates are better.
    """
    text = re.sub(r"\s*\([^)]*\)\s*$", "", unit).strip()
    word, _, each = text.partition("/")
    known = _SPELLINGS.get(word.strip().lower())
    if known is not None and (not each or each.strip().lower() in _EACH):
        return WALL_TIME, _PER_SECOND[known]
    stated: Better | None = (
        "higher" if _HIGHER in unit.lower() else "lower" if _LOWER in unit.lower() else None
    )
    direction = stated or better or ("higher" if _RATE.search(text) else "lower")
    stored = "B" if text.lower() in _BYTES else text or "1"
    return Metric(name="memory" if stored == "B" else text or "value", unit=stored, better=direction), 1.0


def divided(values: Sequence[float], divisor: float) -> tuple[float, ...]:
    """Return values in a metric's unit; dividing rounds once, and a factor such as 1e-9 is rounded itself."""
    return tuple(value / divisor for value in values)


_FAR = 10.0
_SPREAD = 3.0
_ENOUGH = 8
# Squares of it are still numbers.
_ABSURD = 1e100
_MOST = (1 << 63) - 1


def checked(
    outcome: Outcome, *, least: float | None = None, launch: int = 0, entries: Mapping[str, str] | None = None
) -> ToolResult:
    """Return an outcome with its doubts; what is no measurement becomes an error."""
    for count in (outcome.loops, outcome.warmup, outcome.summary.n if outcome.summary else None):
        if count is not None and not 0 <= count <= _MOST:
            raise UsageError(f"has {str(count)[:20]} loops or values, which cannot be")
    doubts: list[str] = []
    if outcome.status == "ok" and outcome.is_measured:
        if problem := _problem(outcome):
            outcome = dataclasses.replace(outcome, values=(), summary=None, status="error", message=problem)
            doubts = [problem]
        else:
            doubts = list(_doubts(outcome, least))
    named = tuple(f"{outcome.benchmark.name}: {doubt}" for doubt in doubts)
    return ToolResult(outcome=outcome, launch=launch, entries=entries or {}, doubts=named)


def _problem(outcome: Outcome) -> str:
    """Return why an outcome's numbers cannot be kept as measured, "" where they can."""
    numbers = outcome.values or _numbers(outcome.summary)
    strange = [number for number in numbers if not (math.isfinite(number) and abs(number) < _ABSURD)]
    if strange:
        return f"{counted(len(strange), 'value')} of {len(numbers)} cannot be a measurement ({strange[0]})"
    middle = _middle(outcome)
    if outcome.metric.unit == "s" and middle <= 0:
        return f"its typical time is {middle:g} s, and a time is above zero"
    return ""


def _doubts(outcome: Outcome, least: float | None) -> Iterator[str]:
    if outcome.metric.unit != "s":
        return
    middle = _middle(outcome)
    smallest = min(outcome.values) if outcome.values else least
    not_above = sum(value <= 0 for value in outcome.values)
    if not_above:
        yield f"{counted(not_above, 'time')} of {len(outcome.values)} are not above zero"
    elif smallest is not None and smallest * _FAR < middle:
        yield (
            f"its fastest call took {human_seconds(smallest)} and its typical one {human_seconds(middle)}; "
            "were all of its CUDA kernels waited for?"
        )
    n, mean, sd = _spread(outcome)
    if sd is not None and n >= _ENOUGH and sd > _SPREAD * mean:
        yield f"its deviation ({human_seconds(sd)}) is far above its mean ({human_seconds(mean)})"


def _middle(outcome: Outcome) -> float:
    summary = outcome.summary
    if summary is None:
        return statistics.median(outcome.values)
    return summary.mean if summary.median is None else summary.median


def _spread(outcome: Outcome) -> tuple[int, float, float | None]:
    if outcome.summary is not None:
        return outcome.summary.n, outcome.summary.mean, outcome.summary.sd
    values = outcome.values
    return len(values), statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def _numbers(summary: Summary | None) -> tuple[float, ...]:
    known = () if summary is None else (summary.mean, summary.sd, summary.median)
    return tuple(number for number in known if number is not None)


# asv itself writes a hash in place of the name of an environment that is longer.
LONGEST_NAME = 128
_DIGITS = 8


@dataclass(frozen=True, kw_only=True)
class Written:
    """The texts of files by relative paths, and how many rows have no place in them, by what they are."""

    files: Mapping[str, str]
    left_out: Counter[str] = field(default_factory=Counter)


def grouped(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> list[Sequence[Row]]:
    """Return the rows that have the same key together, in the order of their first ones."""
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def entries_of(row: Row) -> Mapping[str, str]:
    """Return the other tool's data of a row besides its outcome."""
    return row.policy.entries if isinstance(row.policy, OtherPolicy) else {}


def number_of(entries: Mapping[str, str], name: str) -> float | None:
    """Return a number of the other tool's data, None where there is none."""
    with contextlib.suppress(ValueError, OverflowError, RecursionError):
        found = json.loads(entries.get(name, ""))
        if type(found) in (int, float) and math.isfinite(found):
            return found  # type: ignore[no-any-return]
    return None


def plain_name(text: str) -> str:
    """Return a text that is safe as one part of a path."""
    name = re.sub(r"[^\w.+@=-]", "_", text).lstrip(".") or "_"
    if len(name.encode()) <= LONGEST_NAME:
        return name
    digits = hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]
    return f"{name.encode()[: LONGEST_NAME - 1 - _DIGITS].decode(errors='ignore')}-{digits}"
