"""Where something is missing, or a place cannot be written, perfkit ends with one line and never hangs."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from forked_commands import PERFKIT, run, run_perfkit
from repositories import Repository, create_repository

from perfkit.repo.commits import read_commit

FILES = {
    "work.py": "def work():\n    return sum(range(500))\n",
    "test_work.py": "from work import work\n\ndef test_work(benchmark):\n    benchmark(work)\n",
}


def gate(repository: Repository, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    repository.commit(FILES)
    repository.commit({"work.py": FILES["work.py"].replace("500", "501")})
    command = ("gate", "--budget", "2", "--ledger", "ledger", *options)
    return run_perfkit(*command, cwd=repository.root, env={**os.environ, **variables})


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("perfkit: ")]
    return line


@pytest.mark.parametrize("kib", [150_000, 500_000, 800_000])
def test_a_limit_of_memory_is_refused_at_once(tmp_path: Path, kib: int) -> None:
    done = run(
        [PERFKIT, "gate"],
        cwd=tmp_path,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (kib << 10, kib << 10)),
    )

    assert 4 == done.returncode, done.stderr
    assert "ulimit -v" in one_line(done)


def test_warnings_that_are_errors_are_the_measured_codes(repository: Repository) -> None:
    done = gate(repository, PYTHONWARNINGS="error")

    assert done.returncode in {0, 1, 3}, done.stderr
    assert [*(repository.root / "ledger").glob("*.parquet")]


@pytest.mark.parametrize("place", ["$HOME/ledger", "${HOME}/ledger", "~/ledger"])
def test_a_variable_that_no_shell_expanded_is_refused(repository: Repository, place: str) -> None:
    repository.commit(FILES)
    (repository.root / "pyproject.toml").write_text(f'[tool.perfkit]\nledger = "{place}"\n')

    for option in ((), ("--ledger", place)):
        done = run_perfkit("ledger", "list", *option, cwd=repository.root)

        assert 2 == done.returncode
        assert "ledger" in one_line(done)
    assert 2 == gate(repository, "--json", place).returncode
    assert not (repository.root / place.split("/", maxsplit=1)[0]).exists()


def test_a_folder_may_be_called_like_a_variable(tmp_path: Path) -> None:
    root = tmp_path / "plain"
    root.mkdir()
    sha = Repository(root, create_repository(root)).commit(FILES)

    assert sha == read_commit(root.rename(tmp_path / "$HOME")).sha


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root can hide /proc")
def test_without_proc_nothing_is_measured(repository: Repository) -> None:
    repository.commit(FILES)
    repository.commit({"work.py": FILES["work.py"].replace("500", "501")})
    hidden = ["unshare", "-m", "sh", "-c", 'umount -l /proc && exec "$0" "$@"']
    command = [*hidden, sys.executable, str(PERFKIT), "gate", "--budget", "2", "--ledger", "ledger"]
    done = run(command, cwd=repository.root, timeout=120)
    if "umount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("this container may not hide /proc")

    assert 4 == done.returncode, done.stderr
    assert "/proc" in one_line(done)


@pytest.mark.parametrize(
    "command",
    [
        "gate --markdown",
        "experiment run --markdown",
        "experiment run none.toml --json",
        "experiment show 0199 --markdown",
        "tricks --markdown",
        "explain a.stat b.stat --markdown",
        "explain main HEAD --html",
        "show a.stat --json",
        "compare main HEAD --json",
        "doctor --json",
    ],
)
def test_a_place_that_cannot_be_written_is_refused_at_once(command: str, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()

    done = run_perfkit(*command.split(), "taken", cwd=tmp_path)

    option = command.rsplit(maxsplit=1)[-1]
    output = f"perfkit: cannot write taken (it is a folder); choose another with {option}\n"
    assert (2, "", output) == (done.returncode, done.stdout, done.stderr)
    assert ["taken"] == [path.name for path in tmp_path.iterdir()]


def test_a_document_leaves_room_for_its_picture(tmp_path: Path) -> None:
    command = ["tricks", "--markdown", "found.svg"]

    done = run_perfkit(*command, cwd=tmp_path)

    assert 2 == done.returncode
    assert "cannot write found.svg: its picture has that name; end --markdown in .md" in done.stderr
