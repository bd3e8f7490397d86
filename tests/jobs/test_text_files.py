"""Shared text files: nothing of theirs is lost to a failed reading or writing."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.errors import UsageError
from perfkit.jobs.text_files import read_text, replace_text


def test_an_absent_file_reads_as_the_default(tmp_path: Path) -> None:
    """A file that is not there yet begins with what it is given."""
    assert "begin" == read_text(tmp_path / "x.md", default="begin")


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    """A folder and a binary file of that name each give one line."""
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "binary.md").write_bytes(b"\xff\xfe\x00")

    for name in ("folder.md", "binary.md"):
        with pytest.raises(UsageError, match=f"cannot read .*{name} as text") as caught:
            read_text(tmp_path / name, default="")
        assert "\n" not in str(caught.value)


def test_a_failed_writing_leaves_nothing_behind(tmp_path: Path) -> None:
    """What cannot be replaced stays, and no temporary file stays beside it."""
    (tmp_path / "folder.md").mkdir()

    with pytest.raises(UsageError, match="cannot write"):
        replace_text(tmp_path / "folder.md", "new")

    assert ["folder.md"] == [path.name for path in tmp_path.iterdir()]
