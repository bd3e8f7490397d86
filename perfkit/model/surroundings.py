"""What surrounds measurements: the machines and environments of runs, and how they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from perfkit.model.results import ABSENT, PACKAGE, SIDES, Environment, Machine, Side

# What a difference means: no times of the two are compared, or they may differ for it, or it means little.
Weight = Literal["forbids", "may matter", "means little"]


@dataclass(frozen=True, kw_only=True)
class FactChange:
    """A fact of two environments or machines that is not the same; None where one does not record it."""

    of: Literal["environment", "machine"]
    fact: str
    before: str | None
    after: str | None
    weight: Weight


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Where a run measured, or one ``side`` of a run that compared environments, and of which ``commits``."""

    run_id: str
    recorded_at: datetime
    source: str
    commits: tuple[str, ...]
    side: Side | None
    machine: Machine
    environment: Environment


@dataclass(frozen=True, kw_only=True)
class SurroundingsReport:
    """Where one or two runs measured; of two places, what differs: what forbids a comparison comes first."""

    found: tuple[Surroundings, ...]
    changes: tuple[FactChange, ...] = ()


# These identify a machine.
_IDENTITY = frozenset({"cpu", "logical_cpus", "ram_gib", "gpus"})
# What fixed work took in a run, a sentinel of the machine.
MACHINE_SPEEDS = ("python_loop_ms", "matrix_product_ms")
# These are of the moment, or names.
_PASSING = frozenset({"node", "load_1min", *MACHINE_SPEEDS})
# So end those facts of a device that are read anew around each launch.
_OF_A_LAUNCH = ("_before", "_after", "_reserved_bytes")
# Devices that differ by less are equal, in degrees and as a share of a clock.
_OF_DEVICE, _NEAR_C, _NEAR_SHARE = "gpu", 5.0, 0.02
_TORCH = "torch"
_ORDER: tuple[Weight, ...] = ("forbids", "may matter", "means little")


def environment_changes(before: Environment, after: Environment) -> tuple[FactChange, ...]:
    """Return the facts of two environments that differ, in the order in which they are recorded."""
    return tuple(_changes("environment", before.facts, after.facts))


def package_changes(changes: Iterable[FactChange]) -> dict[str, FactChange]:
    """Return the changes that are of packages, by name."""
    named = {one.fact.removeprefix(f"{PACKAGE} "): one for one in changes}
    return {name: one for name, one in named.items() if name != one.fact or name == _TORCH}


def package_options(changes: Sequence[FactChange]) -> list[str]:
    """Return options that ask for the changed packages of both sides; none where a version is not known."""
    pairs = {name: (one.before, one.after) for name, one in package_changes(changes).items()}
    known = all(version not in (None, ABSENT) for pair in pairs.values() for version in pair)
    if not known or any(one.fact == "python" for one in changes):
        return []
    options = (
        (f"--{side}-with", f"{name}=={pair[number]}")
        for number, side in enumerate(SIDES)
        for name, pair in pairs.items()
    )
    return [word for option in options for word in option]


def surrounding_changes(before: Surroundings, after: Surroundings) -> tuple[FactChange, ...]:
    """Return all facts that differ, those first for which times of the two are not compared."""
    found: Iterable[FactChange] = (
        *_changes("machine", before.machine.facts, after.machine.facts),
        *environment_changes(before.environment, after.environment),
    )
    return tuple(sorted(found, key=lambda one: _ORDER.index(one.weight)))


def lasting_changes(
    before: tuple[Machine, Environment], after: tuple[Machine, Environment]
) -> tuple[FactChange, ...]:
    """Return the facts that may explain a lasting change: not the load and state of a moment."""
    software = environment_changes(before[1], after[1])
    machine = _changes("machine", before[0].facts, after[0].facts)
    return (*software, *(change for change in machine if not _is_passing(change.fact)))


def _changes(
    of: Literal["environment", "machine"], before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[FactChange]:
    for fact in dict.fromkeys([*before, *after]):
        old, new = before.get(fact), after.get(fact)
        if old != new and not _is_near(fact, old, new):
            yield FactChange(of=of, fact=fact, before=old, after=new, weight=_weight(of, fact))


def _is_near(fact: str, old: str | None, new: str | None) -> bool:
    if old is None or new is None or not fact.startswith(_OF_DEVICE):
        return False
    try:
        difference, larger = abs(float(old) - float(new)), max(abs(float(old)), abs(float(new)))
    except ValueError:
        return False
    if "temperature" in fact:
        return difference <= _NEAR_C
    return ("_mhz_" in fact or "_power_w_" in fact) and difference <= _NEAR_SHARE * larger


def _is_passing(fact: str) -> bool:
    return fact in _PASSING or (fact.startswith(_OF_DEVICE) and fact.endswith(_OF_A_LAUNCH))


def _weight(of: Literal["environment", "machine"], fact: str) -> Weight:
    if of == "environment" or fact in _IDENTITY:
        return "forbids"
    if "_power_w_" in fact or fact.endswith(("_memory_mhz_before", "_reserved_bytes")):
        return "means little"
    return "means little" if fact in _PASSING else "may matter"
