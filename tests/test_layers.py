"""The architecture: imports go down only, and each foreign library has one home."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOMES = {
    "torch": {"measure", "profiling", "workloads", "machine"},
    "git": {"repo"},
    "pyarrow": {"ledger"},
    "pandas": {"ledger"},
    "psutil": {"machine"},
    "cpuinfo": {"machine"},
    "pynvml": {"machine"},
    "typer": {"cli"},
    "pytest": {"plugin"},
    "pytest_benchmark": {"measure"},
    "line_profiler": {"profiling"},
    "sklearn": {"workloads"},
    "PIL": {"workloads"},
}


def test_imports_go_down_only() -> None:
    """The layers that pyproject.toml declares hold."""
    linter = Path(sys.executable).with_name("lint-imports")

    done = subprocess.run([linter, "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("library", sorted(HOMES))
def test_a_foreign_library_has_one_home(library: str) -> None:
    """Only the packages named as its home import a library, at any depth of a module."""
    users = {part for part, imported in _imports() if imported == library}

    assert users <= HOMES[library], f"{library} is imported in {sorted(users - HOMES[library])}"


def _imports() -> Iterator[tuple[str, str]]:
    """Yield (part of perfkit, top-level name) of every import that runs, wherever it stands."""
    package = ROOT / "perfkit"
    for file in package.rglob("*.py"):
        part = file.relative_to(package).parts[0]
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                yield from ((part, alias.name.partition(".")[0]) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield part, node.module.partition(".")[0]
