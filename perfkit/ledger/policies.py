"""Policies of rows as the texts that the ledger's column ``policy`` keeps, and back.

A field is an entry of its name. Parts such as ``rules`` have no entry of their own: their fields have.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from perfkit.extensions import features
from perfkit.model import RowPolicy
from perfkit.model.policies import (
    BisectPolicy,
    CalibrationPolicy,
    GatePolicy,
    OtherPolicy,
    ProfilePolicy,
    PytestPolicy,
)

# A launch's rows differ in their faults alone, so few policies are many rows'.
_REMEMBERED = 4096
# The policy of each source's rows; features have their own.
_KINDS: Mapping[str, type[RowPolicy]] = {
    "gate": GatePolicy,
    "environments": GatePolicy,
    "calibrate": CalibrationPolicy,
    "bisect": BisectPolicy,
    "pytest": PytestPolicy,
    "backfill": PytestPolicy,
    "profile": ProfilePolicy,
    "timed": RowPolicy,
}
_PARTS = frozenset({"rules", "rehearsal", "run"})
# Constant entries of a profile's policy; "all" stands for None.
_FIRST_STEP, _ALL_STEPS = {"first_step": "has the set-up in it"}, {"steps": "all"}


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """An entry of a policy: its field, the part that has it, its default, and how it is written and read."""

    name: str
    part: str
    field: str
    default: object
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def to_entries(policy: RowPolicy) -> dict[str, str]:
    """Serialise a policy, omitting unset and default fields."""
    if isinstance(policy, OtherPolicy):
        return dict(policy.entries)
    entries = {}
    kind: Any = type(policy)
    for entry in _entries_of(kind):
        owner = getattr(policy, entry.part) if entry.part else policy
        value = None if owner is None else getattr(owner, entry.field)
        if value is not None and value != entry.default:
            entries[entry.name] = entry.write(value)
    return entries if not isinstance(policy, ProfilePolicy) else {**_FIRST_STEP, **_ALL_STEPS, **entries}


def from_entries(source: str, entries: Mapping[str, str]) -> RowPolicy:
    """Return the policy of a row; entries that are not as those of its source are kept as they are."""
    return _from_items(source, tuple(entries.items()))


@functools.lru_cache(maxsize=_REMEMBERED)
def _from_items(source: str, items: tuple[tuple[str, str], ...]) -> RowPolicy:
    if not items:
        return RowPolicy()
    entries = dict(items)
    for kind in _kinds_of(source):
        # An entry may be missing or malformed.
        with contextlib.suppress(TypeError, ValueError, KeyError, RecursionError, msgspec.ValidationError):
            policy: RowPolicy = _build(kind, entries)
            return policy
    return OtherPolicy(entries=entries)


@functools.cache
def _kinds_of(source: str) -> tuple[type[RowPolicy], ...]:
    kind = _KINDS.get(source) or next(
        (_imported(feature.policies[source]) for feature in features() if source in feature.policies), None
    )
    if kind is None:
        return ()
    return (kind, *(one for one in kind.__mro__[1:] if issubclass(one, RowPolicy) and one is not RowPolicy))


def _imported(place: str) -> type[RowPolicy]:
    module, _, name = place.partition(":")
    kind: type[RowPolicy] = getattr(importlib.import_module(module), name)
    return kind


def _build(kind: Any, entries: Mapping[str, str]) -> Any:  # noqa: ANN401 (likewise)
    owners: dict[str, dict[str, Any]] = {"": {}}
    for entry in _entries_of(kind):
        if entry.name in entries and not (
            kind is ProfilePolicy and {entry.name: entries[entry.name]} == _ALL_STEPS
        ):
            owners.setdefault(entry.part, {})[entry.field] = entry.read(entries[entry.name])
    fields, hints = owners.pop(""), _hints(kind)
    return kind(**fields, **{part: _bare(hints[part])(**found) for part, found in owners.items()})


@functools.cache
def _entries_of(kind: Any) -> tuple[_Entry, ...]:  # noqa: ANN401 (types of dataclasses do not count as hashable)
    return tuple(_each_entry(kind, ""))


def _each_entry(kind: type, part: str) -> Iterator[_Entry]:
    for field in dataclasses.fields(kind):
        hint = _bare(_hints(kind)[field.name])
        if field.name in _PARTS:
            yield from _each_entry(hint, field.name)
            continue
        write, read = _text_form(hint)
        name = field.metadata.get("entry", field.name)
        yield _Entry(name=name, part=part, field=field.name, default=field.default, write=write, read=read)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:  # noqa: ANN401 (likewise)
    return get_type_hints(kind)


def _bare(hint: Any) -> Any:  # noqa: ANN401 (a type hint)
    if get_origin(hint) in (Union, types.UnionType):
        return next(one for one in get_args(hint) if one is not type(None))
    return hint


def _text_form(hint: Any) -> tuple[Callable[[Any], str], Callable[[str], Any]]:  # noqa: ANN401 (a type hint)
    if hint is bool:
        return (lambda flag: "true" if flag else "false"), _read_flag
    if hint in (int, float, str):
        return (str if hint is str else repr), hint
    if get_origin(hint) is Literal:
        return str, functools.partial(_read_word, get_args(hint))
    if get_origin(hint) is tuple and (one := get_args(hint)[0]) in (int, float, str):
        write, _ = _text_form(one)
        return (lambda values: ",".join(map(write, values))), lambda text: tuple(map(one, text.split(",")))
    return _write_json, functools.partial(_read_json, hint)


def _read_flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _read_word(words: tuple[str, ...], text: str) -> str:
    if text not in words:
        raise ValueError(text)
    return text


def _write_json(value: object) -> str:
    # msgspec's own JSON writes an infinite difference of two sides as null.
    return json.dumps(msgspec.to_builtins(value), separators=(",", ":"))


@functools.lru_cache(maxsize=_REMEMBERED)
def _read_json(kind: Any, text: str) -> Any:  # noqa: ANN401 (a type, and what it describes)
    return msgspec.convert(json.loads(text), type=kind)
