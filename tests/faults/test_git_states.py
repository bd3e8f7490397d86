"""The right commit in any state of a repository, or one line with the reason."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from repositories import Repository, create_repository

from perfkit.errors import RepositoryError
from perfkit.repo.commits import (
    commit_facts,
    describe_commits,
    history_order,
    open_repository,
    read_commit,
    resolve,
)
from perfkit.repo.working_tree import describe_working_tree

# What a state is made of: the place to look in, and which commit is HEAD there.
Made = tuple[Path, str]


def _git(folder: Path, *arguments: str) -> str:
    command = [
        "git",
        "-c",
        "protocol.file.allow=always",
        "-c",
        "user.name=N",
        "-c",
        "user.email=n@example.org",
    ]
    done = subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _detached(one: Repository) -> Made:
    _git(one.root, "checkout", "--quiet", "--detach", "HEAD~1")
    return one.root, _git(one.root, "rev-parse", "main~1")


def _cloned(*options: str) -> Callable[[Repository], Made]:
    def make(one: Repository) -> Made:
        _git(one.root, "config", "uploadpack.allowFilter", "true")
        _git(one.root.parent, "clone", "--quiet", *options, f"file://{one.root}", "clone")
        return one.root.parent / "clone", one.git.head.commit.hexsha

    return make


def _offline(one: Repository) -> Made:
    made = _cloned("--filter=blob:none")(one)
    one.root.rename(one.root.with_name("gone"))
    return made


def _linked(one: Repository) -> Made:
    _git(one.root, "worktree", "add", "--quiet", "--detach", "../linked", "HEAD~1")
    return one.root.parent / "linked", _git(one.root, "rev-parse", "HEAD~1")


def _submodule(one: Repository) -> Made:
    around = one.root.parent / "around"
    around.mkdir()
    Repository(around, create_repository(around)).commit({"b.py": ""})
    _git(around, "submodule", "--quiet", "add", str(one.root), "inside")
    return around / "inside", one.git.head.commit.hexsha


def _conflict(one: Repository) -> Made:
    _git(one.root, "checkout", "--quiet", "-b", "other", "HEAD~1")
    sha = one.commit({"a.py": "a = 3\n"})
    _git(one.root, "merge", "--quiet", "main")
    return one.root, sha


def _sparse(one: Repository) -> Made:
    _git(one.root, "sparse-checkout", "set", "--no-cone", "/a.py")
    return one.root, one.git.head.commit.hexsha


def _nameless(one: Repository) -> Made:
    for name in ("user.name", "user.email"):
        _git(one.root, "config", "--unset", name)
    return one.root, one.git.head.commit.hexsha


@pytest.fixture
def one(repository: Repository) -> Repository:
    """Return a repository with two commits, and a file in a folder."""
    repository.commit({"a.py": "a = 1\n"}, "Begin")
    repository.commit({"a.py": "a = 2\n", "inside/b.py": ""}, "Change")
    return repository


@pytest.mark.parametrize(
    ("make", "branch", "dirty"),
    [
        pytest.param(_detached, None, False, id="detached"),
        pytest.param(_cloned("--depth", "1"), "main", False, id="shallow"),
        pytest.param(_cloned("--filter=blob:none"), "main", False, id="partial"),
        pytest.param(_offline, "main", False, id="partial and offline"),
        pytest.param(_linked, None, False, id="linked worktree"),
        pytest.param(_submodule, "main", False, id="submodule"),
        pytest.param(_conflict, "other", True, id="merge conflict"),
        pytest.param(_sparse, "main", False, id="sparse"),
        pytest.param(_nameless, "main", False, id="no user name"),
    ],
)
def test_head_is_right(
    one: Repository, make: Callable[[Repository], Made], branch: str | None, *, dirty: bool
) -> None:
    place, sha = make(one)

    commit = read_commit(place)

    assert (sha, branch, dirty) == (commit.sha, commit.branch, commit.dirty)
    assert (sha, dirty) == ((tree := describe_working_tree(place, ignored=[])).sha, tree.dirty)
    assert {sha} == describe_commits(place, [sha]).keys() == commit_facts(place, [sha]).keys()


def test_a_commit_that_a_rebase_left_behind_is_known_until_it_is_gone(one: Repository) -> None:
    old = one.git.head.commit.hexsha
    _git(one.root, "reset", "--quiet", "--hard", "HEAD~1")
    known = describe_commits(one.root, [old])
    _git(one.root, "reflog", "expire", "--expire=now", "--all")
    _git(one.root, "gc", "--quiet", "--prune=now")

    assert {old} == known.keys()
    assert not describe_commits(one.root, [old])
    assert not commit_facts(one.root, [old])
    assert {} == history_order(one.root, [old])


def test_a_bare_repository_has_nothing_to_measure(one: Repository) -> None:
    place, sha = _cloned("--bare")(one)

    with pytest.raises(RepositoryError, match="is a bare repository, which has no files to measure"):
        read_commit(place)
    assert sha == resolve(open_repository(place), "HEAD").sha


def test_commits_of_another_length_are_refused(tmp_path: Path) -> None:
    _git(tmp_path, "init", "--quiet", "--object-format=sha256")
    _git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "Begin")

    with pytest.raises(RepositoryError, match="names its commits by SHA256"):
        read_commit(tmp_path)
    assert not describe_commits(tmp_path, ["a" * 40])
    assert not commit_facts(tmp_path, ["a" * 40])


def test_a_head_that_git_has_lost_is_named(one: Repository) -> None:
    sha = one.git.head.commit.hexsha
    (one.root / ".git/objects" / sha[:2] / sha[2:]).unlink()

    with pytest.raises(
        RepositoryError, match=f"git has lost the commit {sha} that HEAD of .* is; see `git fsck`"
    ):
        read_commit(one.root)
