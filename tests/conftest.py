"""These fixtures give all tests a clean environment, a real git repository, and one import of torch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from repositories import Repository, create_repository

from perfkit.profiling.launch import PassLauncher

pytest_plugins = ["pytester"]

# A busy machine is no failure.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# In place of the caller's options: no session that a test starts uses this plugin, and each would spend a
# second on importing it.
os.environ["PYTEST_ADDOPTS"] = "-p no:hypothesispytest"

# These tests may be divided among processes; the sessions they start are whole ones, which measure.
os.environ.pop("PYTEST_XDIST_WORKER", None)

# A machine of its own for each process that runs tests: they wait for nobody else's perfkit.
_MACHINE = tempfile.TemporaryDirectory(prefix="machine-")
os.environ["PERFKIT_LOCK_FOLDER"] = _MACHINE.name
os.environ["XDG_CACHE_HOME"] = f"{_MACHINE.name}/cache"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the file that takes longest: begun last, it would keep one process waiting for the other."""
    items.sort(key=lambda item: item.path.name != "test_documents.py")


@pytest.fixture(autouse=True)
def _no_claimed_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caller's PERFKIT_COMMIT out of the tests."""
    monkeypatch.delenv("PERFKIT_COMMIT", raising=False)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Return an empty repository with an author."""
    root = tmp_path / "project"
    root.mkdir()
    return Repository(root, create_repository(root))


@pytest.fixture(scope="session")
def launcher() -> Iterator[PassLauncher]:
    """Return what starts passes, as a command has one."""
    with PassLauncher() as launcher:
        yield launcher
