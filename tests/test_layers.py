"""Imports go down only, and each foreign library has one home, as the architecture states."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# The folders of perfkit that may import a library.
HOMES = {
    "torch": {
        "agent",
        "runner",
        "profiling",
        "features/experiments",
        "features/tricks",
        "commands/machine_check",
    },
    "transformers": {"integrations"},
    "pyarrow": {"ledger"},
    "obstore": {"features/store"},
    "packaging": {"repo"},
    "mcp": {"features/mcp"},
    "mlflow": {"features/exchange"},
    "tensorboard": {"features/exchange"},
    "wandb": {"features/exchange"},
    "pandas": {"ledger"},
    "distributed": {"features/cluster"},
    "duckdb": {"ledger"},
    "psutil": {"runner/machine"},
    "cpuinfo": {"runner/machine"},
    "pynvml": {"runner/machine"},
    "typer": {"cli", "features"},
    "pytest": {"plugin", "agent"},
    "pytest_benchmark": {"agent"},
    "line_profiler": {"profiling"},
    "jinja2": {"report", "features"},
}


def test_imports_go_down_only() -> None:
    linter = Path(sys.executable).with_name("lint-imports")

    done = subprocess.run([linter, "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("library", sorted(HOMES))
def test_a_foreign_library_has_one_home(library: str) -> None:
    users = {file for file, imported in _imports() if imported == library}

    misplaced = {file for file in users if not any(file.startswith(f"{home}/") for home in HOMES[library])}
    assert users
    assert not misplaced, f"{library} is imported in {sorted(misplaced)}"


@functools.cache
def _imports() -> frozenset[tuple[str, str]]:
    """Return (file of perfkit, top-level name) of every import that runs, wherever it stands."""
    return frozenset(_each_import())


def _each_import() -> Iterator[tuple[str, str]]:
    package = ROOT / "perfkit"
    # Most files have none, and parsing takes long.
    named = re.compile(rf"\b(?:import|from) +(?:{'|'.join(HOMES)})\b")
    for file in package.rglob("*.py"):
        part, text = file.relative_to(package).as_posix(), file.read_text()
        for node in ast.walk(ast.parse(text if named.search(text) else "")):
            if isinstance(node, ast.Import):
                yield from ((part, alias.name.partition(".")[0]) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield part, node.module.partition(".")[0]


def test_the_house_is_on_one_page() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    rooms = {folder.name for folder in (ROOT / "perfkit").iterdir() if (folder / "__init__.py").is_file()}
    named = set(re.findall(r"`(perfkit/[\w/.]+)`", page))

    assert set() == {room for room in rooms if f"`perfkit/{room}`" not in page}
    assert set() == {path for path in named if not (ROOT / path).exists()}
