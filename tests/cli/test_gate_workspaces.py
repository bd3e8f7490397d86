"""Several packages of one repository, installed editable, come from the same checkout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gating import CONFIGURATION, GitProject, benchmark, git_project, work

CORE, APP = "packages/core/src", "packages/app/source"
# An editable installation may serve packages by a finder like this one instead of a path.
FINDER = """
import importlib.util, sys
MAPPING = {mapping!r}
class EditableFinder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in MAPPING:
            return importlib.util.spec_from_file_location(name, MAPPING[name] + "/__init__.py")
sys.meta_path.append(EditableFinder)
"""


def _workspace(place: Path) -> GitProject:
    project = git_project(
        place,
        {
            f"{CORE}/acme_core/__init__.py": work(count=10),
            f"{APP}/acme_app/__init__.py": "from acme_core import count as step\n",
            "packages/app/pyproject.toml": CONFIGURATION,
            "packages/app/tests/test_step.py": f"from acme_app import step\n{benchmark('step', 'step')}",
        },
    )
    project.commit({f"{CORE}/acme_core/__init__.py": work(count=60)})
    return project


@pytest.mark.parametrize("how", ["path", "finder"])
def test_a_change_in_a_sibling_package_is_measured(tmp_path: Path, how: str) -> None:
    project = _workspace(tmp_path)
    places = {name: f"{project.root}/{folder}" for name, folder in (("acme_core", CORE), ("acme_app", APP))}
    path = list(places.values())
    if how == "finder":
        path = [str(tmp_path / "site")]
        mapping = {name: f"{place}/{name}" for name, place in places.items()}
        (tmp_path / "site").mkdir()
        (tmp_path / "site/sitecustomize.py").write_text(FINDER.format(mapping=mapping))

    gated = project.gate(
        "--budget", "40", cwd=project.root / "packages/app", extra={"PYTHONPATH": os.pathsep.join(path)}
    )

    assert {"test_step": "REGRESSED"} == gated.verdicts, gated.stderr
    assert 1 == gated.exit_code


@pytest.mark.parametrize("module", ["numpy.no_such_module", "winreg"])
def test_what_is_installed_is_not_to_be_installed(tmp_path: Path, module: str) -> None:
    test = f"import {module}\n{benchmark('one', 'int')}"
    project = git_project(tmp_path, {"test_one.py": benchmark("two", "int"), "test_other.py": test})
    project.commit({"work.py": ""})

    gated = project.gate("--budget", "20")

    message = gated.comparisons["test_other.py"]["message"]
    assert module.partition(".")[0] in message
    assert "pip install" not in message
