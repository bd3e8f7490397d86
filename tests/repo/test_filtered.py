"""Files that git stores through a filter are filled in without running it, or refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from repositories import Repository, create_repository

from perfkit.errors import NotMeasuredError
from perfkit.repo.checkout import Generated, Roots, checkouts
from perfkit.repo.commits import read_commit
from perfkit.repo.sides import changed_files, resolve_sides

ATTRIBUTES = "*.big filter=lfs diff=lfs merge=lfs -text\n*.own filter=own\n"
OLD, NEW = "old content\n", "new content\n"


@contextmanager
def _checked_out(repository: Repository, prepare: str | None = None) -> Iterator[Roots]:
    pair = resolve_sides(repository.root, base="HEAD~1", head=None)
    generated = Generated(project=repository.root, prepare=prepare)
    with checkouts(pair, generated=generated) as roots:
        yield roots


def _pointer(content: str) -> str:
    digest = hashlib.sha256(content.encode()).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(content)}\n"


def _keep(repository: Repository, content: str, store: str = ".git/lfs") -> None:
    digest = hashlib.sha256(content.encode()).hexdigest()
    place = repository.root / store / "objects" / digest[:2] / digest[2:4] / digest
    place.parent.mkdir(parents=True)
    place.write_text(content)


@pytest.fixture
def stored(repository: Repository) -> Repository:
    """Return a repository whose two commits hold two pointers, as a checkout without Git LFS shows them."""
    repository.commit({".gitattributes": ATTRIBUTES, "a.big": _pointer(OLD), "code.py": "1"})
    repository.commit({"a.big": _pointer(NEW), "code.py": "2"})
    return repository


@pytest.mark.parametrize("store", [".git/lfs", "elsewhere"])
def test_pointers_are_filled_from_the_local_store(stored: Repository, store: str) -> None:
    if store != ".git/lfs":
        stored.git.git.config("lfs.storage", str(stored.root / store))
        (stored.root / ".git/info/exclude").write_text(f"/{store}\n")
    for content in (OLD, NEW):
        _keep(stored, content, store)

    with _checked_out(stored) as roots:
        assert [OLD, NEW] == [(root / "a.big").read_text() for root in (roots.base, roots.head)]


def test_a_pointer_without_content_is_refused(stored: Repository) -> None:
    _keep(stored, NEW)

    with (
        pytest.raises(NotMeasuredError, match=r"^base: a\.big is a Git LFS pointer") as refused,
        _checked_out(stored),
    ):
        pass
    assert "git lfs fetch" in str(refused.value)

    stored.git.git.config("lfs.fetchexclude", "docs,*.big")
    with _checked_out(stored) as roots:
        assert _pointer(OLD) == (roots.base / "a.big").read_text()
        assert NEW == (roots.head / "a.big").read_text()
        assert any("lfs.fetchexclude" in warning for warning in roots.warnings)


def test_prepare_may_write_the_content(stored: Repository) -> None:
    with _checked_out(stored, prepare="echo filled > a.big") as roots:
        assert "filled\n" == (roots.base / "a.big").read_text()
    with pytest.raises(NotMeasuredError), _checked_out(stored, prepare="true"):
        pass


def test_pointers_of_a_submodule_are_filled_too(stored: Repository, tmp_path: Path) -> None:
    for content in (OLD, NEW):
        _keep(stored, content)
    (tmp_path / "outer").mkdir()
    outer = Repository(tmp_path / "outer", create_repository(tmp_path / "outer"))
    outer.commit({"x.py": "1"})
    outer.git.git.execute(
        ["git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(stored.root), "sub"]
    )
    outer.commit({"x.py": "2"})
    outer.commit({"x.py": "3"})

    with pytest.raises(NotMeasuredError, match=r"a\.big is a Git LFS pointer"), _checked_out(outer):
        pass
    outer.git.git.config(
        "--file", str(outer.root / ".git/modules/sub/config"), "lfs.storage", str(stored.root / ".git/lfs")
    )
    with _checked_out(outer) as roots:
        assert NEW == (roots.base / "sub/a.big").read_text()


def test_a_working_tree_with_contents_is_clean(stored: Repository) -> None:
    for content in (OLD, NEW):
        _keep(stored, content)
    (stored.root / "a.big").write_text(NEW)

    assert not read_commit(stored.root).dirty
    assert "commit" == resolve_sides(stored.root, base="HEAD~1", head=None).head.kind

    (stored.root / "a.big").write_text("another content")
    assert read_commit(stored.root).dirty
    pair = resolve_sides(stored.root, base="HEAD", head="worktree")
    assert ("a.big",) == changed_files(pair)
    with checkouts(pair) as roots:
        assert "another content" == (roots.head / "a.big").read_text()


def test_a_filter_of_ones_own_never_runs(repository: Repository) -> None:
    ran = repository.root.parent / "ran"
    repository.commit({".gitattributes": ATTRIBUTES, "b.own": "secret", "code.py": "1"})
    for way, command in {"smudge": "tr a-z A-Z", "clean": "tr A-Z a-z"}.items():
        repository.git.git.config(f"filter.own.{way}", f"sh -c 'echo ran >> {ran}; {command}'")
    (repository.root / "b.own").unlink()
    repository.git.git.checkout("--", "b.own")
    repository.commit({"code.py": "2"})
    ran.unlink()

    assert not read_commit(repository.root).dirty
    with _checked_out(repository) as roots:
        assert ["SECRET"] * 2 == [(root / "b.own").read_text() for root in (roots.base, roots.head)]

    (repository.root / "b.own").write_text("CHANGED")
    assert read_commit(repository.root).dirty
    assert ("b.own",) == changed_files(resolve_sides(repository.root, base="HEAD", head=None))
    shown = r'^base: b\.own is stored through the git filter "own"'
    with pytest.raises(NotMeasuredError, match=shown), _checked_out(repository):
        pass
    assert not ran.exists()
