"""``perfkit schema``: what JSON commands write, as JSON Schema that is made of the code's records."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import msgspec

from perfkit.errors import UsageError
from perfkit.extensions import Document, features

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# The record that rows of every source have the rules of their measuring in; its subclasses hold them.
_POLICIES, _ANY_POLICY = "perfkit.model.policies", "RowPolicy"
_REFERENCE = "#/$defs/{name}"
_CHOICES = ("anyOf", "enum")


# Another meaning of a field, or one field less, makes another version; see docs/json.md.
DOCUMENTS = (
    Document("gate", 4, "perfkit.model.comparisons:GateReport", "perfkit gate; what perfkit comment reads"),
    Document("check", 1, "perfkit.commands.check:Check", "perfkit check"),
    Document("plan", 4, "perfkit.model.comparisons:GatePlan", "perfkit gate --plan"),
    Document("compare", 4, "perfkit.model.comparisons:ApartReport", "perfkit compare"),
    Document("bisect", 4, "perfkit.model.bisection:BisectionReport", "perfkit bisect"),
    Document("bisect-packages", 1, "perfkit.model.bisection:PackagesReport", "perfkit bisect --base-with"),
    Document("history", 1, "perfkit.model.history:HistoryReport", "perfkit history"),
    Document("state", 1, "perfkit.ledger.annotations:KeptState", "perfkit history accept and ignore"),
    Document("explain", 1, "perfkit.model.profiles:Difference", "perfkit explain"),
    Document(
        "profile", 1, "perfkit.model.profiles:ProfileSummary", "perfkit profile; NAME.json beside a profile"
    ),
    Document("show", 1, "perfkit.model.readings:Reading", "perfkit show", is_list=True),
    Document("surroundings", 1, "perfkit.model.surroundings:SurroundingsReport", "perfkit show env"),
    Document("doctor", 1, "perfkit.model.calibration:Fitness", "perfkit doctor"),
    Document("calibrate", 1, "perfkit.model.calibration:Calibration", "perfkit calibrate"),
    Document("accept", 4, "perfkit.ledger.annotations:KeptAcceptance", "perfkit accept"),
    Document("log", 1, "perfkit.model.history:ChangeLog", "perfkit log"),
    Document("note", 1, "perfkit.ledger.annotations:Note", "perfkit log note"),
    Document("backfill", 1, "perfkit.commands.backfill:BackfillResult", "perfkit backfill of named commits"),
    Document("backfill-range", 1, "perfkit.commands.backfill:RangeResult", "perfkit backfill of ranges"),
    Document("runs", 1, "perfkit.model.results:RunSummary", "perfkit ledger list", is_list=True),
    Document("rows", 4, "perfkit.model.results:Row", "perfkit ledger show", is_list=True),
    Document("verify", 1, "perfkit.model.upkeep:Verification", "perfkit ledger check"),
    Document("compact", 1, "perfkit.model.upkeep:Compaction", "perfkit ledger compact"),
    Document("repair", 1, "perfkit.model.upkeep:Repair", "perfkit ledger check --fix"),
    Document("merge", 1, "perfkit.model.upkeep:Merge", "perfkit ledger merge"),
    *(document for feature in features() for document in feature.documents),
)
_BY_RECORD = {one.record: one for one in DOCUMENTS}


def document_named(name: str) -> Document:
    """Return the document of a name."""
    for one in DOCUMENTS:
        if one.name == name:
            return one
    names = ", ".join(one.name for one in DOCUMENTS)
    raise UsageError(f'no JSON document is called "{name}"; there are {names}')


def encoded(result: object) -> bytes:
    """Return a command's result as JSON, in which each record names its document.

    A record is written with all of its fields; paths are texts, and numbers that are not finite are null. One
    that no document is made of is written as it is: what was measured must not be lost for the sake of that.
    """
    if isinstance(result, (list, tuple)):
        return b"[" + b",".join(map(encoded, result)) + b"]"
    kind = type(result)
    document = _BY_RECORD.get(f"{kind.__module__}:{kind.__qualname__}")
    written = msgspec.json.encode(result, enc_hook=_place)
    if document is None:
        return written
    return msgspec.json.encode({"schema": document.stamp})[:-1] + b"," + written[1:]


def _place(value: object) -> str:
    """Return the text of a path, which JSON has no type for."""
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value).__name__)


def schema_of(document: Document) -> dict[str, Any]:
    """Return the JSON Schema of a document."""
    record = record_named(document.record)
    others = _policies() if record.__name__ == "Row" else []
    (first, *rest), defined = msgspec.json.schema_components(
        [record, *others], schema_hook=_schema_of_place, ref_template=_REFERENCE
    )
    if rest:
        defined[_ANY_POLICY] = {"title": _ANY_POLICY, "anyOf": [*rest, {"type": "object"}]}
    key = first["$ref"].rpartition("/")[2]
    defined[key]["properties"] = {"schema": _stamp_schema(document), **defined[key]["properties"]}
    # A saved profile has its version in a field of its own, as it had before others got one.
    # One that may hold others of its kind does not name its document there.
    if document.name != "profile" and _REFERENCE.format(name=key) not in str(defined):
        defined[key]["required"] = ["schema", *defined[key].get("required", [])]
    whole = {"type": "array", "items": first} if document.is_list else first
    return {
        "$schema": _DIALECT,
        "$id": f"perfkit:{document.name}:{document.version}",
        "title": f"{document.name}, version {document.version}",
        "description": f"Written by {document.written_by}.",
        **whole,
        "$defs": {name: _with_nulls(one) for name, one in sorted(defined.items())},
    }


def record_named(place: str) -> type:
    """Return the class that "module:Class" names."""
    module, _, name = place.partition(":")
    record: type = getattr(importlib.import_module(module), name)
    return record


def _policies() -> list[type]:
    """Return the records of the rules that rows were measured under."""
    policies = importlib.import_module(_POLICIES)
    any_policy = getattr(policies, _ANY_POLICY)
    known = [one for one in vars(policies).values() if isinstance(one, type) and one is not any_policy]
    own = [one for one in known if issubclass(one, any_policy)]
    return own + [record_named(place) for feature in features() for place in feature.policies.values()]


def _schema_of_place(kind: type) -> dict[str, Any]:
    if issubclass(kind, Path):
        return {"type": "string"}
    raise NotImplementedError(kind.__name__)


def _stamp_schema(document: Document) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": document.name}, "version": {"const": document.version}},
        "required": ["name", "version"],
    }


def _with_nulls(schema: Any) -> Any:  # noqa: ANN401 (any JSON)
    """Return a schema whose numbers may be null (JSON has no NaN), its choices in a fixed order."""
    if isinstance(schema, list):
        return [_with_nulls(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: sorted(_with_nulls(value), key=str) if key in _CHOICES else _with_nulls(value)
        for key, value in schema.items()
    }
    return {**found, "type": ["number", "null"]} if found.get("type") == "number" else found
