"""The one codec between policies of rows and the texts that the ledger's column ``policy`` keeps of them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from perfkit.choices import FailOn, Inconclusive
from perfkit.features.experiments.records import Experiment, Fingerprint, Level
from perfkit.features.tricks.records import CheckedClaim, Equivalence, TrickCase
from perfkit.model import RowPolicy
from perfkit.model.comparisons import Policy, Verdict
from perfkit.model.policies import (
    BisectPolicy,
    CalibrationPolicy,
    Disturbance,
    ExperimentPolicy,
    GatePolicy,
    JudgedPolicy,
    OtherPolicy,
    ProfilePolicy,
    PytestPolicy,
    Rehearsal,
    TrickPolicy,
    TricksRun,
)

# A launch's rows differ in their faults alone, so few policies are many rows'.
_REMEMBERED = 4096


@dataclass(frozen=True)
class _Text:
    """How a value is written and read."""

    write: Callable[[Any], str]
    read: Callable[[str], Any]


def to_entries(policy: RowPolicy) -> dict[str, str]:
    """Return what is kept of a policy; what is not known, or is as where nothing was said, has no entry."""
    if isinstance(policy, OtherPolicy):
        return dict(policy.entries)
    entries = {}
    for path, (entry, text) in _ENTRIES.get(type(policy), {}).items():
        value = _value(policy, path)
        if value is not None and value != _DEFAULTS[type(policy)][path]:
            entries[entry] = text.write(value)
    return entries if not isinstance(policy, ProfilePolicy) else {**_FIRST_STEP, "steps": "all", **entries}


def from_entries(source: str, entries: Mapping[str, str]) -> RowPolicy:
    """Return the policy that was kept of a row; entries that are not its source's are kept as they are."""
    return _from_items(source, tuple(entries.items()))


@functools.lru_cache(maxsize=_REMEMBERED)
def _from_items(source: str, items: tuple[tuple[str, str], ...]) -> RowPolicy:
    if not items:
        return RowPolicy()
    entries = dict(items)
    for kind in _KINDS.get(source, ()):
        # Something may be missing, or say something else than it should.
        with contextlib.suppress(TypeError, ValueError, KeyError, RecursionError, msgspec.ValidationError):
            return _build(kind, entries)
    return OtherPolicy(entries=entries)


def _build(kind: type[RowPolicy], entries: Mapping[str, str]) -> RowPolicy:
    fields: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for path, (entry, text) in _ENTRIES[kind].items():
        if entry in entries:
            part, _, name = path.rpartition(".")
            (parts.setdefault(part, {}) if part else fields)[name] = text.read(entries[entry])
    return kind(**fields, **{part: _PARTS[part](**found) for part, found in parts.items()})


def _default(kind: type[RowPolicy], path: str) -> object:
    part, _, name = path.rpartition(".")
    owner: Any = _PARTS[part] if part else kind
    return next(field.default for field in dataclasses.fields(owner) if field.name == name)


def _value(policy: RowPolicy, path: str) -> object:
    part, _, name = path.rpartition(".")
    whole = getattr(policy, part) if part else policy
    return None if whole is None else operator.attrgetter(name)(whole)


def _read_flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _read_steps(text: str) -> int | None:
    return None if text == "all" else int(text)


def _read_word(words: tuple[str, ...], text: str) -> str:
    if text not in words:
        raise ValueError(text)
    return text


def _write_json(value: object) -> str:
    # Not msgspec's JSON: it writes an infinite difference of two sides as null.
    return json.dumps(msgspec.to_builtins(value), separators=(",", ":"))


@functools.lru_cache(maxsize=_REMEMBERED)
def _read_json(kind: Any, text: str) -> Any:  # noqa: ANN401 (a type, and what it describes)
    return msgspec.convert(json.loads(text), type=kind)


def _json(kind: object) -> _Text:
    return _Text(_write_json, functools.partial(_read_json, kind))


def _one_of(words: object) -> _Text:
    return _Text(str, functools.partial(_read_word, get_args(words)))


_WORD = _Text(str, str)
_WORDS = _Text(",".join, lambda text: tuple(text.split(",")))
_NUMBER = _Text(repr, float)
_WHOLE = _Text(str, int)
_WHOLES = _Text(lambda numbers: ",".join(map(str, numbers)), lambda text: tuple(map(int, text.split(","))))
_NUMBERS = _Text(
    lambda numbers: ",".join(map(repr, numbers)), lambda text: tuple(map(float, text.split(",")))
)
_FLAG = _Text(lambda flag: "true" if flag else "false", _read_flag)

# Attribute of a policy, or of a part of it -> its entry, and how that is written.
_Entries = Mapping[str, tuple[str, _Text]]
_MARKS: _Entries = {"marks": ("marks", _WORDS)}
_JUDGED: _Entries = {
    "rules.alpha": ("alpha", _NUMBER),
    "rules.family": ("family", _WHOLE),
    "rules.looks": ("looks", _WHOLES),
    "rules.shares": ("shares", _NUMBERS),
    "rules.shared_variance": ("shared_variance", _NUMBER),
    "rules.least_sd": ("least_sd", _NUMBER),
    "rules.trimmed_from": ("trimmed_from", _WHOLE),
    "rules.fail_on": ("fail_on", _one_of(FailOn)),
    "rules.noise_floor": ("noise_floor", _NUMBER),
    "rules.inconclusive": ("inconclusive", _one_of(Inconclusive)),
    "rules.same_code": ("same_code", _FLAG),
    "rules.one_sided": ("one_sided", _FLAG),
    "margin": ("margin", _NUMBER),
    "gating": ("gating", _FLAG),
    "verdict": ("verdict", _one_of(Verdict)),
    "wall_s": ("wall_s", _NUMBER),
    "continues": ("continues", _WORDS),
    "faults": ("minor_faults_per_iteration", _NUMBER),
    "cpu_s": ("cpu_s_per_iteration", _NUMBER),
    "collected_s": ("collected_s_per_iteration", _NUMBER),
    **_MARKS,
    "disturbed": ("disturbed", _json(tuple[Disturbance, ...])),
}
_GATE: _Entries = {
    "base": ("base", _WORD),
    "budget_s": ("budget_s", _NUMBER),
    "mode": ("mode", _WORD),
    "as_is": ("as_is", _FLAG),
    **_JUDGED,
}
_ENTRIES: Mapping[type[RowPolicy], _Entries] = {
    RowPolicy: _MARKS,
    JudgedPolicy: _JUDGED,
    GatePolicy: _GATE,
    CalibrationPolicy: {
        "rehearsal.study": ("study", _WORD),
        "rehearsal.case": ("case", _WHOLE),
        "rehearsal.plant": ("plant", _NUMBER),
        "rehearsal.planted": ("planted_benchmark", _WORD),
        **_GATE,
    },
    BisectPolicy: {"good": ("good", _WORD), "bad": ("bad", _WORD), **_JUDGED},
    TrickPolicy: {
        "case": ("case", _json(TrickCase)),
        "equivalence": ("equivalence", _json(Equivalence)),
        "run.arguments": ("arguments", _json(dict[str, Level])),
        "run.left_out": ("left_out", _json(dict[str, str])),
        "run.claims": ("claims", _json(tuple[CheckedClaim, ...])),
        **_JUDGED,
    },
    ExperimentPolicy: {
        "study": ("experiment", _WORD),
        "plan": ("plan", _json(Experiment)),
        "fingerprint": ("fingerprint", _json(Fingerprint)),
        "stopped": ("stopped", _WORD),
        **_MARKS,
    },
    PytestPolicy: {
        "mode": ("mode", _WORD),
        "disable_gc": ("disable_gc", _FLAG),
        "min_rounds": ("min_rounds", _WHOLE),
        "max_time_s": ("max_time", _NUMBER),
        "min_time_s": ("min_time", _NUMBER),
        **_MARKS,
    },
    ProfilePolicy: {"steps": ("steps", _Text(str, _read_steps)), **_MARKS},
}
_FIRST_STEP = {"first_step": "has the set-up in it"}
_PARTS: Mapping[str, type] = {"rules": Policy, "rehearsal": Rehearsal, "run": TricksRun}
# What a row of a source says; where that is not all there, the next one.
_KINDS: Mapping[str, tuple[type[RowPolicy], ...]] = {
    "gate": (GatePolicy, JudgedPolicy),
    "environments": (GatePolicy, JudgedPolicy),
    "calibrate": (CalibrationPolicy, GatePolicy, JudgedPolicy),
    "bisect": (BisectPolicy, JudgedPolicy),
    "tricks": (TrickPolicy, JudgedPolicy),
    "experiment": (ExperimentPolicy,),
    "pytest": (PytestPolicy,),
    "backfill": (PytestPolicy,),
    "profile": (ProfilePolicy,),
    "timed": (RowPolicy,),
}
_DEFAULTS = {kind: {path: _default(kind, path) for path in entries} for kind, entries in _ENTRIES.items()}
