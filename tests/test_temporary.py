"""Temporary folders are removed with their owner, and recognised as left over once it is dead."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from perfkit import temporary
from perfkit.temporary import leftovers, remove_folder, short_name, temporary_folder, too_long_in_words

OWNER = """
import sys
from pathlib import Path
sys.argv = ["/bin/perfkit", "gate", "--base", "main"]
from perfkit.temporary import temporary_folder
with temporary_folder(place=Path({place!r}), repositories=[Path("/somewhere/repository")]) as folder:
    (folder / "file").write_text("kept until it is swept")
    print(folder, flush=True)
    sys.stdin.read()
"""


@contextmanager
def owner(place: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Start a process that owns a folder in a place, until it is killed."""
    command = [sys.executable, "-c", OWNER.format(place=str(place))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def open_below(place: Path) -> list[str]:
    """Return what this process has open below a place, what has been removed since included."""
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(one.readlink()))
    return [name for name in found if name.startswith(f"{place.resolve()}{os.sep}")]


def test_a_place_without_locks_takes_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", refuse)

    with temporary_folder(place=tmp_path) as folder:
        assert folder.is_dir()
        assert [] == [*leftovers(tmp_path)]
    assert [] == [*tmp_path.iterdir()]


def test_a_folder_that_cannot_be_made_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", refuse)

    with pytest.raises(OSError, match="No space left"), temporary_folder(place=tmp_path):
        pytest.fail("it was made")
    assert [] == [*tmp_path.iterdir()]


def test_an_interrupt_during_the_removal_takes_effect_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove(folder: Path) -> None:
        assert 1 == len(open_below(tmp_path))
        signal.raise_signal(signal.SIGINT)
        remove_folder(folder)

    monkeypatch.setattr(temporary, "remove_folder", remove)
    with pytest.raises(KeyboardInterrupt), temporary_folder(place=tmp_path) as folder:
        (folder / "file").write_text("")

    assert [] == [*tmp_path.iterdir()]
    assert [] == open_below(tmp_path)


def test_a_folder_goes_with_its_block(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    place = tmp_path / "place"
    place.mkdir()

    def fail() -> None:
        with temporary_folder(place=place) as folder:
            (folder / "closed").mkdir()
            (folder / "closed/file").write_text("")
            (folder / "link").symlink_to(outside)
            (folder / "closed").chmod(0)
            assert folder.resolve() == folder
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()

    assert [] == list(place.iterdir())
    assert 0o500 == outside.stat().st_mode & 0o777


def test_all_names_are_equally_long(tmp_path: Path) -> None:
    with temporary_folder(place=tmp_path) as one, temporary_folder(place=tmp_path) as other:
        assert len(one.name) == len(other.name)
        assert one != other


def test_what_an_owner_holds_is_not_left_over(tmp_path: Path) -> None:
    with temporary_folder(place=tmp_path), owner(tmp_path) as (process, folder):
        assert [] == list(leftovers(tmp_path))
        process.kill()
        process.wait()

        (found,) = leftovers(tmp_path)

    assert folder == found.folder
    assert found.owner is not None
    assert ("perfkit gate", process.pid) == (found.owner.invocation.short, found.owner.invocation.pid)
    assert "perfkit gate --base main" == found.owner.invocation.command
    assert ("/somewhere/repository",) == found.owner.repositories
    assert "kept until it is swept" == (folder / "file").read_text()


def test_no_two_sweep_the_same_folder(tmp_path: Path) -> None:
    with owner(tmp_path) as (process, folder):
        process.kill()
        process.wait()
    first = leftovers(tmp_path)
    found = next(first)

    assert [] == list(leftovers(tmp_path))
    assert folder == found.folder
    remove_folder(folder)
    assert [] == list(first)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "{", "\0"])
def test_an_owner_that_died_before_it_had_a_folder_leaves_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "perfkit-0123.owner").write_text(content)

    (found,) = leftovers(tmp_path)

    assert found.owner is None
    assert [] == list(tmp_path.iterdir())


def test_what_has_no_owner_is_left_alone(tmp_path: Path) -> None:
    """A folder that happens to be called so is nobody's to remove; nor is what a link points to.

    A file that is no plain one, or has another name as well, is not perfkit's.
    """
    (tmp_path / "perfkit-mine").mkdir()
    (tmp_path / "file").write_text("{}")
    (tmp_path / "perfkit-link.owner").symlink_to(tmp_path / "file")

    (tmp_path / "perfkit-hard.owner").hardlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "perfkit-pipe.owner")
    (tmp_path / "perfkit-away").symlink_to(tmp_path / "perfkit-mine")
    (tmp_path / "perfkit-away.owner").write_text("{}")
    before = sorted(tmp_path.iterdir())

    assert [] == list(leftovers(tmp_path))
    assert before == sorted(tmp_path.iterdir())


def test_a_long_folder_has_a_short_name_in_which_sockets_can_lie(tmp_path: Path) -> None:
    """Loader workers put theirs 32 bytes below; a short folder keeps its own name."""
    long = tmp_path / ("x" * 90)
    long.mkdir()

    with short_name(Path("/")) as own, short_name(long) as short, socket.socket(socket.AF_UNIX) as found:
        found.bind(str(short / ("y" * 31)))
        assert [long / ("y" * 31)] == list(long.iterdir())
        assert Path("/") == own
        assert not too_long_in_words(short)

    assert str(long) in too_long_in_words(long)
    assert not short.parent.exists()
    assert long.exists()
