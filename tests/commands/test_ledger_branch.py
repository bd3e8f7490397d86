"""A ledger is kept on a branch of its own, beside others who add to it."""

from __future__ import annotations

from pathlib import Path

import git
import pytest
from forked_commands import run_perfkit
from killing import kill_after
from ledger_files import run_id
from repositories import Repository
from synthetic import START, build_row

from perfkit.commands.ledger import pull_ledger, push_ledger
from perfkit.config import load_project
from perfkit.errors import RepositoryError
from perfkit.ledger.store import Ledger


@pytest.fixture
def clones(repository: Repository, tmp_path: Path) -> tuple[Path, Path]:
    """Return two clones of a repository that takes what is pushed."""
    repository.commit({"code.py": ""})
    hub = tmp_path / "hub.git"
    repository.git.clone(hub, bare=True)
    for name in ("one", "two"):
        git.Repo.clone_from(str(hub), tmp_path / name)
    return tmp_path / "one", tmp_path / "two"


def push(clone: Path, **files: str) -> str:
    """Add files to a clone's ledger, and push it."""
    ledger = clone / "benchmarks/ledger"
    ledger.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (ledger / name).write_text(text)
    return push_ledger(load_project(clone), ledger, branch="kept", remote="origin")


def pull(clone: Path) -> str:
    return pull_ledger(load_project(clone), clone / "benchmarks/ledger", branch="kept", remote="origin")


def test_what_one_job_measured_another_one_has(clones: tuple[Path, Path]) -> None:
    one, two = clones

    assert pull(one) == "origin has no branch kept yet: the ledger begins with this run"
    assert push(one, first="1") == "the ledger is on origin/kept"
    assert push(two, second="2") == "the ledger is on origin/kept"
    assert push(two) == "origin/kept has all of the ledger already"
    assert pull(one).startswith("1 files of origin/kept came into")

    assert {"first": "1", "second": "2"} == {
        file.name: file.read_text() for file in (one / "benchmarks/ledger").iterdir()
    }
    repository = git.Repo(one)
    assert "main" == repository.active_branch.name
    assert ["benchmarks/ledger/first", "benchmarks/ledger/second"] == sorted(repository.untracked_files)


def test_a_remote_that_takes_nothing_is_reported(clones: tuple[Path, Path]) -> None:
    one, _ = clones
    git.Repo(one).remote().set_url(str(one.parent / "gone"))

    with pytest.raises(RepositoryError, match="permissions: contents: write"):
        push(one, first="1")
    with pytest.raises(RepositoryError, match="failed in"):
        pull(one)


def test_without_a_ledger_nothing_is_pushed(clones: tuple[Path, Path]) -> None:
    one, _ = clones
    project = load_project(one)

    ledger = one / "benchmarks/ledger"
    for name in (None, ".staged/run.jsonl"):
        if name is not None:
            (ledger / name).parent.mkdir(parents=True)
            (ledger / name).write_text(name)

        output = push_ledger(project, ledger, branch="kept", remote="origin")

        assert output.endswith("nothing was measured")
    assert "" == str(git.Repo(one).git.ls_remote("origin", "kept"))


def test_rows_of_a_command_that_was_killed_are_pushed(clones: tuple[Path, Path]) -> None:
    one, two = clones
    ledger = one / "benchmarks/ledger"

    def stage() -> None:
        run = Ledger(ledger).run(source="gate", run_id=run_id(1), recorded_at=START)
        run.add([build_row(0.5, run=run_id(1), source="gate")])

    kill_after(stage)

    done = run_perfkit("ledger", "sync", "--branch", "kept", cwd=one)
    pull(two)

    assert (0, "the ledger is on origin/kept") == (done.returncode, done.stdout.splitlines()[-1])
    assert "its 1 row is recovered" in done.stderr
    assert [True] == [row.partial for row in Ledger(two / "benchmarks/ledger").rows()]


def test_what_is_of_one_process_alone_stays_there(clones: tuple[Path, Path]) -> None:
    one, two = clones
    for name in (".staged/run.jsonl", ".index/all", "notes/one.json"):
        file = one / "benchmarks/ledger" / name
        file.parent.mkdir(parents=True)
        file.write_text(name)
    push(one, first="1")
    pull(two)
    ledger = two / "benchmarks/ledger"
    tip = git.Repo(one).git.ls_tree("-r", "--name-only", "refs/remotes/origin/kept")

    assert "first\nnotes/one.json" == tip
    assert ["first", "notes/one.json"] == sorted(
        file.relative_to(ledger).as_posix() for file in ledger.rglob("*") if file.is_file()
    )


def test_a_file_of_the_branch_is_never_replaced(clones: tuple[Path, Path]) -> None:
    one, two = clones
    push(one, run="the whole")
    push(two, run="a part", other="2")
    (one / "benchmarks/ledger/run").unlink()

    assert pull(one).startswith("2 files of origin/kept came into")

    assert "the whole" == (one / "benchmarks/ledger/run").read_text()
    assert "a part" == (two / "benchmarks/ledger/run").read_text()
