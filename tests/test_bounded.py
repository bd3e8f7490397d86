"""No file that a person names takes all memory, or keeps a command waiting: one line, and exit code 2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from forked_commands import run_perfkit
from synthetic import build_row

from perfkit.bounded import read_bytes, read_text
from perfkit.ledger.store import Ledger

TERABYTE = 1 << 40
# A command that reads a file, and what that file is called.
READERS = {
    "comment": ("result.json", ("comment", "--github-summary", "--from")),
    "import": ("results.json", ("ledger", "import")),
    "experiment": ("experiment.toml", ("experiment", "run")),
    "show": ("train.stat", ("show",)),
    "show of a trace": ("trace.json.gz", ("show",)),
    "explain": ("train.stat", ("explain", "train.stat")),
    "view": ("train.stat", ("view",)),
    "profile": ("train.py", ("profile",)),
    "log": ("log.md", ("log", "--ledger", "ledger", "--out")),
}


@pytest.mark.parametrize(
    ("reader", "kind"),
    [
        *((reader, "pipe") for reader in READERS),
        ("show", "sparse"),
        ("experiment", "sparse"),
        ("log", "device"),
    ],
)
def test_a_reader_refuses(tmp_path: Path, reader: str, kind: str) -> None:
    name, command = READERS[reader]
    Ledger(tmp_path / "ledger").append([build_row(0.1, 0.2)])
    place = tmp_path / name
    if kind == "sparse":
        place.touch()
        os.truncate(place, TERABYTE)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero")
    summary = str(tmp_path / "summary.md")

    done = run_perfkit(*command, name, cwd=tmp_path, env={**os.environ, "GITHUB_STEP_SUMMARY": summary})

    assert 2 == done.returncode, done.stderr
    *_, line = done.stderr.splitlines()
    assert line.startswith("perfkit: ")
    assert name in line


def test_a_configuration_may_not_be_huge(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    os.truncate(tmp_path / "pyproject.toml", TERABYTE)

    for command in (("ledger", "list"), ("init", "--dry-run")):
        done = run_perfkit(*command, cwd=tmp_path)

        assert 2 == done.returncode, done.stdout
        (line,) = done.stderr.splitlines()
        assert "pyproject.toml" in line


def test_a_ledger_may_hold_anything(tmp_path: Path) -> None:
    Ledger(tmp_path).append([build_row(0.1, 0.2)])
    (tmp_path / "huge.parquet").touch()
    os.truncate(tmp_path / "huge.parquet", TERABYTE)
    os.mkfifo(tmp_path / "pipe.parquet")

    done = run_perfkit("ledger", "check", "--ledger", tmp_path)

    assert 4 == done.returncode, done.stderr
    assert "huge.parquet" in done.stdout
    assert "pipe.parquet" in done.stdout
    assert 2 == run_perfkit("ledger", "list", "--ledger", tmp_path).returncode


def test_a_file_up_to_the_limit_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"a\r\nb")

    assert b"a\r\nb" == read_bytes(file, most=4)
    assert "a\nb" == read_text(file)
    assert "a\r\nb" == read_text(file, newline="")
    with pytest.raises(OSError, match="larger"):
        read_bytes(file, most=3)
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match=place.name):
            read_bytes(place, most=3)
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)
