"""What commands write as JSON is described by schemas, and these change only with their versions.

``python tests/test_json_schemas.py`` writes the stored copies anew, where the changes are allowed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jsonschema
import pytest
import typer.main
from experiment_records import synthetic_record
from synthetic import build_comparison, build_count, build_report

from perfkit.cli.app import app
from perfkit.commands.schemas import DOCUMENTS, document_named, encoded, schema_of
from perfkit.extensions import Document
from perfkit.model.comparisons import Need

ROOT = Path(__file__).parent.parent
STORED = Path(__file__).parent / "schemas"
FOREIGN = Path(__file__).parent / "exchange/files/pyperf.json"
# Words for people, which may become better ones at any time.
_WORDS = ("title", "description")


def _present(document: Document) -> dict[str, Any]:
    """Return what the code reads of a document, without what is written for people."""

    def without_words(found: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in found.items() if key not in _WORDS or not isinstance(value, str)}

    read: dict[str, Any] = json.loads(json.dumps(schema_of(document)), object_hook=without_words)
    return read


def _breaks(old: object, new: object, place: str = "") -> Iterator[str]:
    """Yield where a new schema promises less than the old one: only more optional fields are allowed."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        may_grow = place.endswith(("/properties", "/$defs"))
        for key in old.keys() | new.keys():
            inner = f"{place}/{key}"
            if key not in new or (key not in old and not may_grow):
                yield inner
            elif key in old:
                yield from _breaks(old[key], new[key], inner)
    elif old != new:
        yield place


def _stored(document: Document) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((STORED / f"{document.name}.json").read_text())
    return read


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.name)
def test_a_schema_changes_only_with_its_version(document: Document) -> None:
    stored, present = _stored(document), _present(document)

    if stored["$id"] == present["$id"]:
        assert [] == list(_breaks(stored, present)), f"raise the version of {document.name}"
    assert stored == present, "write the copy anew: python tests/test_json_schemas.py"


def test_a_change_that_breaks_readers_is_found() -> None:
    schema = {"$defs": {"A": {"properties": {"a": {"type": "string"}}, "required": ["a"], "enum": [1]}}}
    more = {"$defs": {"A": {**schema["$defs"]["A"], "properties": {"a": {"type": "string"}, "b": {}}}}}
    other = {"properties": {"a": {"type": "number"}}, "required": [], "enum": [1, 2]}

    assert [] == list(_breaks(schema, more))
    assert ["/$defs/A/properties/b"] == list(_breaks(more, schema))
    assert {"/$defs/A/properties/a/type", "/$defs/A/required", "/$defs/A/enum"} == set(
        _breaks(schema, {"$defs": {"A": other}})
    )


def test_every_schema_is_one() -> None:
    for document in DOCUMENTS:
        jsonschema.Draft202012Validator.check_schema(schema_of(document))

    assert len(DOCUMENTS) == len({one.name for one in DOCUMENTS}) == len({one.record for one in DOCUMENTS})
    assert {f"{one.name}.json" for one in DOCUMENTS} == {file.name for file in STORED.iterdir()}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return some of perfkit's own measurements, and its settings, in a repository of their own."""
    from repositories import create_repository

    root = tmp_path_factory.mktemp("schemas")
    (root / "benchmarks/ledger").mkdir(parents=True)
    for kind in ("*-pytest-*", "*47d0c85f.parquet", "*5f26b8cf.parquet"):
        for file in (ROOT / "benchmarks/ledger").glob(kind):
            shutil.copy(file, root / "benchmarks/ledger")
    shutil.copy(ROOT / "pyproject.toml", root)
    shutil.copytree(ROOT / "profiles", root / "profiles")
    create_repository(root).git.commit("--quiet", "--allow-empty", "-m", "Begin")
    return root


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("gate", ("ledger", "judge", "47d0c85f")),
        ("history", ("history",)),
        ("explain", ("explain", "profiles/naive_form.stat", "profiles/tensor_losses.stat")),
        ("show", ("show", "profiles/naive_form.stat", "profiles/naive_form.json")),
        ("surroundings", ("show", "env", "5f26b8cf", "47d0c85f")),
        ("log", ("log",)),
        ("note", ("log", "note", "HEAD", "In other words")),
        ("init", ("init", "--dry-run")),
        ("runs", ("ledger", "list")),
        ("rows", ("ledger", "show", "5f26b8cf")),
        ("verify", ("ledger", "check")),
        ("compact", ("ledger", "compact", "--dry-run")),
        ("repair", ("ledger", "check", "--fix", "--dry-run")),
        ("merge", ("ledger", "merge", "benchmarks/ledger", "--ledger", "other")),
        ("import", ("ledger", "import", str(FOREIGN), "--commit", "HEAD")),
        ("report", ("report", "--trends", "pictures", "--benchmark", "test_decode")),
    ],
)
def test_real_outputs_are_as_described(
    project: Path, name: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(project)
    (project / "other").mkdir(exist_ok=True)
    file = tmp_path / "written.json"

    with contextlib.suppress(SystemExit, Exception):
        typer.main.get_command(app).main([*arguments, "--quiet", "--json", str(file)], standalone_mode=False)

    _check(name, file.read_bytes())


def test_synthetic_results_are_as_described() -> None:
    near = build_comparison("test_near", "INCONCLUSIVE", 1.01, 0.99, float("inf"), need=Need(launches=12))
    gate = replace(
        build_report(near), exact=(build_count("test_a", "syncs", 1.0, 2.0),), past={"a": (1.0, 2.0)}
    )
    record = synthetic_record({"precision": ["default", "bf16"]}, done=2)

    _check("gate", encoded(replace(gate, against=gate)))
    _check("experiment", encoded(record))


@pytest.mark.parametrize(
    ("module", "function", "field"),
    [
        ("commands.accept", "accept_finding", "acceptance"),
        ("commands.gate", "plan_gates", None),
        ("commands.backfill", "run_backfill", None),
        ("commands.backfill", "run_range_backfill", None),
        ("commands.bisect", "run_bisect", None),
        ("commands.calibrate", "run_calibrate", None),
        ("commands.compare", "run_compare", None),
        ("commands.calibrate", "run_doctor", None),
        ("features.cluster.engines", "check_engine", None),
        ("features.experiments.command", "run_experiment", "record"),
        ("commands.gate", "run_gate", None),
        ("commands.history", "state_point", "state"),
        ("commands.profile", "run_profile", None),
        ("features.tricks.command", "run_tricks", None),
    ],
)
def test_what_takes_long_returns_a_document(module: str, function: str, field: str | None) -> None:
    job = getattr(importlib.import_module(f"perfkit.{module}"), function)
    kind = get_type_hints(job)["return"]
    kind = get_type_hints(kind)[field] if field else kind
    kind = next(iter(get_args(kind)), kind)

    assert f"{kind.__module__}:{kind.__qualname__}" in {one.record for one in DOCUMENTS}


def test_a_saved_profile_is_as_described() -> None:
    document = document_named("profile")
    for file in sorted((ROOT / "profiles").glob("*.json")):
        saved = json.loads(file.read_bytes())
        jsonschema.validate(saved, schema_of(document))
        assert document.version == saved["schema_version"]


def test_what_is_not_as_described_is_refused() -> None:
    good = json.loads(encoded(build_report()))
    schema = schema_of(document_named("gate"))
    for bad in (
        {**good, "schema": {"name": "gate", "version": 99}},
        {**good, "exit_code": "1"},
        {key: value for key, value in good.items() if key != "comparisons"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)


def _check(name: str, written: bytes) -> None:
    document = document_named(name)
    result = json.loads(written)
    assert result, name
    jsonschema.validate(result, schema_of(document))
    first = result[0] if document.is_list else result
    assert {"name": name, "version": document.version} == first["schema"]


def _laid_out(schema: dict[str, Any]) -> str:
    """Return a schema with a line for each record, so that a change of one is a change of a line."""
    records = schema.pop("$defs")
    lines = [f"  {json.dumps(name)}: {json.dumps(records[name], sort_keys=True)}" for name in sorted(records)]
    head = json.dumps(schema, sort_keys=True)[:-1]
    return head + ', "$defs": {\n' + ",\n".join(lines) + "\n}}\n"


def _write_copies() -> int:
    """Write the stored copies anew, except where a version would promise less than it did."""
    for document in DOCUMENTS:
        file, present = STORED / f"{document.name}.json", _present(document)
        stored = json.loads(file.read_text()) if file.exists() else present
        broken = list(_breaks(stored, present)) if stored["$id"] == present["$id"] else []
        if broken:
            sys.stderr.write(f"{document.name}: raise its version, since {', '.join(broken)} changed\n")
            return 1
        file.write_text(_laid_out(present))
    return 0


if __name__ == "__main__":
    sys.exit(_write_copies())
