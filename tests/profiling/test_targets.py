"""A target is a configured name, a function or a script; anything else is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.config import Config, Project
from perfkit.errors import UsageError
from perfkit.profiling.passes.targets import Target, resolve_target


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project with a configured function and a configured script."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "fit.py").write_text("")
    targets = {"train": "demo.training:main", "fit": "scripts/fit.py"}
    return Project(root=tmp_path, config=Config(targets=targets))


def test_configured_name(project: Project, tmp_path: Path) -> None:
    """A configured name keeps its name and gets its place."""
    found = resolve_target("train", project, folder=tmp_path)
    assert Target(name="train", place="demo.training:main") == found
    assert not found.is_script


def test_configured_script_is_seen_from_the_root(project: Project, tmp_path: Path) -> None:
    """A configured script's path begins at the project's root, wherever the person is."""
    found = resolve_target("fit", project, folder=tmp_path / "scripts")
    assert str(tmp_path / "scripts" / "fit.py") == found.place
    assert found.is_script


def test_script_is_seen_from_the_current_folder(project: Project, tmp_path: Path) -> None:
    """A script's path begins in the current folder."""
    found = resolve_target("fit.py", project, folder=tmp_path / "scripts")
    assert str(tmp_path / "scripts" / "fit.py") == found.place


@pytest.mark.parametrize("name", ["demo.training:main", "demo:Trainer.run"])
def test_function(project: Project, tmp_path: Path, name: str) -> None:
    """Functions and static methods are named by module and name."""
    assert name == resolve_target(name, project, folder=tmp_path).place


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trian", 'unknown target "trian"; did you mean "train"'),
        ("zzz", r"known names: fit, train\."),
        ("demo.training", "package.module:function"),
        ("demo:main()", "unknown target"),
        ("missing.py", "no script"),
        ("train.py:main", 'did you mean "train:main"'),
        ("./src/demo/training.py::main", 'did you mean "demo.training:main"'),
        ("my nb.ipynb", r"is a notebook.*`jupyter nbconvert --to script 'my nb.ipynb'` and profile my nb.py"),
        ("", "unknown target"),
    ],
)
def test_anything_else_is_explained(project: Project, tmp_path: Path, name: str, message: str) -> None:
    """An unknown target is one line with the nearest name or what forms there are."""
    with pytest.raises(UsageError, match=message) as caught:
        resolve_target(name, project, folder=tmp_path)
    assert "\n" not in str(caught.value)


def test_without_configuration(tmp_path: Path) -> None:
    """Where no names are configured the line says so and where they would be."""
    with pytest.raises(UsageError, match=r"no names are configured.*\[tool\.perfkit\.targets\]"):
        resolve_target("train", Project(root=tmp_path, config=Config()), folder=tmp_path)
