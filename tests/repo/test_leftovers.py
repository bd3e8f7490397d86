"""Folders and worktrees that a killed perfkit leaves are removed by the next one, and only those."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from processes_seen import wait_until
from repositories import Repository

from perfkit.repo import leftovers
from perfkit.repo.leftovers import sweep
from perfkit.temporary import temporary_folder, this_owner, with_mark

# A perfkit with a worktree, and with processes that stand in its folder, write to it or know its name.
OWNER = """
import os, subprocess, sys
from pathlib import Path
import git
sys.argv = ["/bin/perfkit", "backfill", "HEAD"]
from perfkit.repo.checkout import add_worktree, worktree_folder
from perfkit.temporary import temporary_folder, with_mark
repository = git.Repo({root!r})
waits = [sys.executable, "-c", "import signal; signal.pause()"]
with worktree_folder([Path(repository.working_tree_dir)]) as folder, temporary_folder():
    root = folder / "root"
    add_worktree(Path(repository.working_tree_dir), "HEAD", root)
    mute = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    mute["start_new_session"] = True
    mute["env"] = with_mark(os.environ)
    named = {{**mute, "env": {{**mute["env"], "TMPDIR": f"{{folder}}/tmp"}}}}
    started = [
        subprocess.Popen(waits, **mute, cwd=root),
        subprocess.Popen(waits, **{{**mute, "stdout": open(folder / "log", "w")}}),
        subprocess.Popen([*waits, str(folder)], **mute),
        subprocess.Popen(waits, **named),
        subprocess.Popen(waits, **mute, cwd=folder.parent),
    ]
    print(folder, *(one.pid for one in started), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a place for temporary files that is this test's own."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    return place


@pytest.fixture
def killed(temporary: Path, repository: Repository) -> Iterator[tuple[Path, list[psutil.Process], int]]:
    """Return the folder of a perfkit that was killed, four processes that live there, and its own number."""
    repository.commit({"a.py": "1"})
    command = [sys.executable, "-c", OWNER.format(root=str(repository.root))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        folder, *pids = process.stdout.readline().split()
        process.kill()
    *residents, unrelated = [psutil.Process(int(pid)) for pid in pids]
    residents[1].suspend()
    assert temporary == Path(folder).parent
    yield Path(folder), residents, process.pid
    assert unrelated.is_running()
    for one in (*residents, unrelated):
        if one.is_running():
            one.kill()


def test_nothing_of_a_killed_perfkit_stays(
    temporary: Path, repository: Repository, killed: tuple[Path, list[psutil.Process], int]
) -> None:
    folder, residents, pid = killed
    logged: list[str] = []
    folders = sorted(path for path in temporary.iterdir() if path.is_dir())
    assert folder in folders

    sweep(logged.append)

    assert [] == psutil.wait_procs(residents, timeout=20)[1]
    assert [] == list(temporary.iterdir())
    assert 1 == len(repository.git.git.worktree("list").splitlines())
    (line,) = logged
    removed = ", ".join(map(str, folders))
    expected = (
        f"swept up after perfkit backfill (process {pid}), which was killed: removed {removed},"
        f" 1 worktree of {repository.root}, ended 4 processes"
    )
    assert expected == line
    sweep(logged.append)
    assert [line] == logged


def test_what_lives_or_is_not_perfkits_is_left_alone(temporary: Path, repository: Repository) -> None:
    repository.commit({"a.py": "1"})
    (temporary / "perfkit-users").mkdir()
    repository.git.git.worktree("add", "--detach", str(temporary / "perfkit-users/base"))
    logged: list[str] = []
    with temporary_folder() as folder:
        waits = [sys.executable, "-c", "import signal; signal.pause()"]
        with subprocess.Popen(waits, cwd=folder, start_new_session=True) as process:
            sweep(logged.append)
            assert process.poll() is None
            process.kill()
        assert folder.exists()

    assert [] == logged
    assert 2 == len(repository.git.git.worktree("list").splitlines())
    assert (temporary / "perfkit-users/base/a.py").exists()


def test_a_person_who_looks_at_what_was_left_is_not_ended(
    killed: tuple[Path, list[psutil.Process], int],
) -> None:
    folder, *_ = killed
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.write(1, b"here")
        signal.pause()
    try:
        assert b"here" in os.read(terminal, 100)
        sweep(lambda _: None)
        assert (0, 0) == os.waitpid(pid, os.WNOHANG)
        assert not folder.exists()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_only_what_perfkit_started_is_ended(
    temporary: Path, killed: tuple[Path, list[psutil.Process], int]
) -> None:
    folder, residents, _ = killed
    waits = [sys.executable, "-c", "import signal; signal.pause()", f"{folder}/log"]
    logged: list[str] = []
    with (
        subprocess.Popen(waits, cwd=folder, start_new_session=True) as mine,
        subprocess.Popen(waits, env=with_mark(os.environ), start_new_session=True) as of_another,
    ):
        sweep(logged.append)
        assert [None, None] == [mine.poll(), of_another.poll()]
        for process in (mine, of_another):
            process.kill()

    assert [] == psutil.wait_procs(residents, timeout=20)[1]
    assert [] == list(temporary.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize("folder_of", [0, 65534])
def test_another_users_files_end_and_remove_nothing(temporary: Path, folder_of: int) -> None:
    folder = temporary / "perfkit-0123"
    folder.mkdir()
    owner = folder.with_suffix(".owner")
    owner.write_bytes(msgspec.json.encode(this_owner()))
    os.chown(owner, 65534, -1)
    os.chown(folder, folder_of, -1)
    waits = [sys.executable, "-c", "import signal; signal.pause()", f"{folder}/log"]
    logged: list[str] = []
    with subprocess.Popen(waits, env=with_mark(os.environ), start_new_session=True) as process:
        sweep(logged.append)
        assert process.poll() is None
        process.kill()

    assert [] == logged
    assert folder.is_dir()
    assert owner.is_file()


def test_what_cannot_be_removed_is_reported(
    temporary: Path, killed: tuple[Path, list[psutil.Process], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, residents, _ = killed
    logged: list[str] = []

    def refuse(place: Path) -> None:
        raise PermissionError(13, "Permission denied", str(place / "file"))

    monkeypatch.setattr(leftovers, "remove_folder", refuse)
    sweep(logged.append)
    monkeypatch.undo()

    line = next(line for line in logged if str(folder) in line)
    assert line.startswith(f"cannot remove {folder}, left by perfkit backfill (process ")
    assert ", which was killed " in line
    assert f"(Permission denied: {folder}/file); remove it by hand" in line
    assert wait_until(lambda: not any(one.is_running() for one in residents))
    sweep(logged.append, place=temporary)
    assert [] == list(temporary.iterdir())


def test_a_damaged_owner_is_reported(temporary: Path) -> None:
    (temporary / "perfkit-0123").mkdir()
    (temporary / "perfkit-0123.owner").write_text("{")
    logged: list[str] = []

    sweep(logged.append)

    (line,) = logged
    assert f"the owner's file of {temporary}/perfkit-0123 is damaged" in line
    assert (temporary / "perfkit-0123").exists()
