"""What may be asked for as the environment of a side is read before anything is built."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
from repositories import Repository, create_repository

from perfkit.errors import UsageError
from perfkit.model import Side
from perfkit.repo.environments import (
    COMPLETE,
    MOST_KEPT,
    Environments,
    SideEnvironment,
    changed_packages,
    check_wanted,
    environment_key,
    installed_facts,
    installer_error,
    kept_folder,
    requirements_of,
    side_environments,
    unnamed_changes,
)
from perfkit.runner.commands import Interpreter

PYLOCK = """
lock-version = "1.0"
[[packages]]
name = "numpy"
version = "2.4.0"
[[packages]]
name = "colorama"
version = "0.4.6"
marker = "sys_platform == 'win32'"
"""
PROJECT = '[project]\nname = "mine"\ndependencies = ["numpy>=2", "torch==2.13.0"]\n'
PIP_CONFLICT = """Collecting pkgdemo
INFO: pip is looking at multiple versions

The conflict is caused by:
    The user requested pkgdemo==2.0
    needing 1.0 depends on pkgdemo==1.0

To fix this you could try to:
ERROR: Cannot install pkgdemo because these package versions have conflicting dependencies.
"""
PIP_UNKNOWN = """Looking in links
ERROR: Could not find a version that satisfies the requirement none==9 (from versions: 1.0)
ERROR: No matching distribution found for none==9
"""
UV = """Using CPython 3.11.7
  × No solution found when resolving dependencies:
  ╰─▶ Because there is no version of none==9 and you require none==9, we can
      conclude that your requirements are unsatisfiable.
"""
UV_REASON = (
    "No solution found when resolving dependencies: Because there is no version of none==9 and you require"
    " none==9, we can conclude that your requirements are unsatisfiable."
)


def described(
    named: frozenset[str] | None = frozenset(), python: str = "CPython 3.11.7", **packages: str
) -> SideEnvironment:
    """Return an environment with these packages."""
    return SideEnvironment(
        wanted=(), interpreter=Interpreter(), python=python, packages=packages, named=named
    )


def sides(base: SideEnvironment, head: SideEnvironment) -> Environments:
    return {"base": base, "head": head}


def test_a_requirement_stands_for_itself_and_names_a_package() -> None:
    found = [requirements_of(text, "base") for text in ("My_Package[extra]>=2,<3", "x @ file:///x.whl")]
    assert [(("My_Package[extra]>=2,<3",), "my-package"), (("x @ file:///x.whl",), "x")] == [
        (one.lines, one.name) for one in found
    ]


def test_a_file_stands_for_its_requirements(tmp_path: Path) -> None:
    for name, text in (("some.txt", "numpy"), ("old.lock", PYLOCK), ("pyproject.toml", PROJECT)):
        (tmp_path / name).write_text(text)
    found = [
        requirements_of(text, "head")
        for text in (
            str(tmp_path / "some.txt"),
            f"-r {tmp_path / 'some.txt'}",
            str(tmp_path / "old.lock"),
            str(tmp_path / "pyproject.toml"),
        )
    ]
    assert [
        (f"-r {tmp_path / 'some.txt'}",),
        (f"-r {tmp_path / 'some.txt'}",),
        ("numpy==2.4.0", "colorama==0.4.6 ; sys_platform == 'win32'"),
        ("numpy>=2", "torch==2.13.0"),
    ] == [one.lines for one in found]
    assert {None} == {one.name for one in found}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("pylock.toml", "[[packages]]\nname = 'x'\n", "neither a pylock.toml whose packages have versions"),
        ("pyproject.toml", "[tool.x]\n", "neither a pylock.toml whose packages have versions"),
        ("poetry.lock", "[[package]]\nname = 'x'\n", "locks of Poetry, PDM and Pipenv are not read"),
        ("bin/python3", "", "is a Python; name the folder of its environment"),
        ("broken.toml", "[", "neither a pylock.toml whose packages have versions"),
    ],
)
def test_a_damaged_file_is_reported(tmp_path: Path, name: str, text: str, expected: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=expected) as caught:
        check_wanted({"base": [str(tmp_path / name)]})
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nowhere.txt", "there is no file nowhere.txt"),
        ("--upgrade", "--upgrade is no requirement"),
        (".git", ".git is a folder without bin/python"),
        ("./pkgdemo", "there is no such file or folder"),
    ],
)
def test_what_is_nothing_to_build_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=f"^--head-with.*{expected}"):
        check_wanted({"head": [text]})


def test_an_environment_stands_alone(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").touch()
    with pytest.raises(UsageError, match="is an environment, which is measured as it is: give it alone"):
        check_wanted({"head": [str(tmp_path), "numpy"]})


def test_nothing_wanted_is_nothing_built() -> None:
    wanted: dict[Side, list[str]] = {"base": [], "head": []}
    assert {} == side_environments(wanted, log=pytest.fail)


def test_the_key_of_an_environment_follows_from_all_it_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tmp_path / "some.txt"
    listed.write_text("numpy==1")
    lines = [f"-r {listed}"]
    known = environment_key(lines)
    assert known == environment_key(lines)
    assert known != environment_key([*lines, "torch"])
    listed.write_text("numpy==2")
    changed = environment_key(lines)
    assert known != changed
    monkeypatch.setitem(os.environ, "PIP_INDEX_URL", listed.parent.as_uri())
    assert changed != environment_key(lines)


def test_packages_that_differ_are_split_by_those_that_were_named() -> None:
    base = described(frozenset({"torch"}), torch="2.12.1", numpy="2.4.0", both="1")
    head = described(frozenset({"torch"}), torch="2.13.0", numpy="2.4.1", both="1", new="3")
    both = sides(base, head)
    assert {
        "new": (None, "3"),
        "numpy": ("2.4.0", "2.4.1"),
        "torch": ("2.12.1", "2.13.0"),
    } == changed_packages(both)
    assert ("new", "numpy") == unnamed_changes(both)
    assert () == unnamed_changes(sides(base, described(None, torch="2.13.0")))


def test_the_facts_of_both_sides_are_what_differs() -> None:
    both = sides(described(torch="2.12.1", x="1", same="0"), described(python="CPython 3.13.0", same="0"))
    assert {
        "base": {"python": "CPython 3.11.7", "torch": "2.12.1", "package x": "1"},
        "head": {"python": "CPython 3.13.0", "torch": "absent", "package x": "absent"},
    } == installed_facts(both)
    assert {} == installed_facts({})


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (PIP_CONFLICT, "The user requested pkgdemo==2.0; needing 1.0 depends on pkgdemo==1.0"),
        (PIP_UNKNOWN, "Could not find a version that satisfies the requirement none==9 (from versions: 1.0)"),
        (UV, UV_REASON),
        ("killed", "killed"),
        ("", ""),
    ],
)
def test_the_reason_of_an_installer_is_one_line(message: str, expected: str) -> None:
    assert expected == installer_error(message.splitlines())


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of kept environments, which is a test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "perfkit/environments"


def finish(place: Path) -> None:
    (place / COMPLETE).touch()


def test_so_many_environments_are_kept(kept: Path) -> None:
    keys = [f"key-{number}" for number in range(MOST_KEPT)]
    for age, key in enumerate(keys):
        os.utime(kept_folder(key, finish), (age, age))
    kept_folder(keys[0], lambda place: pytest.fail(f"{place} is built again"))
    kept_folder("another", finish)
    assert {"another", *keys} - {keys[1]} == {place.name for place in kept.iterdir()}


def test_a_build_that_fails_leaves_nothing(kept: Path) -> None:
    def fail(place: Path) -> None:
        (place / "half").touch()
        raise UsageError("no such package")

    (kept / "killed").mkdir(parents=True)
    with pytest.raises(UsageError, match="no such package"):
        kept_folder("key", fail)
    assert ["killed"] == [place.name for place in kept.iterdir()]
    kept_folder("key", finish)
    assert ["key"] == [place.name for place in kept.iterdir()]


def test_an_environment_is_built_anew_where_what_it_is_built_of_differs(tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text(
        "-r more.txt\n-c limits.txt  # and no later ones\n-e ./theirs[fast] ; python_version > '3'\n"
    )
    sources = {
        "more.txt": "numpy",
        "theirs/theirs.py": "N = 1",
        "limits.txt": "numpy<3",
        "mine/fast.c": "int a;",
        "mine/pyproject.toml": "",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    lines = [*requirements_of(str(tmp_path / "all.txt"), "base").lines, str(tmp_path / "mine")]
    keys = {environment_key(lines)}
    for name, text in sources.items():
        (tmp_path / name).write_text(f"{text} ")
        keys.add(environment_key(lines))

    assert 1 + len(sources) == len(keys)


def test_generated_files_and_submodules_are_part_of_a_project(repository: Repository, tmp_path: Path) -> None:
    inner = Repository(tmp_path / "inner", create_repository(tmp_path / "inner"))
    inner.commit({"v.py": "N = 1"})
    repository.commit({".gitignore": "_core.c\ndata/\n", "m.py": ""})
    repository.git.git.execute(
        ["git", "-c", "protocol.file.allow=always", "submodule", "add", str(inner.root), "vendored"]
    )
    repository.commit({"n.py": ""}, "Vendor")
    lines, keys = [str(repository.root)], set[str]()
    for name in ("_core.c", "vendored/v.py", "m.py", "data/large.bin", "data/large.bin"):
        (repository.root / name).parent.mkdir(exist_ok=True)
        (repository.root / name).write_text(f"{len(keys)}")
        keys.add(environment_key(lines))

    # What git ignores and no build reads may be large, and is passed over.
    assert 3 == len(keys)


def test_an_environment_is_built_anew_where_a_branch_has_moved(
    repository: Repository, tmp_path: Path
) -> None:
    sha = repository.commit({"m.py": ""})
    (tmp_path / "all.txt").write_text(f"here @ git+file://{repository.root}#egg=here\n")
    lines = list(requirements_of(str(tmp_path / "all.txt"), "base").lines)
    fixed = [f"here @ git+file://{repository.root}@{sha}"]
    before = environment_key(lines), environment_key(fixed)
    repository.commit({"n.py": ""})

    assert before[0] != environment_key(lines)
    assert before[1] == environment_key(fixed)


def test_a_project_that_its_repository_ignores_is_looked_at_all_the_same(repository: Repository) -> None:
    repository.commit({".gitignore": "build/\n"})
    source = repository.root / "build/mine/fast.c"
    source.parent.mkdir(parents=True)
    source.write_text("int a;")
    lines = [str(source.parent)]
    key = environment_key(lines)
    source.write_text("int b;")

    assert key != environment_key(lines)


def test_a_file_of_requirements_may_lie_on_a_path_with_a_space(tmp_path: Path) -> None:
    place = tmp_path / "my files" / "of us.txt"
    place.parent.mkdir()
    place.write_text("-r more.txt\n")
    (place.parent / "more.txt").write_text("pytest\n")
    lines = requirements_of(str(place), "base").lines
    (tmp_path / "wanted.txt").write_text("\n".join(lines))
    key = environment_key(lines)
    place.write_text("pytest\n")

    assert key != environment_key(lines)
    if PathFinder.find_spec("pip") is None:
        pytest.skip("needs pip")
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "-r", "wanted.txt"]
    assert 0 == subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode
