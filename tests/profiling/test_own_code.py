"""Own code is the named packages, or what lies in the project and was not installed there."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

import perfkit.config
from perfkit.profiling.passes import meter
from perfkit.profiling.passes.target_code import find_own_code

ROOT = Path("/project")


def test_without_names_all_of_the_project_is_own() -> None:
    """Files under the root are own, whatever the folder; elsewhere they are not."""
    own = find_own_code((), root=ROOT, script=None)
    assert own.owns("/project/src/demo/loss.py")
    assert not own.owns("/elsewhere/demo/loss.py")


def test_installed_packages_are_never_the_projects() -> None:
    """A virtual environment inside the project holds libraries."""
    own = find_own_code((), root=ROOT, script=None)
    assert not own.owns("/project/.venv/lib/python3.11/site-packages/torch/nn/modules/linear.py")


def test_standard_library_is_not_own() -> None:
    """Even with the file system's root as the project's, the standard library is a library."""
    own = find_own_code((), root=Path("/"), script=None)
    assert not own.owns(json.__file__)


def test_names_restrict_own_code(tmp_path: Path) -> None:
    """Named packages are own, other code of the project is not."""
    (tmp_path / "src" / "demo_package").mkdir(parents=True)
    own = find_own_code(("demo_package",), root=tmp_path, script=None)
    assert own.owns(str(tmp_path / "src" / "demo_package" / "loss.py"))
    assert not own.owns(str(tmp_path / "setup.py"))


def test_an_importable_package_is_found_where_it_lies() -> None:
    """A package that is imported from elsewhere is own all the same."""
    own = find_own_code(("perfkit",), root=ROOT, script=None)
    assert own.owns(str(perfkit.config.__file__))


def test_the_script_is_always_own() -> None:
    """A script that lies outside the named packages is still the user's."""
    script = Path("/elsewhere/train.py")
    assert find_own_code(("json",), root=ROOT, script=script).owns(str(script))
    assert find_own_code((), root=ROOT, script=script).owns("/elsewhere/model.py")


def test_the_harness_is_never_own() -> None:
    """Frames of perfkit are not the user's code, not even in perfkit's own repository."""
    own = find_own_code(("perfkit",), root=ROOT, script=None)
    assert not own.owns(str(meter.__file__))
    assert "perfkit/profiling/meter.py" == own.shown(str(meter.__file__))


def test_built_in_functions_have_no_file() -> None:
    """What has no file is nobody's own."""
    own = find_own_code((), root=ROOT, script=None)
    assert not own.owns("~")
    assert "<frozen os>" == own.shown("<frozen os>")


def test_files_are_shown_without_the_machine() -> None:
    """Names begin at the project's root, the installed package or the standard library."""
    own = find_own_code((), root=ROOT, script=None)
    assert "src/demo/loss.py" == own.shown("/project/src/demo/loss.py")
    assert "torch/nn/functional.py" == own.shown("/usr/lib/python3/dist-packages/torch/nn/functional.py")
    library = Path(sysconfig.get_path("stdlib"))
    assert f"{library.name}/queue.py" == own.shown(str(library / "queue.py"))
