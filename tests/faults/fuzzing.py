"""Any bytes that a reader gets, it answers or refuses in a line: a target for each, and what feeds them.

A target takes bytes from a fuzzer and builds an input from them: the bytes themselves, or a real file of the
format in which they change some values. It may raise nothing but ``PerfkitError``.
"""

from __future__ import annotations

import copy
import functools
import io
import json
import marshal
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from synthetic import START, build_row

from perfkit.config import load_project, parse_percent
from perfkit.errors import PerfkitError
from perfkit.features.exchange import asv, pytest_benchmark
from perfkit.features.exchange.command import csv_text, json_text
from perfkit.features.exchange.formats import FORMATS, format_of, read
from perfkit.features.exchange.records import commit_of, decode, metric_of, moment, rows_of, run_id_of
from perfkit.features.experiments.definition import read_experiment
from perfkit.features.experiments.records import Experiment, ExperimentPolicy
from perfkit.features.tricks.trick import Equivalence, TrickCase, TrickPolicy
from perfkit.ledger.annotations import ACCEPTANCES, NOTES, Annotations, acceptances_for, read_notes
from perfkit.ledger.files import begin_hidden_folder, write_table
from perfkit.ledger.recording import header_line, recover, rows_line
from perfkit.ledger.schema import SCHEMA, from_entries, from_table, to_entries, to_record, to_table, upgraded
from perfkit.ledger.soundness import verify
from perfkit.ledger.store import Ledger
from perfkit.model import Commit, Row
from perfkit.model.comparisons import Policy
from perfkit.model.policies import GatePolicy
from perfkit.model.results import meant_by
from perfkit.profiling.read.formats import read_bytes
from perfkit.profiling.read.names import CodeNames
from perfkit.repo.trailers import read_acceptance
from perfkit.report.console import visible, visible_json
from perfkit.report.markdown_table import cell_code, code, escape
from perfkit.report.names import broken, fitted, short_names
from perfkit.report.profiles import reading_text, reading_view

TESTS = Path(__file__).parents[1]
CORPUS = Path(__file__).with_name("corpus")
# What has gone wrong somewhere: edges of numbers, types, texts and calendars.
_NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 0.0, -0.0, 1e-300, 1e308, math.inf,
    -math.inf, math.nan, "", " ", "0", "x" * 300, "\0", "\ud800", "\x1b[2J", "../../x", "/x", "--output=x",
    "a" * 40, "0" * 40, "1e999", "NaN", "٣", "{}", "[1]", "null", "9999-12-31T23:59:59+00:00", "-1", [], {},
    [[]], [None], [1.0, "x"], [math.nan], {"": ""}, {"x": None}, [[[[[[]]]]]], "s", "ns/iter", "all", "true",
)  # fmt: skip
_STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SHA = "ab" * 20
_Item = TypeVar("_Item")


class Feed:
    """Choices that bytes make; where they are over, the first of everything is chosen."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def byte(self) -> int:
        """Return the next byte."""
        self._place += 1
        return self._data[self._place - 1] if self._place <= len(self._data) else 0

    def one_of(self, items: Sequence[_Item]) -> _Item:
        """Return an item."""
        return items[(self.byte() << 8 | self.byte() if len(items) > 256 else self.byte()) % len(items)]

    def rest(self) -> bytes:
        """Return all bytes that are left."""
        found, self._place = self._data[self._place :], len(self._data)
        return found

    def text(self) -> str:
        """Return a short text, of any letters."""
        length = self.byte() % 24
        taken = bytes(self.byte() for _ in range(length))
        return taken.decode("utf-8", "surrogateescape") if self.byte() % 2 else taken.decode("latin-1")

    def value(self) -> Any:  # noqa: ANN401 (any JSON)
        """Return something that may stand where something else should."""
        kind = self.byte() % 8
        if kind == 0:
            return self.text()
        if kind == 1:
            return (self.byte() - 128) * 10.0 ** (self.byte() - 128)
        if kind == 2:
            return [self.value() for _ in range(self.byte() % 3)]
        return copy.deepcopy(self.one_of(_NASTY))

    def changed(self, value: Any) -> Any:  # noqa: ANN401 (any JSON)
        """Return a value in which a few members are others, gone, or there twice."""
        other = copy.deepcopy(value)
        for _ in range(1 + self.byte() % 4):
            self._change(other)
        return other

    def _change(self, place: Any) -> None:  # noqa: ANN401 (any JSON)
        for _ in range(12):
            keys = list(place) if isinstance(place, dict) else range(len(place))
            if not keys:
                return
            key = self.one_of(keys)
            inner = place[key]
            if isinstance(inner, (dict, list)) and inner and self.byte() % 8:
                place = inner
                continue
            how = self.byte() % 8
            if how == 0:
                del place[key]
            elif how == 1 and isinstance(place, list):
                place.append(inner)
            elif how == 1:
                place[self.text()] = inner
            else:
                place[key] = self.value()
            return


@functools.cache
def _documents() -> Sequence[Any]:
    """Return a real file of each format, decoded."""
    files = TESTS / "exchange" / "files"
    found = [decode(file.read_bytes()) for file in sorted(files.rglob("*.js*"))]
    series = {"name": "sort", "unit": "ms", "values": [1.2, [1.3, 1.4]], "commit": _SHA, "date": "2026-01-02"}
    return [one for one in found if isinstance(one, dict) and len(json.dumps(one)) < 8_000] + [series]


def _is_text(text: str) -> bool:
    return not re.search("[\ud800-\udfff]", text)


def _json(value: object) -> bytes:
    """Return JSON with any numbers and letters."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def imports(data: bytes) -> None:
    """A file of another tool, through to the ledger's table and out of it in every format."""
    feed = Feed(data)
    how, forced = feed.byte() % 4, feed.one_of((None, *FORMATS))
    given = feed.rest() if how == 0 else _json(feed.changed(feed.one_of(_documents())))
    value = decode(given)
    context = asv.context_of(feed.value(), feed.value())
    for run in read(value, forced or format_of(value), context):
        sha = run.commit.sha if run.commit else _SHA
        at = run.recorded_at or START
        rows = rows_of(run, Commit(sha=sha), run_id=run_id_of(run, sha, at), recorded_at=at)
        kept = from_table(to_table(rows))
        if all(math.isfinite(value) for row in kept for value in row.outcome.values):
            _export(kept)


def _export(rows: Sequence[Row]) -> None:
    for written in (asv.write(rows), pytest_benchmark.write(rows)):
        for name, text in written.files.items():
            if not {"", ".", ".."}.isdisjoint(name.split("/")) or len(os.fsencode(name)) > 400:
                raise AssertionError(name)
            json.loads(text)
    records = list(map(to_record, rows))
    csv_text(records, SCHEMA.names)
    json.loads(visible_json(json_text(records)))


_TRACE = {
    "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1,
         "ts": 100.0 * step, "dur": 90.0} for step in range(3)
    ] + [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 100.0 * step + 5 + at, "dur": 9}
        for step in range(3)
        for at, name in enumerate(("aten::mm", "enumerate(DataLoader)#x.__next__", "Optimizer.step#SGD.step"))
    ] + [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 30, "dur": 5}],
    "distributedInfo": {"rank": 0, "world_size": 2},
}  # fmt: skip


@functools.cache
def _summary() -> Any:  # noqa: ANN401 (JSON)
    whole = json.loads((TESTS.parent / "profiles" / "first_profile.json").read_bytes())
    return {name: one[:3] if isinstance(one, list) else one for name, one in whole.items()}


def profiles(data: bytes) -> None:
    """A profile of any kind, and its views: neither steers a terminal."""
    feed = Feed(data)
    how = feed.byte() % 5
    given = (
        feed.rest()
        if how == 0
        else _json(feed.changed(_TRACE))
        if how == 1
        else _json(feed.changed(_summary()))
        if how == 2
        else _table_of_functions(feed, times=how)
    )
    own = feed.one_of(((), ("a",), ("",)))
    try:
        reading = read_bytes(given, "given.prof", CodeNames(own=own, present=frozenset({"a.py"})))
    except MemoryError:
        # The process that reads profiles has a limit of memory, and ends with a line.
        return
    for text in (reading_text(reading), _printed(reading_view(reading))):
        if _STEERS.search(text):
            raise AssertionError(text)


def _table_of_functions(feed: Feed, *, times: int) -> bytes:
    keys = [
        (feed.one_of(("a.py", "~", "/x/site-packages/b.py", feed.text())), feed.byte(), feed.text())
        for _ in range(feed.byte() % 6)
    ]
    amounts: list[Any] = [1, 2, 0.5, 1.5, *(feed.value() for _ in range(times))]
    table: dict[Any, Any] = {}
    for key in keys:
        callers = {feed.one_of(keys): tuple(feed.one_of(amounts) for _ in range(4)) for _ in range(times)}
        table[key] = (*(feed.one_of(amounts) for _ in range(4)), feed.one_of((callers, {}, amounts)))
    try:
        return marshal.dumps(table)
    except ValueError:
        return b""


def _printed(view: object) -> str:
    from perfkit.report.console import console_on

    stream = io.StringIO()
    console_on(stream).print(view)
    return stream.getvalue()


_MAPS: tuple[Any, ...] = (
    None,
    [],
    [("", "")],
    [("x", None)],
    [("a", "b"), ("a", "c")],
    [("causes", "[[1]]")],
)


def cells(data: bytes) -> None:
    """A ledger's table in which cells are missing or at the edge of their types."""
    feed = Feed(data)
    table = _some_rows()
    for _ in range(1 + feed.byte() % 5):
        field = feed.one_of(list(SCHEMA))
        if field.name not in table.column_names:
            continue
        place = table.column_names.index(field.name)
        if feed.byte() % 8 == 0:
            table = table.drop_columns([field.name])
            continue
        values = table[field.name].to_pylist()
        # Arrow ends the process where a map that it is to make has no key.
        odd = feed.one_of(_MAPS) if pa.types.is_map(field.type) else feed.value()
        values[feed.byte() % len(values)] = odd
        try:
            column = pa.array(values, feed.one_of((field.type, field.type, field.type, pa.string())))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            column = pa.nulls(len(values), field.type)
        table = table.set_column(place, field.name, column)
    try:
        rows = from_table(upgraded(table, Path("given.parquet")))
    except pa.ArrowException:
        # Opening a file adds its name to these.
        return
    to_table(rows)
    for row in rows:
        to_record(row)
    _export([row for row in rows if all(map(math.isfinite, row.outcome.values))])


@functools.cache
def _some_rows() -> pa.Table:
    return to_table([build_row(0.1, 0.2), build_row(status="error", message="no"), build_row(1.0, launch=1)])


@functools.cache
def _folder() -> Path:
    """Return a folder in memory where the system has such, which lasts as long as the process."""
    memory = Path("/dev/shm")  # noqa: S108 (a folder of its own is made in it)
    made = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None, prefix="perfkit-fuzz-")
    _OPEN.append(made)
    return Path(made.name)


_OPEN: list[tempfile.TemporaryDirectory[str]] = []


def _emptied(name: str) -> Path:
    folder = _folder() / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def ledgers(data: bytes) -> None:
    """A file of a ledger with bytes that are others, or rows that are none, asked and verified."""
    feed = Feed(data)
    folder = _emptied("ledger")
    file = folder / "20260102T030405Z-pytest-run-1.parquet"
    write_table(_some_rows(), file)
    content = bytearray(file.read_bytes())
    for _ in range(feed.byte() % 6):
        place = (feed.byte() << 8 | feed.byte()) % len(content)
        content[-place if feed.byte() % 2 else place] = feed.byte()
    given = bytes(content) if feed.byte() % 8 else feed.rest()
    file.write_bytes(given)
    verify(folder)
    ledger = Ledger(folder)
    ledger.runs()
    ledger.rows()


def staged(data: bytes) -> None:
    """What a run that was cut off has staged: lines that are none, with checksums that are right."""
    feed = Feed(data)
    folder = _emptied("staged")
    row = build_row(1.0, run="0199ffff-0000-7000-8000-00000000beef")
    header = header_line(source="pytest", run_id=row.run_id, recorded_at=row.recorded_at)
    line = rows_line([row])
    how = feed.byte() % 4
    text = feed.rest() if how == 0 else json.dumps(feed.changed(json.loads(line.partition(b" ")[2]))).encode()
    begin_hidden_folder(folder / ".staged")
    file = folder / ".staged" / "20260102T030405Z-pytest-00000000beef.jsonl"
    summed = sha256(text).hexdigest()[:16].encode() + b" " + text + b"\n"
    first = header if feed.byte() % 4 else _json(feed.changed(json.loads(header))) + b"\n"
    file.write_bytes(first + summed + line)
    for found in recover(folder):
        visible(found.text)
    Ledger(folder).rows()


_TOML = (
    (TESTS.parent / "pyproject.toml").read_text().partition("[tool.perfkit]")[2].partition("\n[tool.ruff")[0]
)
_LINES = tuple(f"[tool.perfkit]{_TOML}".splitlines())
_EXPERIMENT = """target = "train"
blocks = 6
alpha = 0.05
[factors]
batch = [16, 32]
[fixed]
epochs = 1
[returned]
loss = "loss"
""".splitlines()


def configurations(data: bytes) -> None:
    """A ``pyproject.toml``."""
    feed = Feed(data)
    folder = _emptied("project")
    (folder / "pyproject.toml").write_bytes(_toml(feed, _LINES))
    load_project(folder).output_paths  # noqa: B018 (a property that computes)


def experiments(data: bytes) -> None:
    """The file that defines an experiment."""
    feed = Feed(data)
    file = _emptied("experiment") / "given.toml"
    file.write_bytes(_toml(feed, _EXPERIMENT))
    read_experiment(file)


def _toml(feed: Feed, lines: Sequence[str]) -> bytes:
    if feed.byte() % 4 == 0:
        return b"[tool.perfkit]\n" + feed.rest()
    output = list(lines)
    for _ in range(1 + feed.byte() % 3):
        place = feed.byte() % len(output)
        key = output[place].partition("=")[0]
        value = feed.one_of(
            ("-1", "1e999", "nan", "inf", '""', '"-1%"', '"1e9%"', "[]", "{}", "true", "1979-05-27", "[1]",
             '["x"]', "0", "9" * 30, "{x = 1}", json.dumps(feed.text()), "'''\n'''", "[" * 3_000)
        )  # fmt: skip
        output[place] = f"{key}= {value}"
    return "\n".join(output).encode("utf-8", "surrogatepass")


_STATEMENTS: dict[Annotations[Any], dict[str, Any]] = {
    NOTES: {"commit": _SHA, "text": "x", "recorded_at": "2026-01-02T03:04:05Z"},
    ACCEPTANCES: {
        "benchmark": "a", "reason": "b", "commit": _SHA, "author": "c", "verdict": "REGRESSED",
        "counts": {"time": 1.0}, "run_id": "run-1", "recorded_at": "2026-01-02T03:04:05Z", "diff_hash": None,
    },
}  # fmt: skip


def statements(data: bytes) -> None:
    """A note and an acceptance, beside those that are as they should be."""
    feed = Feed(data)
    folder = _emptied("statements")
    for kind, output in _STATEMENTS.items():
        (folder / kind.folder).mkdir()
        (folder / kind.folder / "first.json").write_bytes(_json(output))
        given = feed.rest() if feed.byte() % 8 == 0 else _json(feed.changed(output))
        (folder / kind.folder / "given.json").write_bytes(given)
    read_notes(folder)
    acceptances_for(folder, [_SHA], None)


def words(data: bytes) -> None:
    """Trailers, percentages, hashes, times, units, names of benchmarks and entries of policies."""
    feed = Feed(data)
    kind = feed.byte() % 7
    text = feed.rest().decode("utf-8", "surrogateescape")
    if kind == 0:
        read_acceptance(_SHA, "A Tester", text)
    elif kind == 1:
        parse_percent(text, key="margin")
    elif kind == 2:
        commit_of(text), moment(text), metric_of(text)
    elif kind == 3:
        meant_by(text, {"a.py::test[x]", text})
    else:
        source = ("gate", "experiment", "tricks")[kind - 4]
        _policy(source, text)


def _policy(source: str, text: str) -> None:
    given = [line.partition("=") for line in text.split("\n")]
    entries = {**to_entries(_POLICIES[source]), **{name: value for name, _, value in given if name}}
    policy = from_entries(source, entries)
    if from_entries(source, to_entries(policy)) != policy and "nan" not in text.lower():
        raise AssertionError(policy)


_JUDGED: dict[str, Any] = {
    "rules": Policy(alpha=0.01, family=1, looks=(3,)), "margin": 0.02, "gating": True, "verdict": "UNCHANGED"
}  # fmt: skip
_POLICIES = {
    "gate": GatePolicy(**_JUDGED, base="a" * 40, budget_s=60.0, mode="forked", as_is=False),
    "experiment": ExperimentPolicy(study="study", plan=Experiment(name="name", target="train", factors=())),
    "tricks": TrickPolicy(
        **_JUDGED,
        case=TrickCase(trick="no_grad", size=8, title="No grad"),
        equivalence=Equivalence(equal=True),
    ),
}


def texts(data: bytes) -> None:
    """Texts in markdown, names in a table, JSON: what comes out steers nothing and breaks no cell."""
    feed = Feed(data)
    columns = 1 + feed.byte() % 60
    text = feed.rest().decode("utf-8", "surrogateescape")
    for shown in (escape(text), code(text), cell_code(text), visible(text)):
        if _STEERS.search(shown) or "\n" in shown:
            raise AssertionError(shown)
    for shown in (escape(text), cell_code(text)):
        if re.search(r"(?<!\\)(?:\\\\)*\|", shown):
            raise AssertionError(shown)
    list(broken(text, columns))
    fitted(text, columns)
    short_names([text, f"a/{text}"])
    if _is_text(text) and json.loads(visible_json(json.dumps(text, ensure_ascii=False))) != text:
        raise AssertionError(text)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "imports": imports,
    "profiles": profiles,
    "cells": cells,
    "ledgers": ledgers,
    "staged": staged,
    "configurations": configurations,
    "experiments": experiments,
    "statements": statements,
    "words": words,
    "texts": texts,
}
# Their inputs take a tenth of a second each.
SLOW_TARGETS = frozenset({"ledgers", "staged"})


def try_once(target: str, data: bytes) -> None:
    """Give a target an input.

    Raises:
        Exception: it raised another exception than ``PerfkitError``, or one whose message is no single line.
    """
    try:
        TARGETS[target](data)
    except PerfkitError as error:
        if not str(error).strip():
            raise AssertionError("a refusal without a word") from error
