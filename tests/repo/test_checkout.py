"""Both sides are laid out from commits, the working tree or directories, and removed afterwards."""

from __future__ import annotations

import os
import select
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import git
import pytest
from repositories import Repository, create_repository

from perfkit.errors import ConfigError, NotMeasuredError, PerfkitError, RepositoryError
from perfkit.repo.checkout import Generated, Roots, checkouts
from perfkit.repo.sides import resolve_sides

TEMPORARY = "temporary"


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a temporary folder of its own, so that what is left there shows."""
    (tmp_path / TEMPORARY).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / TEMPORARY))


@pytest.fixture
def two(repository: Repository) -> Repository:
    """Return a repository of two commits."""
    repository.commit({"a.py": "old", "pkg/b.py": "same"})
    repository.commit({"a.py": "new"})
    return repository


@contextmanager
def _checked_out(
    repository: Repository,
    *,
    base: str | None = "HEAD~1",
    head: str | None = None,
    copy: tuple[str, ...] = (),
    link: tuple[str, ...] = (),
    prepare: str | None = None,
    project: Path | None = None,
) -> Iterator[Roots]:
    pair = resolve_sides(repository.root, base=base, head=head)
    generated = Generated(project=project or repository.root, copy=copy, link=link, prepare=prepare)
    with checkouts(pair, generated=generated) as roots:
        yield roots


def _files(root: Path) -> dict[str, str]:
    """Return the text of each file below a root, links and git's own aside."""
    return {
        path.relative_to(root).as_posix(): path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink() and ".git" not in path.relative_to(root).parts
    }


def _assert_nothing_left(repository: Repository, *, worktrees: int = 1) -> None:
    assert [] == list((repository.root.parent / TEMPORARY).iterdir())
    assert worktrees == len(repository.git.git.worktree("list").splitlines())


def test_commits_stand_side_by_side_and_go_away(two: Repository) -> None:
    with _checked_out(two) as roots:
        assert {"a.py": "old", "pkg/b.py": "same"} == _files(roots.base)
        assert {"a.py": "new", "pkg/b.py": "same"} == _files(roots.head)
        assert len(str(roots.base)) == len(str(roots.head))
        assert roots.base == roots.base.resolve()
        assert roots.base.parent == roots.head.parent
        assert (roots.base, roots.head) == (roots.root("base"), roots.root("head"))
        assert () == roots.warnings
        assert "" == git.Repo(roots.head).git.status("--porcelain")

    assert not roots.base.parent.exists()
    _assert_nothing_left(two)


def test_hooks_filters_and_settings_have_no_effect(two: Repository) -> None:
    data = "x\ny\n"
    two.commit({".gitattributes": "*.bin filter=loud\n*.lot filter=gone\n", "d.bin": data, "d.lot": data})
    for hook in ("post-checkout", "reference-transaction"):
        path = two.root / ".git/hooks" / hook
        path.write_text(f"#!/bin/sh\necho hooked >> {two.root.parent}/hooked\n")
        path.chmod(0o755)
    two.git.git.sparse_checkout("set", "--no-cone", "/a.py", "/d.*")
    with two.git.config_writer() as config:
        config.set_value('filter "loud"', "smudge", "tr xy ab")
        config.set_value('filter "gone"', "process", "no-such-program")
        config.set_value('filter "gone"', "required", "true")
        config.set_value("core", "autocrlf", "true")
        config.set_value("core", "fsmonitor", f"echo watched >> {two.root.parent}/hooked;:")
    (two.root.parent / "hooked").unlink(missing_ok=True)

    with _checked_out(two, head="HEAD") as roots:
        assert [data, data] == [(roots.head / name).read_bytes().decode() for name in ("d.bin", "d.lot")]
        assert {"a.py", "pkg/b.py", ".gitattributes", "d.bin", "d.lot"} == set(_files(roots.head))

    assert not (two.root.parent / "hooked").exists()


def test_the_working_tree_is_laid_out_as_it_is(two: Repository) -> None:
    two.commit({".gitignore": "*.so\n", "gone/x.py": "1", "old.py": "renamed", "run.sh": "run"})
    changes = {"a.py": "changed", "pkg/b.py": "staged", "new/ä b.py": "untracked", "built.so": "ignored"}
    for name, text in changes.items():
        (two.root / name).parent.mkdir(exist_ok=True)
        (two.root / name).write_text(text)
    two.git.git.add("pkg/b.py")
    two.git.git.mv("old.py", "renamed.py")
    shutil.rmtree(two.root / "gone")
    (two.root / "run.sh").chmod(0o755)
    (two.root / "link.py").symlink_to("a.py")
    expected = {name: text for name, text in _files(two.root).items() if name != "built.so"}

    with _checked_out(two, base="HEAD") as roots:
        assert expected == _files(roots.head)
        assert not (roots.head / "gone").exists()
        assert "a.py" == str((roots.head / "link.py").readlink())
        assert os.access(roots.head / "run.sh", os.X_OK)
        assert {"a.py": "new", "old.py": "renamed"}.items() <= _files(roots.base).items()
        (roots.head / "a.py").write_text("overwritten")

    assert "changed" == (two.root / "a.py").read_text()
    _assert_nothing_left(two)


def test_files_folders_and_links_may_change_places(two: Repository, tmp_path: Path) -> None:
    two.commit({"file": "1", "folder/x.py": "1", "moved/x.py": "1"})
    (two.root / "file").unlink()
    (two.root / "file").mkdir()
    (two.root / "file/x.py").write_text("2")
    shutil.rmtree(two.root / "folder")
    (two.root / "folder").write_text("2")
    (two.root / "moved").rename(tmp_path / "moved")
    (two.root / "moved").symlink_to(tmp_path / "moved")

    with _checked_out(two, base="HEAD") as roots:
        assert {"file/x.py": "2", "folder": "2"}.items() <= _files(roots.head).items()
        assert tmp_path / "moved" == (roots.head / "moved").readlink()

    assert "1" == (tmp_path / "moved/x.py").read_text()


def test_a_linked_worktree_is_a_place_to_start_from(two: Repository, tmp_path: Path) -> None:
    two.git.git.worktree("add", "--quiet", "-b", "other", str(tmp_path / "other"))
    linked = Repository(tmp_path / "other", git.Repo(tmp_path / "other"))
    (linked.root / "a.py").write_text("changed here")

    with _checked_out(linked, base="HEAD") as roots:
        assert ["new", "changed here"] == [(r / "a.py").read_text() for r in (roots.base, roots.head)]

    _assert_nothing_left(two, worktrees=2)


def test_a_hook_that_runs_a_gate_is_left_alone(two: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    (two.root / "a.py").write_text("staged")
    two.git.git.add("a.py")
    (two.root / "a.py").write_text("later")
    index = two.root / ".git/index"
    before = index.read_bytes()
    monkeypatch.setenv("GIT_DIR", str(two.root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(index))

    with _checked_out(two, base="HEAD", prepare="git rev-parse --show-toplevel > top") as roots:
        assert "later" == (roots.head / "a.py").read_text()
        assert f"{roots.base}\n" == (roots.base / "top").read_text()

    assert before == index.read_bytes()


def test_directories_are_copied_without_their_caches(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name / "__pycache__").mkdir(parents=True)
        (tmp_path / name / "__pycache__/x.pyc").write_text("cache")
        (tmp_path / name / "a.py").write_text(name)
        (tmp_path / name / "link.py").symlink_to("a.py")
    os.mkfifo(tmp_path / "old/pipe")

    pair = resolve_sides(tmp_path, base=str(tmp_path / "old"), head=str(tmp_path / "new"))
    with checkouts(pair) as roots:
        assert [{"a.py": "old"}, {"a.py": "new"}] == [_files(roots.base), _files(roots.head)]
        assert "a.py" == str((roots.head / "link.py").readlink())
        (roots.head / "a.py").write_text("overwritten")

    assert "new" == (tmp_path / "new/a.py").read_text()
    assert [] == list((tmp_path / TEMPORARY).iterdir())


def test_a_directory_around_the_temporary_folder_is_refused(two: Repository, tmp_path: Path) -> None:
    pair = resolve_sides(two.root, base=str(tmp_path), head="HEAD")

    with pytest.raises(RepositoryError, match="set TMPDIR"), checkouts(pair):
        pass
    _assert_nothing_left(two)


def test_worktrees_of_a_killed_run_are_forgotten(two: Repository, tmp_path: Path) -> None:
    for folder in ("perfkit-lost", "perfkit-kept", "disk"):
        two.git.git.worktree("add", "--quiet", "--detach", str(tmp_path / folder / "base"))
    two.git.git.worktree("lock", str(tmp_path / "perfkit-lost/base"))
    shutil.rmtree(tmp_path / "perfkit-lost")
    shutil.rmtree(tmp_path / "disk")

    with _checked_out(two):
        pass

    listed = two.git.git.worktree("list")
    assert "perfkit-lost" not in listed
    assert "perfkit-kept" in listed
    assert "disk" in listed


@pytest.fixture
def _local_submodules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow submodules whose origin is a folder."""
    for name, value in (("COUNT", "1"), ("KEY_0", "protocol.file.allow"), ("VALUE_0", "always")):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)


@pytest.fixture
def nested(two: Repository, tmp_path: Path, _local_submodules: None) -> tuple[Repository, Repository]:
    """Return a repository whose last commit moved its submodule, which has one too, and its origin."""
    for name in ("inner", "outer"):
        (tmp_path / name).mkdir()
    inner = Repository(tmp_path / "inner", create_repository(tmp_path / "inner"))
    inner.commit({"i.py": "inner"})
    outer = Repository(tmp_path / "outer", create_repository(tmp_path / "outer"))
    outer.commit({"o.py": "old", "x.py": "kept", ".gitattributes": "x.py export-ignore\n"})
    outer.git.git.submodule("add", "--quiet", str(inner.root), "deps/inner")
    outer.commit({"o.py": "old"})
    two.git.git.submodule("add", "--quiet", str(outer.root), "libs/outer")
    two.git.git.submodule("update", "--quiet", "--init", "--recursive")
    two.commit({"c.py": "1"}, "Add the submodule")
    mine = git.Repo(two.root / "libs/outer")
    outer.commit({"o.py": "new"})
    mine.git.pull("--quiet", "origin", "main")
    two.commit({"c.py": "2"}, "Move the submodule")
    return two, outer


OUTER = "libs/outer/"
INNER_FILE = "libs/outer/deps/inner/i.py"


def test_submodules_are_filled_as_each_side_records_them(nested: tuple[Repository, Repository]) -> None:
    repository, _ = nested

    with _checked_out(repository, head="HEAD") as roots:
        base, head = _files(roots.base), _files(roots.head)
        assert ("old", "new") == (base[f"{OUTER}o.py"], head[f"{OUTER}o.py"])
        assert ("kept", "inner") == (base[f"{OUTER}x.py"], base[INNER_FILE])
        assert ("kept", "inner") == (head[f"{OUTER}x.py"], head[INNER_FILE])
        assert () == roots.warnings

    assert 1 == len(git.Repo(repository.root / "libs/outer").git.worktree("list").splitlines())
    assert "" == repository.git.git.status("--porcelain")


def test_submodules_of_the_working_tree_are_taken_as_they_are(nested: tuple[Repository, Repository]) -> None:
    repository, _ = nested
    (repository.root / "libs/outer/o.py").write_text("changed")
    half_changed = resolve_sides(repository.root, base="HEAD", head=None).head.commit
    (repository.root / INNER_FILE).write_text("changed too")
    changed = resolve_sides(repository.root, base="HEAD", head=None).head.commit

    assert (True, True) == (half_changed.dirty, changed.dirty)
    assert half_changed.diff_hash != changed.diff_hash
    with _checked_out(repository, base="HEAD") as roots:
        assert ("changed", "changed too") == (
            _files(roots.head)[f"{OUTER}o.py"],
            _files(roots.head)[INNER_FILE],
        )
        assert ("new", "inner") == (_files(roots.base)[f"{OUTER}o.py"], _files(roots.base)[INNER_FILE])


def test_a_submodule_that_cannot_be_filled_is_a_warning(nested: tuple[Repository, Repository]) -> None:
    repository, outer = nested
    ahead = outer.commit({"o.py": "ahead"})
    repository.git.git.update_index("--cacheinfo", f"160000,{ahead},libs/outer")
    repository.git.git.commit("--quiet", "-m", "Record what was not fetched")
    with _checked_out(repository, head="HEAD") as roots:
        assert 1 == len(roots.warnings)
        assert f"head: submodule libs/outer lacks commit {ahead[:10]}" in roots.warnings[0]
        assert [] == list((roots.head / "libs/outer").iterdir())

    repository.git.git.submodule("deinit", "--force", "--quiet", "libs/outer")
    with _checked_out(repository, head="HEAD") as roots:
        assert ["base", "head"] == [warning.partition(":")[0] for warning in roots.warnings]
        assert all("libs/outer is not initialised" in warning for warning in roots.warnings)


@pytest.fixture
def generated(two: Repository) -> Repository:
    """Return a repository with ignored files, some in a folder that also holds a tracked one."""
    two.commit({".gitignore": "*.so\nout/\n/data/big*\n", "data/small": "tracked"})
    (two.root / "out/deep").mkdir(parents=True)
    for name in ("pkg/ext.so", "out/deep/table", "data/big"):
        (two.root / name).write_text("generated")
    (two.root / "data/small").write_text("changed")
    return two


def test_generated_files_are_copied_or_linked(generated: Repository) -> None:
    (generated.root / "data/big_link").symlink_to("../out/deep")

    with _checked_out(
        generated, base="HEAD~1", head="HEAD", copy=("**/*.so", "data"), link=("out",)
    ) as roots:
        for root in (roots.base, roots.head):
            assert "generated" == (root / "pkg/ext.so").read_text()
            assert generated.root / "out" == (root / "out").readlink()
        assert {"data/big": "generated", "data/small": "tracked"}.items() <= _files(roots.head).items()
        assert "generated" == (roots.base / "data/big_link/table").read_text(), "the same place as before"
        (roots.head / "data/big").write_text("overwritten")

    assert "generated" == (generated.root / "data/big").read_text()
    assert "generated" == (generated.root / "out/deep/table").read_text()


@pytest.mark.parametrize("key", ["copy", "link"])
def test_a_pattern_without_a_match_names_its_key(two: Repository, key: str) -> None:
    for pattern in ("*.none", "/etc/passwd", "../x", "", ".", "a**", ".git/config"):
        copy, link = ((pattern,), ()) if key == "copy" else ((), (pattern,))
        checkout = _checked_out(two, copy=copy, link=link)

        with pytest.raises(ConfigError, match=f'tool.perfkit.{key}: "'), checkout:
            pass
    _assert_nothing_left(two)


def _prepared(repository: Repository, tmp_path: Path, command: str) -> tuple[int, Roots]:
    """Return how often a command ran for a pair that was laid out twice, and the second roots, checked."""
    ran = tmp_path / "ran"
    ran.write_text("")
    for _ in range(2):
        with _checked_out(repository, prepare=f"echo $PWD >> {ran}; {command}") as roots:
            assert (roots.base / "built").read_text().startswith("old")
            assert (roots.head / "built").read_text().startswith("new")
    return len(ran.read_text().splitlines()), roots


def test_what_prepare_made_of_a_commit_is_used_again(two: Repository, tmp_path: Path) -> None:
    command = "cp a.py built; chmod +x built; echo more >> pkg/b.py"
    times, roots = _prepared(two, tmp_path, command)

    assert 2 == times
    assert ["base", "head"] == [warning.partition(":")[0] for warning in roots.warnings]
    assert "what prepare made of this commit before was used again; remove /" in roots.warnings[0]
    with _checked_out(two, prepare=f"echo $PWD >> {tmp_path / 'ran'}; {command}") as roots:
        assert os.access(roots.base / "built", os.X_OK)
        assert "samemore\n" == (roots.head / "pkg/b.py").read_text()
    assert 2 == _prepared(two, tmp_path, f"{command}; true")[0]


def test_what_prepare_made_of_changes_is_not_kept(two: Repository, tmp_path: Path) -> None:
    (two.root / "a.py").write_text("newer")

    assert 3 == _prepared(two, tmp_path, "cp a.py built")[0]


@pytest.mark.parametrize("command", ["cp a.py built; pwd >> built", "mv a.py built"])
def test_what_fits_no_other_root_is_made_anew(two: Repository, tmp_path: Path, command: str) -> None:
    assert 4 == _prepared(two, tmp_path, command)[0]


def test_processes_of_prepare_end_with_it(two: Repository, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)

    with _checked_out(two, prepare=f"exec 9> '{tmp_path}/pipe'; sleep 600 &"):
        # The pipe ends when the last process that could write to it has.
        ended, _, _ = select.select([reading], [], [], 30)

    os.close(reading)
    assert [reading] == ended


def test_what_git_cannot_check_out_is_one_line(two: Repository) -> None:
    pair = resolve_sides(two.root, base="HEAD~1", head="HEAD")
    tree = two.git.commit("HEAD").tree.hexsha
    (two.root / ".git/objects" / tree[:2] / tree[2:]).unlink()

    with pytest.raises(PerfkitError, match="`git worktree add` failed") as caught, checkouts(pair):
        pass

    assert 1 == len(str(caught.value).splitlines())
    _assert_nothing_left(two)


@pytest.mark.parametrize("prepare", [None, "printf 'version = 4' > pkg/_version.py"])
def test_a_version_file_that_nothing_has_is_written(repository: Repository, prepare: str | None) -> None:
    names = {"setuptools_scm": "pkg/_version.py", "hatch.build.hooks.vcs": "gone/_version.py"}
    tables = "\n".join(
        f"[tool.{tool}]\n{'version_file' if tool == 'setuptools_scm' else 'version-file'} = '{file}'"
        for tool, file in names.items()
    )
    repository.commit({"pyproject.toml": tables, ".gitignore": "_version.py", "pkg/a.py": "old"})
    repository.commit({"pkg/a.py": "new"})

    with _checked_out(repository, prepare=prepare) as roots:
        written = (roots.base / "pkg/_version.py").read_text()
        assert not (roots.base / "gone").exists()

    if prepare:
        assert ("version = 4", ()) == (written, roots.warnings)
    else:
        scope: dict[str, object] = {}
        exec(written, scope)  # noqa: S102 (it is what perfkit wrote)
        assert ("0.0.0", "0.0.0", (0, 0, 0)) == tuple(
            scope[name] for name in ("version", "__version__", "version_tuple")
        )
        assert [f"{side}: pkg/_version.py is written by a build" for side in ("base", "head")] == [
            warning.partition(" that")[0] for warning in roots.warnings
        ]


def test_a_project_below_the_top_is_made_ready_in_its_own_folder(repository: Repository) -> None:
    repository.commit({".gitignore": "_made.py\n", "one/a.py": "old", "common/b.py": ""})
    repository.commit({"one/a.py": "new"})
    project = repository.root / "one"
    for folder in ("one", "common"):
        (repository.root / folder / "_made.py").write_text(folder)
    patterns = ("_made.py", "../common/_made.py")

    with _checked_out(repository, copy=patterns, prepare="cp a.py built", project=project) as roots:
        for root in (roots.base, roots.head):
            assert ["one", "common"] == [(root / one / "_made.py").read_text() for one in ("one", "common")]
        assert ["old", "new"] == [(root / "one/built").read_text() for root in (roots.base, roots.head)]


def test_a_project_that_a_side_lacks_cannot_be_made_ready(repository: Repository) -> None:
    repository.commit({"a.py": "old"})
    repository.commit({"one/a.py": "new"})

    with (
        pytest.raises(NotMeasuredError, match="base has no folder one"),
        _checked_out(repository, project=repository.root / "one"),
    ):
        pass


def test_a_pattern_may_not_lead_out_of_the_repository(repository: Repository) -> None:
    repository.commit({"one/a.py": "old"})
    repository.commit({"one/a.py": "new"})

    with (
        pytest.raises(ConfigError, match=r'"../../\*" must be a path below the root of the repository'),
        _checked_out(repository, copy=("../../*",), project=repository.root / "one"),
    ):
        pass
