"""No text of a shared file is lost where reading or writing it fails."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from perfkit.commands.text_files import check_writable_place, read_text, replace_text, replace_texts
from perfkit.errors import UsageError
from perfkit.repo.files import is_report


def test_an_absent_file_reads_as_the_default(tmp_path: Path) -> None:
    assert "begin" == read_text(tmp_path / "x.md", default="begin")


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "binary.md").write_bytes(b"\xff\xfe\x00")

    for name in ("folder.md", "binary.md"):
        with pytest.raises(UsageError, match=f"cannot read .*{name} as text") as caught:
            read_text(tmp_path / name, default="")
        assert "\n" not in str(caught.value)


def test_a_failed_writing_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "folder.md").mkdir()

    with pytest.raises(UsageError, match="cannot write"):
        replace_text(tmp_path / "folder.md", "new", option="--out")

    assert ["folder.md"] == [path.name for path in tmp_path.iterdir()]


def test_a_new_text_takes_the_place_of_the_old_one_at_once(tmp_path: Path) -> None:
    file, link = tmp_path / "x.md", tmp_path / "link.md"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)

    with file.open() as reader:
        replace_text(link, "new", option="--markdown")
        assert "old" == reader.read()

    assert ("new", True, 0o640) == (file.read_text(), link.is_symlink(), file.stat().st_mode & 0o777)
    assert {"x.md", "link.md"} == {path.name for path in tmp_path.iterdir()}


def test_of_texts_that_belong_together_all_are_replaced_or_none(tmp_path: Path) -> None:
    document, picture = tmp_path / "x.md", tmp_path / "x.svg"
    document.write_text("old")
    picture.mkdir()

    with pytest.raises(UsageError, match=r"cannot write .*x\.svg \(it is a folder\); .*with --markdown"):
        replace_texts({document: "new", picture: "<svg/>"}, option="--markdown")

    assert "old" == document.read_text()
    assert {"x.md", "x.svg"} == {path.name for path in tmp_path.iterdir()}


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    check_writable_place(pipe, option="--json")
    replace_text(pipe, "new", option="--json")
    replace_text(Path(os.devnull), "new", option="--json")

    assert b"new" == os.read(reader, 10)
    os.close(reader)
    assert pipe.is_fifo()
    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("folder", "it is a folder); choose another with --html"),
        ("none/x.html", "there is no folder {root}/none); make it or choose another with --html"),
        ("file/x.html", "Not a directory); make it writable or choose another with --html"),
        ("x" * 300, "File name too long); make it writable or choose another with --html"),
    ],
)
def test_a_place_is_refused_before_there_is_anything_to_write(
    tmp_path: Path, place: str, reason: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()

    with pytest.raises(UsageError, match=re.escape(reason.format(root=tmp_path))):
        check_writable_place(tmp_path / place, option="--html")

    assert {"folder", "file"} == {path.name for path in tmp_path.iterdir()}


def test_a_good_place_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("old")

    check_writable_place(tmp_path / "x.md", option="--markdown")
    check_writable_place(tmp_path / "a/b/x.md", option="--markdown", makes_folder=True)

    assert {"x.md": "old"} == {path.name: path.read_text() for path in tmp_path.iterdir()}


def test_reports_alone_are_known_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # `init` writes configuration and data this way, which may matter to a benchmark.
    replace_texts({tmp_path / "pyproject.toml": "[project]\n"}, option="--out")
    replace_text(tmp_path / "report.json", "{}\n", option="--json")

    assert [False, True] == [
        is_report((tmp_path / name).read_bytes()) for name in ("pyproject.toml", "report.json")
    ]
