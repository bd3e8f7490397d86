"""Ranges of commits are read from real repositories."""

from __future__ import annotations

from pathlib import Path

import pytest
from repositories import Repository

from perfkit.errors import RepositoryError, UsageError
from perfkit.repo.commits import (
    BenchmarkSource,
    DiffStat,
    author_of,
    changes_of,
    commit_range,
    diff_stat,
    find_benchmark,
    lay_benchmark,
)

TEST = "def test_speed(benchmark):\n    benchmark(len, ())\n"


def _merged(repository: Repository) -> list[str]:
    """Make a main branch with a merge of a branch of two commits; return its commits, then the branch's."""
    first = repository.commit({"a.py": "1"}, "Begin")
    repository.git.git.checkout("-b", "side")
    side = [repository.commit({"b.py": str(number)}, f"Side {number}") for number in range(2)]
    repository.git.git.checkout("main")
    second = repository.commit({"a.py": "2"}, "Go on")
    repository.git.git.merge("side", "--no-ff", "-m", "Merge")
    merge = repository.git.head.commit.hexsha
    third = repository.commit({"a.py": "3"}, "End")
    return [first, second, merge, third, *side]


def test_a_merge_is_one_place(repository: Repository) -> None:
    first, second, merge, third, *side = _merged(repository)

    by_first = commit_range(repository.root, first, "main")
    all_of_them = commit_range(repository.root, first, "main", all_parents=True)

    assert [first, second, merge, third] == [commit.sha for commit in by_first.commits]
    assert 3 == by_first.last
    assert {first: 0, second: 1, merge: 2, third: 3} == by_first.places()
    assert {first, second, *side, merge, third} == {commit.sha for commit in all_of_them.commits}
    assert (first, third) == (all_of_them.sha(0), all_of_them.sha(5))


def test_what_is_no_range_is_refused(repository: Repository) -> None:
    first, second, _, third, side, _ = _merged(repository)

    with pytest.raises(UsageError, match="one commit"):
        commit_range(repository.root, first, first[:10])
    with pytest.raises(UsageError, match="name the older commit first"):
        commit_range(repository.root, third, first)
    with pytest.raises(UsageError, match=rf"their last common commit, {first[:10]}"):
        commit_range(repository.root, second, side)
    with pytest.raises(RepositoryError, match="unknown commit"):
        commit_range(repository.root, first, "nowhere")


def test_changes_are_read_from_git(repository: Repository) -> None:
    repository.commit({"part/a.py": "def one(): pass\ndef two(): pass\n", "part/c.py": "def three(): pass\n"})
    repository.commit({"part/README.md": "Text"})
    repository.commit({"part/a.py": "def one(): return 1\ndef two(): pass\n"})
    repository.commit({"part/c.py": "def three(): return 1\n"})
    repository.commit({"part/a.py": "x = 1\ndef one(): return 1\n"})
    commits = commit_range(repository.root / "part", "HEAD~4", "HEAD")

    found = changes_of(commits, read={"a.py"})

    assert [False, True, True, True] == [change.touches_code for change in found]
    assert [{}, {"a.py": ("one",)}, {}, {"a.py": None}] == [change.code for change in found]


def test_a_commit_is_described(repository: Repository) -> None:
    first = repository.commit({"a.py": "1\n2\n"})
    (repository.root / "b.bin").write_bytes(b"\0\1")
    second = repository.commit({"a.py": "1\n3\n4\n"})

    assert DiffStat(files=2, added=2, removed=1) == diff_stat(repository.root, first, second)
    assert "A Tester" == author_of(repository.root, second)


def test_a_benchmark_is_looked_for_at_bad_then_in_the_tree_then_at_good(repository: Repository) -> None:
    good = repository.commit({"tests/test_old.py": TEST, "a.py": "1"})
    (repository.root / "tests/test_old.py").unlink()
    bad = repository.commit({"benchmarks/bench.py": TEST.replace("speed", "new")})
    (repository.root / "benchmarks/later.py").write_text(TEST.replace("speed", "later"))
    commits = commit_range(repository.root, good, bad)

    def found(benchmark: str) -> BenchmarkSource:
        return find_benchmark(commits, benchmark, preferred="benchmarks")

    assert BenchmarkSource(sha=bad, file="benchmarks/bench.py", kind="bad") == found("test_new[3]")
    assert BenchmarkSource(sha=bad, file="benchmarks/bench.py", kind="bad") == found("bench.py::test_new")
    assert BenchmarkSource(sha=None, file="benchmarks/later.py", kind="working tree") == found("test_later")
    assert BenchmarkSource(sha=good, file="tests/test_old.py", kind="good") == found("Class::test_speed")
    with pytest.raises(UsageError, match="no benchmark"):
        found("test_none")
    with pytest.raises(UsageError, match="no benchmark"):
        found("not a name")


def test_a_name_of_several_files_is_refused(repository: Repository) -> None:
    files = {"tests/test_a.py": TEST, "benchmarks/bench_a.py": TEST}
    good = repository.commit(files)
    bad = repository.commit({"a.py": "1"})
    commits = commit_range(repository.root, good, bad)

    preferred = find_benchmark(commits, "test_speed", preferred="benchmarks")

    assert "benchmarks/bench_a.py" == preferred.file
    with pytest.raises(UsageError, match=r"could mean benchmarks/bench_a\.py::test_speed, tests/test_a"):
        find_benchmark(commits, "test_speed", preferred="elsewhere")


def test_a_benchmark_is_laid_with_its_conftest_files(repository: Repository, tmp_path: Path) -> None:
    sha = repository.commit({"tests/a/test_x.py": TEST, "tests/conftest.py": "old", "conftest.py": "top"})
    (repository.root / "tests/conftest.py").write_text("new")
    source = BenchmarkSource(sha=sha, file="tests/a/test_x.py", kind="bad")

    laid = lay_benchmark(repository.root, source, tmp_path / "laid")

    assert ("conftest.py", "tests/conftest.py", "tests/a/test_x.py") == laid
    assert "old" == (tmp_path / "laid/tests/conftest.py").read_text()
