"""The two sides to compare are found, named or not, and mistakes in naming them are explained."""

from __future__ import annotations

import shutil
from pathlib import Path

import git
import pytest
from repositories import Repository, create_repository

from perfkit.errors import EXIT_USAGE, RepositoryError
from perfkit.repo.sides import Side, SidePair, changed_files, resolve_sides


def _default(repository: Repository, *, ignored: tuple[Path, ...] = ()) -> SidePair:
    return resolve_sides(repository.root, base=None, head=None, ignored=ignored)


def _directory(start: Path, name: str) -> Side:
    return resolve_sides(start, base=name, head=name).head


@pytest.fixture
def branch(repository: Repository) -> tuple[Repository, str, str]:
    """Return a repository on a feature branch of two commits, with the fork on main and the tip."""
    fork = repository.commit({"a.py": "1"}, "Begin")
    repository.git.git.checkout("--quiet", "-b", "feature")
    repository.commit({"a.py": "2"}, "Change")
    tip = repository.commit({"b.py": "1"}, "Add b")
    return repository, fork, tip


def test_a_feature_branch_is_compared_with_where_it_left_main(branch: tuple[Repository, str, str]) -> None:
    repository, fork, tip = branch
    repository.git.git.checkout("--quiet", "main")
    repository.commit({"c.py": "1"}, "Go on")
    repository.git.git.checkout("--quiet", "feature")

    pair = _default(repository)

    assert ("commit", fork, "commit", tip) == (
        pair.base.kind,
        pair.base.commit.sha,
        pair.head.kind,
        pair.head.commit.sha,
    )
    assert ("feature", False) == (pair.head.commit.branch, pair.head.commit.dirty)
    assert {repository.root.resolve()} == {pair.base.source, pair.head.source}


def test_on_the_main_branch_the_base_is_the_parent(repository: Repository) -> None:
    parent = repository.commit({"a.py": "1"})
    repository.commit({"a.py": "2"})

    assert parent == _default(repository).base.commit.sha


def _left_out(repository: Repository) -> list[str]:
    remarks = [one for one in _default(repository).remarks if "not compared" in one]
    return [f"{one.split()[0]} {one.rpartition('--base ')[2]}" for one in remarks]


def test_commits_that_came_to_main_together_are_counted(branch: tuple[Repository, str, str]) -> None:
    repository, fork, _ = branch
    git_ = repository.git.git
    git_.checkout("--quiet", "main")
    git_.merge("--quiet", "--ff-only", "feature")
    assert [f"1 {fork[:10]}"] == _left_out(repository)

    git_.reset("--quiet", "--hard", fork)
    git_.merge("--quiet", "--no-ff", "-m", "Merge", "feature")
    assert [] == _left_out(repository)


def test_commits_that_were_pushed_together_are_counted(repository: Repository, tmp_path: Path) -> None:
    hub = git.Repo.init(tmp_path / "hub.git", bare=True)
    first = repository.commit({"a.py": "1"})
    repository.git.create_remote("origin", str(hub.git_dir))
    repository.git.git.push("--quiet", "--set-upstream", "origin", "main")
    for number in range(2, 6):
        repository.commit({"a.py": f"{number}"})
    assert [f"3 {first[:10]}"] == _left_out(repository)

    repository.git.git.push("--quiet")
    assert [f"3 {first[:10]}"] == _left_out(repository)

    repository.commit({"a.py": "6"})
    assert [] == _left_out(repository)
    repository.git.git.push("--quiet")
    assert [] == _left_out(repository)


def test_the_main_branch_may_be_that_of_the_origin(
    branch: tuple[Repository, str, str], tmp_path: Path
) -> None:
    upstream, _, tip = branch
    clone = git.Repo.clone_from(upstream.root, tmp_path / "clone")
    clone.git.checkout("--quiet", "-b", "mine")
    cloned = Repository(tmp_path / "clone", clone)
    with clone.config_writer() as config:
        config.set_value("user", "name", "A Tester").set_value("user", "email", "tester@example.org")
    cloned.commit({"d.py": "1"})

    assert tip == _default(cloned).base.commit.sha


def test_master_serves_where_there_is_no_main(repository: Repository) -> None:
    fork = repository.commit({"a.py": "1"})
    repository.git.git.branch("--move", "main", "master")
    repository.git.git.checkout("--quiet", "-b", "feature")
    repository.commit({"a.py": "2"})

    assert fork == _default(repository).base.commit.sha


def test_a_dirty_tree_is_the_head(branch: tuple[Repository, str, str]) -> None:
    repository, fork, tip = branch
    (repository.root / "a.py").write_text("3")

    pair = _default(repository)

    assert (fork, "worktree", tip, True) == (
        pair.base.commit.sha,
        pair.head.kind,
        pair.head.commit.sha,
        pair.head.commit.dirty,
    )


def test_a_dirty_main_branch_is_compared_with_its_own_head(repository: Repository) -> None:
    repository.commit({"a.py": "1"})
    head = repository.commit({"a.py": "2"})
    (repository.root / "new.py").write_text("1")

    pair = _default(repository)

    assert (head, False) == (pair.base.commit.sha, pair.base.commit.dirty)
    assert (head, "worktree", True) == (pair.head.commit.sha, pair.head.kind, pair.head.commit.dirty)


def test_the_diff_hash_covers_untracked_contents(repository: Repository) -> None:
    repository.commit({"a.py": "1"})
    new = repository.root / "new.py"
    states = []
    for text, tracked in (("1", "1"), ("2", "1"), ("2", "2"), ("1", "1")):
        new.write_text(text)
        (repository.root / "a.py").write_text(tracked)
        states.append(_default(repository).head.commit.diff_hash)

    assert 3 == len(set(states))
    assert states[0] == states[3] is not None


def test_own_output_and_ignored_files_leave_the_tree_clean(repository: Repository) -> None:
    repository.commit({"perf_log.md": "old", ".gitignore": "build/\n"})
    head = repository.commit({"a.py": "1"})
    for name in ("perf_log.md", "ledger/new", "build/new"):
        (repository.root / name).parent.mkdir(exist_ok=True)
        (repository.root / name).write_text("new")
    repository.git.git.worktree("add", "--quiet", "--detach", "another_checkout")

    ignored = (repository.root / "perf_log.md", repository.root / "ledger")
    pair = _default(repository, ignored=ignored)

    assert ("commit", head, False) == (pair.head.kind, pair.head.commit.sha, pair.head.commit.dirty)
    assert () == pair.remarks
    (repository.root / "ledger.py").write_text("new")
    assert "worktree" == _default(repository, ignored=ignored).head.kind


def test_what_is_no_code_does_not_make_the_tree_the_head(repository: Repository) -> None:
    base = repository.commit({"a.py": "1", "README.md": "old"})
    head = repository.commit({"a.py": "2"})
    for name, remark in (
        (".benchmarks/Linux/0001_run.json", None),
        ("tests/.pytest_cache/lastfailed", None),
        ("results.json", "no code is uncommitted, only results.json: HEAD itself is compared"),
        ("README.md", "no code is uncommitted, only README.md, results.json: HEAD itself is compared"),
    ):
        place = repository.root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("new")

        pair = _default(repository)

        assert (base, "commit", head) == (pair.base.commit.sha, pair.head.kind, pair.head.commit.sha)
        assert not pair.head.commit.dirty
        assert [remark] * (remark is not None) == list(pair.remarks)


def test_what_may_be_code_makes_the_tree_the_head(repository: Repository) -> None:
    repository.commit({"a.py": "1", "data.json": "1"})
    for name in ("a.py", "data.json", "new.py", "new.cpp"):
        repository.git.git.reset("--quiet", "--hard")
        (repository.root / name).write_text("2")

        assert "worktree" == _default(repository).head.kind
        if name.startswith("new"):
            (repository.root / name).unlink()


def test_sides_without_a_difference_in_code_are_remarked(repository: Repository) -> None:
    repository.commit({"a.py": "1"})
    repository.commit({"README.md": "new"})

    (remark,) = _default(repository).remarks
    assert remark.startswith("no code differs between base and head, only README.md: ")


def test_code_is_the_same_where_only_documentation_differs(repository: Repository) -> None:
    repository.commit({"own.py": ""})
    for files, same in (
        ({}, True),
        ({"README.md": "A page", "docs/use.rst": "A page"}, True),
        ({"tests/data/input.md": "What a test reads"}, False),
        ({"data.txt": "9000"}, False),
        ({"README.md": "Another page", "code.py": "CODE = 1"}, False),
    ):
        repository.commit(files)

        assert same == resolve_sides(repository.root, base="HEAD^", head="HEAD").same_code, files


def test_the_working_tree_can_be_named_and_head_too(branch: tuple[Repository, str, str]) -> None:
    repository, fork, tip = branch
    clean = resolve_sides(repository.root, base=None, head="worktree")
    (repository.root / "a.py").write_text("3")
    committed = resolve_sides(repository.root, base="main", head="HEAD")

    assert ("worktree", tip, False, fork) == (
        clean.head.kind,
        clean.head.commit.sha,
        clean.head.commit.dirty,
        clean.base.commit.sha,
    )
    assert ("commit", tip, False) == (
        committed.head.kind,
        committed.head.commit.sha,
        committed.head.commit.dirty,
    )


def test_caches_and_environments_are_no_part_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/a.py").write_text("1")
    before = _directory(tmp_path, str(tmp_path / "code")).commit.sha
    caches = (".git", "__pycache__", ".venv", "venv", "node_modules", "code.egg-info", "sub/.pytest_cache")
    for cache in caches:
        (tmp_path / "code" / cache).mkdir(parents=True)
        (tmp_path / "code" / cache / "left").write_text("1")
    after = _directory(tmp_path, str(tmp_path / "code")).commit.sha
    (tmp_path / "code/a.py").chmod(0o755)
    executable = _directory(tmp_path, str(tmp_path / "code")).commit.sha
    (tmp_path / "code/b").symlink_to("sub")

    assert before == after
    assert 3 == len({after, executable, _directory(tmp_path, str(tmp_path / "code")).commit.sha})


def test_a_name_of_both_a_ref_and_a_directory_is_the_ref(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha = repository.commit({"old/a.py": "1", "plain/a.py": "1"})
    repository.git.git.branch("old")
    repository.commit({"a.py": "2"})
    monkeypatch.chdir(repository.root)

    bases = [
        resolve_sides(repository.root, base=name, head="HEAD").base for name in ("old", "./old", "plain")
    ]

    assert ["commit", "directory", "directory"] == [base.kind for base in bases]
    assert sha == bases[0].commit.sha
    assert repository.root.resolve() / "old" == bases[1].source


def test_a_directory_can_be_compared_with_the_working_tree(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"a.py": "1"})
    shutil.copytree(repository.root, tmp_path / "copy")
    (repository.root / "a.py").write_text("2")

    pair = resolve_sides(repository.root, base=str(tmp_path / "copy"), head=None)

    assert ("directory", "worktree") == (pair.base.kind, pair.head.kind)
    assert None is changed_files(pair)


def test_an_unknown_side_is_one_line(repository: Repository) -> None:
    repository.commit({"a.py": "1"})
    repository.commit({"a.py": "2"})

    for name in ("nothing", "-x", "--output=x", "f" * 40, "HEAD~9", "main..main", ""):
        for sides in ({"base": name, "head": None}, {"base": "HEAD~1", "head": name}):
            with pytest.raises(RepositoryError, match=f'"{name}"') as caught:
                resolve_sides(repository.root, **sides)
            assert EXIT_USAGE == caught.value.exit_code
            assert 1 == len(str(caught.value).splitlines())


def test_equal_sides_are_refused(repository: Repository) -> None:
    repository.commit({"a.py": "1"})
    sha = repository.commit({"a.py": "2"}, "Change a")

    for head in (None, "main", sha, "worktree"):
        with pytest.raises(RepositoryError, match=r'one commit, .* "Change a".*name another commit'):
            resolve_sides(repository.root, base="HEAD", head=head)
    (repository.root / "a.py").write_text("3")
    assert "worktree" == resolve_sides(repository.root, base="HEAD", head=None).head.kind


def test_what_a_shallow_clone_lacks_is_reported(repository: Repository, tmp_path: Path) -> None:
    old = repository.commit({"a.py": "1"})
    repository.commit({"a.py": "2"})
    clone = git.Repo.clone_from(f"file://{repository.root}", tmp_path / "clone", depth=1)

    for base in (None, "HEAD~1", old):
        with pytest.raises(RepositoryError, match="git fetch --unshallow"):
            resolve_sides(tmp_path / "clone", base=base, head=None)
    clone.git.fetch("--unshallow")
    assert old == resolve_sides(tmp_path / "clone", base=None, head=None).base.commit.sha


def test_a_base_that_does_not_exist_is_reported(repository: Repository) -> None:
    repository.commit({"a.py": "1"})
    with pytest.raises(RepositoryError, match="has no parent to compare with; name one with --base"):
        _default(repository)
    repository.git.git.checkout("--quiet", "--orphan", "other")
    repository.commit({"a.py": "2"})
    with pytest.raises(RepositoryError, match="no commit in common with the main branch"):
        _default(repository)
    repository.git.git.branch("--delete", "--force", "main")
    with pytest.raises(RepositoryError, match="there is no main branch"):
        _default(repository)


def test_a_directory_has_no_base_of_its_own(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"a.py": "1"})

    with pytest.raises(RepositoryError, match=r"is a directory.*add --base"):
        resolve_sides(repository.root, base=None, head=str(tmp_path))


def test_without_a_repository_only_directories_serve(tmp_path: Path) -> None:
    for base in (None, "main", "./missing"):
        with pytest.raises(RepositoryError, match=r"is in no git repository.*two existing directories"):
            resolve_sides(tmp_path, base=base, head="HEAD")
    create_repository(tmp_path)
    with pytest.raises(RepositoryError, match=r"has no commit yet.*two existing directories"):
        resolve_sides(tmp_path, base=None, head=None)


def test_a_bare_repository_has_no_sides(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"a.py": "1"})
    git.Repo.clone_from(repository.root, tmp_path / "bare", bare=True)

    with pytest.raises(RepositoryError, match="is a bare repository"):
        resolve_sides(tmp_path / "bare", base=None, head=None)
