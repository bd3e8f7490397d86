"""A result is filed under the right commit."""

from __future__ import annotations

from pathlib import Path

import pytest
from repositories import Repository

from perfkit.errors import RepositoryError
from perfkit.repo.commits import (
    KnownCommits,
    author_of,
    changed_files,
    commit_facts,
    commits_after,
    commits_between,
    commits_of,
    history_order,
    newest_on_names,
    open_repository,
    read_commit,
    releases,
    resolve,
)


def test_head_is_read_with_all_that_is_known_of_it(repository: Repository) -> None:
    sha = repository.commit({"a.py": "1"}, "Add a")

    commit = read_commit(repository.root)

    assert (sha, "Add a", "main", False, None) == (
        commit.sha,
        commit.subject,
        commit.branch,
        commit.dirty,
        commit.diff_hash,
    )
    assert commit.time is not None
    assert commit.time.utcoffset() is not None


def test_a_tracked_change_makes_the_tree_dirty(repository: Repository) -> None:
    repository.commit({"a.py": "1"})
    (repository.root / "a.py").write_text("2")
    changed = read_commit(repository.root)
    repository.git.git.add("a.py")
    staged = read_commit(repository.root)
    (repository.root / "a.py").write_text("3")

    assert changed.dirty
    assert changed.diff_hash == staged.diff_hash
    assert changed.diff_hash != read_commit(repository.root).diff_hash


def test_own_output_and_untracked_files_are_not_dirt(repository: Repository) -> None:
    repository.commit({"perf_log.md": "old", "benchmarks/ledger/x": "old"})
    (repository.root / "perf_log.md").write_text("new")
    (repository.root / "benchmarks/ledger/x").write_text("new")
    (repository.root / "scratch.py").write_text("new")

    ignored = [repository.root / "perf_log.md", repository.root / "benchmarks/ledger", Path("/elsewhere")]

    assert not read_commit(repository.root, ignored=ignored).dirty
    assert read_commit(repository.root).dirty


def test_outside_a_repository_the_commit_may_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFKIT_COMMIT", "b" * 40)

    commit = read_commit(tmp_path)

    assert ("b" * 40, None) == (commit.sha, commit.subject)


def test_inside_a_repository_a_given_commit_must_be_head(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha = repository.commit({"a.py": "1"})
    monkeypatch.setenv("PERFKIT_COMMIT", sha)
    assert sha == read_commit(repository.root).sha

    monkeypatch.setenv("PERFKIT_COMMIT", "b" * 40)
    with pytest.raises(RepositoryError, match="but HEAD of"):
        read_commit(repository.root)


def test_without_any_commit_the_way_out_is_named(
    tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with pytest.raises(RepositoryError, match="is in no git repository"):
        read_commit(outside)
    with pytest.raises(RepositoryError, match="has no commit yet"):
        read_commit(repository.root)
    repository.commit({"a.py": "1"})
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(RepositoryError, match="belongs to another user; run `git config --global --add safe"):
        read_commit(repository.root)
    monkeypatch.setenv("PERFKIT_COMMIT", "HEAD")
    with pytest.raises(RepositoryError, match='must be 40 lower-case hex digits, found "HEAD"'):
        read_commit(outside)


def test_history_is_topological(repository: Repository) -> None:
    shas = [repository.commit({"a.py": str(number)}) for number in range(4)]

    order = history_order(repository.root, [*shas, "f" * 40])

    assert shas == sorted(order, key=lambda sha: order[sha])


@pytest.mark.parametrize("ref", ["nothing", "-x", "f" * 40])
def test_an_unknown_ref_is_refused(repository: Repository, ref: str) -> None:
    repository.commit({"a.py": "1"})

    with pytest.raises(RepositoryError, match=f'"{ref}"'):
        resolve(open_repository(repository.root), ref)


def test_git_shows_what_people_call_commits(repository: Repository) -> None:
    shas = [repository.commit({"a": str(number)}, f"Change | {number}") for number in range(3)]

    facts = commit_facts(repository.root, [shas[2], shas[0], "f" * 40])

    assert {shas[0], shas[2]} == facts.keys()
    assert ("Change | 0", "A Tester") == (facts[shas[0]].subject, facts[shas[0]].author)
    assert (facts[shas[0]].place or 0) < (facts[shas[2]].place or 0)


def test_a_setting_that_shows_signatures_changes_nothing(repository: Repository) -> None:
    repository.commit({"a": "1"}, "Signed")
    made = repository.git.git
    head, _, message = made.cat_file("commit", "HEAD").partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----"
    file = repository.root / "signed"
    file.write_text(f"{head}\n{signature}\n\n{message}\n")
    sha = made.hash_object("-t", "commit", "-w", str(file))
    made.update_ref("HEAD", sha)
    made.config("log.showSignature", "true")

    facts = commit_facts(repository.root, [sha])

    assert "Signed" == facts[sha].subject
    assert "A Tester" == author_of(repository.root, sha)


def test_commits_between_two_are_counted_with_those_of_branches(repository: Repository) -> None:
    first = repository.commit({"a": "1"})
    repository.git.git.checkout("--quiet", "-b", "side")
    repository.commit({"b": "1"})
    repository.git.git.checkout("--quiet", "main")
    repository.commit({"a": "2", "with | odd\nname": ""})
    repository.git.git.merge("--quiet", "--no-ff", "-m", "Merge", "side")
    last = repository.git.head.commit.hexsha

    assert 3 == commits_between(repository.root, first, last)
    assert {"a", "b", "with | odd\nname"} == set(changed_files(repository.root, first, last) or ())
    assert 4 == len(commits_of(repository.root, "main"))
    assert 2 == len(commits_of(repository.root, "side"))


def test_commits_listed_at_once_have_the_ranges_and_changes_that_git_has(
    repository: Repository,
) -> None:
    repository.commit({"a": "1"})
    repository.git.git.checkout("--quiet", "-b", "side")
    repository.commit({"b": "1", ":odd\nname": ""})
    repository.git.git.checkout("--quiet", "main")
    repository.commit({"a": "2"})
    repository.git.git.merge("--quiet", "--no-ff", "-m", "Merge", "side")
    # Git has this one, but no name leads to it.
    lost = repository.commit({"c": "1"})
    repository.git.git.reset("--quiet", "--hard", "HEAD~1")
    root, shas = repository.root, [*commits_of(repository.root, "main"), lost, "a" * 40]

    known = KnownCommits(root)
    pairs = [(first, last) for first in shas for last in shas]

    assert {pair: commits_between(root, *pair) for pair in pairs} == {
        pair: known.between(*pair) for pair in pairs
    }
    assert {pair: changed_files(root, *pair) for pair in pairs} == known.changed_files(pairs)
    assert not known.changed_files([])
    assert not known.facts([])


def test_commits_after_one_are_those_of_its_descendant(repository: Repository) -> None:
    first = repository.commit({"a": "1"})
    repository.git.git.checkout("--quiet", "-b", "side")
    side = repository.commit({"b": "1"})
    repository.git.git.checkout("--quiet", "main")
    second, last = repository.commit({"a": "2"}), repository.commit({"a": "3"})

    assert frozenset({second, last}) == commits_after(repository.root, first, last)
    assert frozenset() == commits_after(repository.root, last, last)
    assert commits_after(repository.root, last, first) is None
    assert commits_after(repository.root, side, last) is None
    assert commits_after(repository.root, "--all", last) is None


def test_a_branch_and_a_tag_have_a_newest_commit_among_some(repository: Repository) -> None:
    first = repository.commit({"a": "1"})
    repository.git.create_tag("v1")
    second = repository.commit({"a": "2"})
    repository.git.create_tag("v2", message="Second")
    repository.commit({"a": "3"})
    repository.git.git.checkout("--quiet", "-b", "side", first)
    side = repository.commit({"b": "1"})
    repository.commit({"b": "2"})

    assert {"main": second, "side": side, "v1": first, "v2": second} == newest_on_names(
        repository.root, {first, second, side}
    )
    assert {"main": second, "v2": second} == newest_on_names(repository.root, {second})


def test_releases_are_the_tags_that_head_comes_from(repository: Repository) -> None:
    first = repository.commit({"a": "1"})
    repository.git.create_tag("v1")
    second = repository.commit({"a": "2"})
    repository.git.create_tag("v2", message="Second")
    repository.commit({"a": "3"})
    repository.git.git.checkout("--quiet", "-b", "side", first)
    repository.commit({"b": "1"})
    repository.git.create_tag("other")
    repository.git.git.checkout("--quiet", "main")

    assert {"v1": first, "v2": second} == releases(repository.root)
