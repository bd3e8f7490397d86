"""``make versions`` reports what it leaves out, and tries what the package declares."""

from __future__ import annotations

import sys
import tomllib

import versions
from forked_commands import run
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

PYPROJECT = tomllib.loads((versions.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def test_the_lowest_supported_python_is_the_lowest_allowed() -> None:
    lowest = versions.supported()[0]

    assert SpecifierSet(f">={lowest}") == SpecifierSet(PROJECT["requires-python"])
    assert f"py{lowest.replace('.', '')}" == PYPROJECT["tool"]["ruff"]["target-version"]


def test_a_python_that_is_missing_is_reported_and_no_success() -> None:
    done = run([sys.executable, versions.__file__, "2.99"])

    assert "2.99    skipped: no python2.99 answers on the search path or in pyenv\n" == done.stdout
    assert (4, "") == (done.returncode, done.stderr)


def test_each_dependency_has_a_lower_bound_that_its_pinned_version_keeps() -> None:
    pins = dict(
        line.lower().replace("_", "-").split("==")
        for line in (versions.ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
    extras = PROJECT["optional-dependencies"].values()
    for line in (*PROJECT["dependencies"], *(line for extra in extras for line in extra)):
        required = Requirement(line)
        if required.name != PROJECT["name"]:
            assert any(one.operator == ">=" for one in required.specifier), line
            assert Version(pins[required.name.lower().replace("_", "-")]) in required.specifier, line


def test_the_tests_it_runs_exist() -> None:
    assert [] == [test for test in versions.TESTS if not (versions.ROOT / "tests" / test).exists()]
