"""How the environments and machines of two measurements differ, and what that means for comparing them.

Times are compared only where the machine has the same identity and the environment the same facts, as
``perfkit compare`` does. What else is known of a machine may still make them differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from perfkit.records import Environment
from perfkit.records.surroundings import FactChange, Surroundings, Weight

# These identify a machine.
_IDENTITY = frozenset({"cpu", "logical_cpus", "ram_gib", "gpus"})
# These are of the moment, or names.
_PASSING = frozenset({"node", "load_1min"})
_ORDER: tuple[Weight, ...] = ("forbids", "may matter", "means little")


def environment_changes(before: Environment, after: Environment) -> tuple[FactChange, ...]:
    """Return the facts of two environments that differ, in the order in which they are recorded."""
    return tuple(_changes("environment", before.facts, after.facts))


def surrounding_changes(before: Surroundings, after: Surroundings) -> tuple[FactChange, ...]:
    """Return all facts that differ, those first for which times of the two are not compared."""
    found: Iterable[FactChange] = (
        *_changes("machine", before.machine.facts, after.machine.facts),
        *environment_changes(before.environment, after.environment),
    )
    return tuple(sorted(found, key=lambda one: _ORDER.index(one.weight)))


def _changes(
    of: Literal["environment", "machine"], before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[FactChange]:
    for fact in dict.fromkeys([*before, *after]):
        old, new = before.get(fact), after.get(fact)
        if old != new:
            yield FactChange(of=of, fact=fact, before=old, after=new, weight=_weight(of, fact))


def _weight(of: Literal["environment", "machine"], fact: str) -> Weight:
    if of == "environment" or fact in _IDENTITY:
        return "forbids"
    return "means little" if fact in _PASSING else "may matter"
