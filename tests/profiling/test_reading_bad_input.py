"""A file that is damaged, or no profile, is named in one line."""

from __future__ import annotations

import gzip
import io
import json
import marshal
import math
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
from foreign_profiles import ADAM, MAIN, SHARED_DATA, event, pstats_bytes, reading_of, row, trace_bytes

from perfkit.errors import UsageError
from perfkit.profiling.read import formats
from perfkit.profiling.read.formats import read_profile
from perfkit.profiling.read.names import CodeNames

PSTATS = pstats_bytes({MAIN: row(), ADAM: row(3, callers={MAIN: (3, 3, 0.5, 0.5)})})
TRACE = trace_bytes(event("aten::linear", 5, 20), event("aten::addmm", 7, 9))
SAVED = Path(__file__).resolve().parents[2] / "profiles" / "first_profile.json"
DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
# A size that no memory holds, as marshal writes it.
GIGANTIC = b"\xff\xff\xff\x7f"


def message(data: bytes) -> str:
    """Return why the bytes are refused, which is one line."""
    with pytest.raises(UsageError) as caught:
        reading_of(data)
    output = str(caught.value)
    assert "x.prof" in output
    assert "\n" not in output
    return output


def file_message(tmp_path: Path, data: bytes) -> str:
    """Return why a file is refused by the process that reads it."""
    file = tmp_path / "x.prof"
    file.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        read_profile(file, CodeNames())
    output = str(caught.value)
    assert "x.prof" in output
    assert "\n" not in output
    return output


def packed() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("data.pkl", b"x")
    return stream.getvalue()


@pytest.mark.parametrize("data", [PSTATS, TRACE, gzip.compress(TRACE)], ids=["pstats", "trace", "gzip"])
def test_a_file_cut_anywhere_is_refused(data: bytes) -> None:
    for size in range(len(data)):
        assert message(data[:size])


def test_a_damaged_gzip_is_reported() -> None:
    data = bytearray(gzip.compress(TRACE))
    data[-6] ^= 0xFF
    assert "damaged gzip" in message(bytes(data))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "is empty"),
        (b"ncalls tottime\n", "is no profile that perfkit knows"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), "is no profile that perfkit knows"),
        (b'{"a": 1}', "is JSON, but no profile"),
        (b"{}", "is JSON, but no profile"),
        (b"[1, 2]", "is JSON, but no profile"),
        (b'[build-system]\nrequires = ["hatchling"]\n', "is no profile that perfkit knows"),
        (b'[[tool.targets]]\nname = "a"\n', "is no profile that perfkit knows"),
        (b"[tool.perfkit]\n", "is no profile that perfkit knows"),
        (b"{% raw %}", "is no profile that perfkit knows"),
        (b" [\n true]", "is JSON, but no profile"),
        (b"{\0", "is damaged or cut short"),
        (b'{"machine_info": {}, "benchmarks": []}', "pytest-benchmark's"),
        (b'{"traceEvents": 5}', "no trace of torch.profiler"),
        (b'{"traceEvents": []}', "without a single timed event"),
        (b'{"traceEvents": [{"ph": "X", "ts": []}]}', "no trace of torch.profiler"),
        (b'{"traceEvents": [{"ph": 5, "q": nan}]}', "no trace of torch.profiler"),
        (pickle.dumps({"a": 1}), "is a pickle"),
        (packed(), "is a pickle"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_profile_is_distinguished(data: bytes, expected: str) -> None:
    assert expected in message(data)


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="needs the shared data")
def test_a_real_file_of_pytest_benchmark_is_known() -> None:
    output = message((SHARED_DATA / "pytest_benchmark_0001_baseline.json").read_bytes())
    assert "pytest-benchmark's" in output


def test_a_pickle_is_refused_unopened(tmp_path: Path) -> None:
    trap = tmp_path / "sprung"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(trap),)

    assert "is a pickle" in file_message(tmp_path, pickle.dumps(Trap()))
    assert not trap.exists()


@pytest.mark.parametrize(
    "table",
    [
        {MAIN: row()[:4]},
        {MAIN: (*row(), 1)},
        {MAIN: list(row())},
        {MAIN: ("1", 1, 0.5, 0.5, {})},
        {MAIN: (1, 1, math.nan, 0.5, {})},
        {MAIN: (1, 1, math.inf, 0.5, {})},
        {MAIN: (1, 1, 0.5, 10**400, {})},
        {MAIN: (10**400, 1, 0.5, 0.5, {})},
        {MAIN: (1, 1, 0.5, 0.5, [])},
        {MAIN: (True, 1, 0.5, 0.5, {})},
        {MAIN: (1, 1, 0.5, 0.5, {("a.py", 1): 1})},
        {MAIN: row(callers={MAIN: (1, 1, 0.5)})},
        {MAIN: row(callers={MAIN: (1, 1, math.nan, 0.5)})},
        {MAIN: row(callers={MAIN: "1"})},
        {MAIN: row(callers={MAIN: 10**400})},
        {("a.py", 1): row()},
        {("a.py", "1", "f"): row()},
        {("a.py", 10**30, "f"): row()},
        {("a" * 20_000, 1, "f"): row()},
        {(b"a.py", 1, "f"): row()},
        {((), 1, "f"): row()},
        {((((),),),): row()},
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_table_that_cprofile_does_not_write_is_refused(table: object) -> None:
    assert "is no cProfile" in message(pstats_bytes(table))


@pytest.mark.parametrize("data", [[1, 2], "text", 5, (1, 2), None, [[[[]]]]], ids=repr)
def test_other_data_of_marshal_is_no_profile(data: Any) -> None:  # noqa: ANN401 (anything that marshal takes)
    assert "is no profile" in message(marshal.dumps(data))


@pytest.mark.parametrize("letter", [b"(", b"[", b"u", b"s", b"<", b"l"], ids=repr)
def test_a_gigantic_size_is_refused(tmp_path: Path, letter: bytes) -> None:
    assert file_message(tmp_path, b"{(" + b"\x03\x00\x00\x00" + letter + GIGANTIC)


def test_a_reader_that_breaks_down_is_one_line(tmp_path: Path) -> None:
    itself = b"\xa9\x01r\x00\x00\x00\x00"
    assert file_message(tmp_path, b"{" + itself + b"N0")


def test_marshal_nested_without_end_is_refused(tmp_path: Path) -> None:
    assert file_message(tmp_path, b"{(\x01\x00\x00\x00" + b"(\x01\x00\x00\x00" * 100_000)


def test_a_gzip_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "LARGEST_BYTES", 1_000_000)
    part = gzip.compress(b"{" + bytes(700_000))
    assert "unpacks to more than 1 MB" in message(gzip.compress(bytes(50_000_000)))
    assert "unpacks to more than 1 MB" in message(part + part)
    assert "is damaged or cut short" in message(part)


@pytest.mark.parametrize(
    "data",
    [
        DEEP,
        b"[" * 100_000,
        b'{"traceEvents": [{"ph": "X", "args": ' + DEEP + b"}]}",
        b'{"traceEvents": ' + b"[" * 100_000,
        b'{"passes": ' + DEEP + b"}",
    ],
    ids=["object", "list", "arguments", "events", "summary"],
)
def test_json_nested_without_end_is_refused(data: bytes) -> None:
    assert message(data)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_damaged_summary_is_refused(share: float) -> None:
    data = SAVED.read_bytes()
    assert "is damaged or" in message(data[: int(share * len(data))])


@pytest.mark.parametrize(
    "change", [{"passes": []}, {"passes": 5}, {"entries": [{}]}, {"recorded_at": "yesterday"}], ids=repr
)
def test_a_summary_with_other_content_is_refused(change: dict[str, object]) -> None:
    assert "saved profile" in message(json.dumps(json.loads(SAVED.read_bytes()) | change).encode())


def test_numbers_beyond_any_in_a_summary_are_refused() -> None:
    found = json.loads(SAVED.read_bytes())
    found["entries"][0]["calls"] = 10**30
    assert message(json.dumps(found).encode())


def test_a_missing_file_and_a_folder_are_reported(tmp_path: Path) -> None:
    for file in (tmp_path / "none.prof", tmp_path, tmp_path / ("a" * 300)):
        with pytest.raises(UsageError, match="there is no file"):
            read_profile(file, CodeNames())


def test_any_name_of_a_file_will_do(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"a\xff\x1b.prof")
    try:
        file.write_bytes(PSTATS)
    except OSError:
        pytest.skip("this file system keeps names that are text alone")
    assert "a\ufffd\ufffd.prof" == read_profile(file, CodeNames()).name
