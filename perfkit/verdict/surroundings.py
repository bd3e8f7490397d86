"""How the environments and machines of two measurements differ, and what that means for comparing them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from perfkit.records import Environment, Machine
from perfkit.records.surroundings import FactChange, Weight

# These identify a machine: what was timed on two machines is never compared.
_IDENTITY = ("cpu", "logical_cpus", "ram_gib", "gpus")
# These are of the hour, or names: they are no part of what a machine is.
_PASSING = frozenset({"node", "load_1min"})
_ORDER: tuple[Weight, ...] = ("forbids", "may matter", "by the way")


def environment_changes(before: Environment, after: Environment) -> tuple[FactChange, ...]:
    """Return the facts of two environments that differ, in the order in which they are recorded."""
    return tuple(_changes("environment", before.facts, after.facts))


def machine_changes(before: Machine, after: Machine) -> tuple[FactChange, ...]:
    """Return the facts of two machines that differ, those first that make them two machines."""
    return _heaviest_first(_changes("machine", before.facts, after.facts))


def surrounding_changes(
    before: tuple[Machine, Environment], after: tuple[Machine, Environment]
) -> tuple[FactChange, ...]:
    """Return all facts that differ, those that forbid to compare times first."""
    return _heaviest_first(
        (*_changes("machine", before[0].facts, after[0].facts), *environment_changes(before[1], after[1]))
    )


def _heaviest_first(changes: Iterator[FactChange] | tuple[FactChange, ...]) -> tuple[FactChange, ...]:
    return tuple(sorted(changes, key=lambda one: _ORDER.index(one.weight)))


def _changes(
    of: Literal["environment", "machine"], before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[FactChange]:
    for fact in dict.fromkeys([*before, *after]):
        if before.get(fact) != after.get(fact):
            yield FactChange(
                of=of, fact=fact, before=before.get(fact), after=after.get(fact), weight=_weight(of, fact)
            )


def _weight(of: Literal["environment", "machine"], fact: str) -> Weight:
    if of == "machine" and fact in _IDENTITY:
        return "forbids"
    return "by the way" if of == "machine" and fact in _PASSING else "may matter"
